"""`lw.show`: what is drawn of a tree, and that nothing in it can spoil the picture."""

import collections
import io
import re
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from tests.objects.samples import Pair

import leafwise as lw


@lw.pytree
class Dense:
    w: jax.Array
    act: lw.Static[str] = "relu"
    b: Any = None


@lw.pytree(many_statics=True)
class Many:
    n: int = lw.static_field(default=1)
    password: str = lw.static_field(default="hunter2", repr=False)
    x: Any = 1.0


class Noted:
    """Registered by hand: its aux_data has no names, and cannot be compared."""

    def __init__(self, w: Any, table: Any) -> None:
        self.w, self.table = w, table


jax.tree_util.register_pytree_node(
    Noted, lambda noted: ((noted.w,), noted.table), lambda table, kept: Noted(*kept, table)
)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def drawn(tree: Any, **options: Any) -> str:
    return str(lw.show(tree, **options))


def names(text: str) -> list[str]:
    """Return the lines without guides and what is in the right column."""
    return [re.sub(r"^[│├└─ ]+|  .*$", "", line) for line in text.splitlines()]


def names_and_notes(text: str) -> list[str]:
    return [re.sub(r"^[│├└─ ]+|  +\d+ B$", "", line) for line in text.splitlines()]


def test_a_notebook_folds_a_tree() -> None:
    """In HTML each branch is a fold, open for two levels; what users wrote is escaped."""
    page = lw.show({"<b>": [{"w": jnp.ones(3)}, Dense(jnp.ones(2))], "x": 1})._repr_html_()
    assert page.count("<details") == page.count("</details>") == 4
    assert page.count(" open>") == 2
    assert "<b>[&#x27;&lt;b&gt;&#x27;]</b>: list of 2 <span" in page


def test_every_library_shows_its_statics() -> None:
    """Statics of classes that JAX, leafwise or a user registered are marked as such."""

    class Given:
        def __init__(self, x: Any, unit: str) -> None:
            self.x, self.unit = x, unit

    lw.register(Given, dynamic=["x"], static=["unit"])
    tree = [
        Given(1, "m"),
        collections.defaultdict(int, a=1),
        jax.tree_util.Partial(max, 1),
        collections.OrderedDict(z=1),
        Pair(1, 2),
        Noted(1, jnp.ones(3)),
    ]
    found = names(drawn(tree))
    for line in (
        "unit = 'm'",
        "default_factory = builtins.int",
        "func = <function max>",
        "[3]: OrderedDict of 1",
        "[4]: Pair",
        "(aux_data) = float32[3]",
    ):
        assert line in found
    assert sum(" = " in line for line in found) == 4


def test_hidden_child_and_hidden_value() -> None:
    """Neither the child that carries bits of statics is a row, nor a static with `repr=False`."""
    assert names(drawn(Many())) == ["Many", "x: float32[]", "n = 1"]


@pytest.mark.parametrize(
    ("leaf", "expected", "nbytes"),
    [
        (jnp.zeros((2, 3)), "float32[2,3]", 24),
        (1.5, "float32[]  Python float 1.5, weak type", 4),
        (True, "bool[]  Python bool True", 1),
        (np.zeros(3), "float64[3]  numpy", 24),
        (np.array([{}, 1]), "object[2]  ndarray, which JAX refuses", 16),
        (jax.ShapeDtypeStruct((4,), jnp.int8), "int8[4]  abstract", 4),
        (2**70, f"{2**70}  int, which JAX refuses", 0),
        ("relu", "'relu'  str, which JAX refuses", 0),
        (max, "<function max>  builtin_function_or_method, which JAX refuses", 0),
    ],
    ids=str,
)
def test_leaf(leaf: Any, expected: str, nbytes: int) -> None:
    """A leaf shows its dtype and shape, and what is out of the ordinary about it."""
    if getattr(leaf, "weak_type", False):
        expected += "  weak type"
    diagram = lw.show(leaf)
    assert str(diagram) == f"{expected}  {nbytes} B"
    assert (diagram.nbytes, diagram.leaves) == (nbytes, 1)


def test_deleted_array_has_no_bytes() -> None:
    """An array whose data is gone is said to be deleted."""
    array = jnp.ones(3)
    array.delete()
    assert drawn(array) == "float32[3]  deleted  0 B"


def test_abstract_values_and_tracers() -> None:
    """The result of `eval_shape` and the arguments of a traced function can be drawn."""
    model = Dense(jnp.zeros((2, 3)), b=1.0)
    shapes = drawn(jax.eval_shape(lambda tree: tree, model))
    assert "w: float32[2,3]  abstract " in shapes
    assert "b: float32[]  abstract, weak type " in shapes
    seen: list[str] = []

    @jax.jit
    def traced(tree: Dense) -> jax.Array:
        seen.append(drawn(tree))
        return tree.w

    with jax.check_tracer_leaks():
        traced(model)
    assert "w: float32[2,3]  traced " in seen[0]
    assert "act = 'relu'" in seen[0]
    jax.vmap(lambda tree: seen.append(drawn(tree)))(jnp.ones((5, 2)))
    assert seen[1] == "float32[2]  traced  8 B"


def test_placement() -> None:
    """Sharding and device are shown but for the first device, and bytes are the whole's."""
    one, other = jax.devices()[:2]
    mesh = jax.sharding.Mesh(np.array([one, other]), "x")
    ones, spread = jnp.ones(4), NamedSharding(mesh, PartitionSpec("x"))
    struct = jax.ShapeDtypeStruct((4,), jnp.float32, sharding=spread)
    placed = [jax.device_put(ones, place) for place in (one, other, spread)]
    lines = names_and_notes(drawn([ones, *placed, struct]))
    where = f"{PartitionSpec('x')} on a mesh (x: 2)"
    assert lines[1] == "[0]: float32[4]"
    assert lines[2] == "[1]: float32[4]"
    assert re.fullmatch(r"\[2\]: float32\[4\]  \S*1", lines[3])
    assert lines[4] == f"[3]: float32[4]  {where}"
    assert re.match(r"\[4\]: float32\[4(@x)?\]  abstract, ", lines[5])
    assert where in lines[5]


def test_nothing_is_read_or_moved() -> None:
    """No element of an array reaches Python: what is drawn may be huge, or on a device."""
    huge = np.broadcast_to(np.float32(0), (1 << 20, 1 << 20))
    tree = [huge, Dense(jnp.ones((100, 100)))]
    with jax.transfer_guard("disallow"):
        text = drawn(tree)
    assert "4 TiB" in text


def test_bytes_add_up() -> None:
    """The bytes of a branch are the sum of its leaves' `nbytes`, at any depth that is drawn."""
    rng = np.random.default_rng(0)
    tree: Any = {
        f"k{i}": [np.zeros(rng.integers(1, 50), np.int8) for _ in range(30)] for i in range(3)
    }
    expected = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
    for options in ({}, {"depth": 0}, {"depth": 1}, {"children": 2}):
        assert lw.show(tree, **options).nbytes == expected


def test_shared_array_counts_once() -> None:
    """An array in two places counts at the first; the second says where that is."""
    x, y = jnp.ones(100), np.ones(2)
    struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    tree = {"a": Dense(x), "b": [x, y, y], "c": [struct, struct]}
    diagram = lw.show(tree)
    assert diagram.nbytes == 400 + 16 + 24
    found = names_and_notes(str(diagram))
    assert "[0]: float32[100]  the same as ['a'].w" in found
    assert "[2]: float64[2]  numpy, the same as ['b'][1]" in found


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1025, "1.00 KiB"),
        (200_000, "195.3 KiB"),
        (5 << 20, "5 MiB"),
        (5000 << 50, "5,000 PiB"),
    ],
)
def test_size_without_a_point_is_exact(nbytes: int, text: str) -> None:
    """A size is in the unit that suits it; only an exact one has no point."""
    shown = drawn(jax.ShapeDtypeStruct((nbytes,), jnp.int8))
    assert shown.endswith(f"  {text}")


class Raises:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Lines:
    def __repr__(self) -> str:
        return "one\n  two\x1b[31m\u202e\x00\ud800"


def test_values_cannot_spoil_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repr that raises, has newlines, controls or no end takes one line, without controls."""
    tree = [
        *(Raises(), Lines(), "a\nb", "x" * 10**6, {"k\x1b[2J\n": 1}),
        *(Dense(jnp.ones(1), act="y" * 10**6), Noted(1, "")),
    ]
    wide = drawn(tree)
    monkeypatch.setenv("COLUMNS", "20")
    for text in (wide, drawn(tree)):
        assert len(text.splitlines()) == 14
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<Raises whose repr raises RuntimeError>" in wide
    assert all(len(line) <= 100 for line in wide.splitlines())


def test_terminal_decides_on_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """`print` takes the terminal's width."""
    diagram = lw.show({"x" * 300: 1})
    monkeypatch.setenv("COLUMNS", "50")
    assert {len(line) for line in str(diagram).splitlines()} == {50}
    monkeypatch.setenv("COLUMNS", "70")
    assert {len(line) for line in repr(diagram).splitlines()} == {70}


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "utf-8"])
def test_encoding_decides_on_letters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever standard output is encoded in, it can take the text."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        stream.write(str(lw.show({"日": [1.0] * 40})))
        stream.flush()
        text = raw.getvalue().decode(encoding)
    assert ("├─ " in text) == (encoding != "ascii")
    assert ("|- " in text) == (encoding == "ascii")
