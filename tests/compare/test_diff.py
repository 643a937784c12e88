"""`lw.diff` names every difference between two trees by path, and nothing else."""

import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.specimens import Plain

import leafwise as lw
from leafwise.types import ReasonKind


@lw.pytree
class Opt:
    lr: Any
    n: Any = lw.static_field(default=1)


@lw.pytree
class Params:
    w: Any
    opt: Any = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class B:
    w: Any
    n: Any = dataclasses.field(default=1, metadata={"static": True})


class Own:
    """A node whose data has no name."""

    def __init__(self, x: Any, data: Any) -> None:
        self.x = x
        self.data = data


jax.tree_util.register_pytree_node(Own, lambda o: ((o.x,), o.data), lambda d, c: Own(*c, d))


class Listed:
    """A node whose data lists its attributes, after their names."""

    def __init__(self, x: Any, **attributes: Any) -> None:
        self.x = x
        vars(self).update(attributes)

    def flatten(self) -> Any:
        rest = {name: value for name, value in vars(self).items() if name != "x"}
        return (self.x,), (tuple(rest), tuple(rest.values()))


jax.tree_util.register_pytree_node(Listed, Listed.flatten, lambda _, c: Listed(*c))
LISTS = Listed(1.0, n=1, _cache=0), Listed(1.0, n=True, _cache=0)


def of_a_factory() -> Any:
    @lw.pytree
    class Local:
        x: Any

    return Local(1.0)


F3 = jax.ShapeDtypeStruct((3,), jnp.float32)
PAIRS: dict[str, tuple[Any, Any, list[str]]] = {
    "same": (Params(jnp.ones(3), Opt(0.1)), Params(jnp.zeros(3), Opt(0.2)), []),
    "type of a static": (Opt(1.0, 1), Opt(1.0, True), ["n (static): 1 -> True"]),
    "deep static": (Plain(1.0, ((1, 2),)), Plain(1.0, ((1.0, 2),)), ["n (static): ((1, 2),) -> "]),
    "class": (Params(1.0, Opt(1.0)), Params(1.0, Plain(1.0)), ["opt (class): Opt -> Plain"]),
    "plain class": (Plain(1.0), B(1.0), ["the tree (class): Plain -> B"]),
    "class and more": (
        *({"k": Plain(1.0, 2)}, {"k": B(jnp.ones(2), 2)}),
        [
            "['k'] (class): Plain -> B",
            "['k'].w: shape () -> (2,)",
            "['k'].w: weak type float32[] (Python scalar, weakly typed) -> float32[2] (jax array)",
        ],
    ),
    "classes of a factory": (
        *(of_a_factory(), of_a_factory()),
        [f"the tree (class): {__name__}.of_a_factory.<locals>.Local -> another {__name__}."],
    ),
    "aux_data": (Own(1.0, (1,)), Own(1.0, (True,)), ["the tree (static): (1,) -> (True,)"]),
    "listed": (
        *([Listed(1.0, n=1, m=2, _cache=3)], [Listed(2, n=4, m=2, _cache=5)]),
        ["[0].n (static): 1 -> 4", "[0].x: dtype float32 -> int32"],
    ),
    "listed and absent": (
        *(Listed(None, n="a"), Listed(1.0, n="a", m=3)),
        ["m (static): (absent) -> 3", "x (structure): None -> float32[]"],
    ),
    "listed by type": (*LISTS, ["n (static): 1 -> True"]),
    "no attributes": (
        *(Own(1.0, (("x", 1),)), Own(1.0, (("x", 2),))),
        ["the tree (static): (('x', 1),) -> (('x', 2),)"],
    ),
    "None": (Params(jnp.ones(3)), Params(None), ["w (structure): float32[3] (jax array) -> None"]),
    "leaf and node": (
        *(Params(F3, 1.0), Params(F3, Opt(1.0))),
        ["opt (structure): float32[] (Python scalar, weakly typed) -> Opt"],
    ),
    "keys": (
        *({"a": 1.0, "b": 2.0}, {"b": 2, "c": 1.0}),
        [
            "['a'] (structure): (present) -> (absent)",
            "['c'] (structure): (absent) -> (present)",
            "['b']: dtype float32 -> int32",
        ],
    ),
    "length": ([1.0, 2.0], [1.0], ["the tree (structure): 2 elements -> 1 element"]),
    "shape and dtype": (
        *(Params(F3), Params(np.ones((2, 2), np.int8))),
        ["w: shape (3,) -> (2, 2)", "w: dtype float32 -> int8"],
    ),
    "weak type": (
        *(1.0, np.float32(1)),
        ["the tree: weak type float32[] (Python scalar, weakly typed) -> float32[] (numpy"],
    ),
    "text": ({"f": "a"}, {"f": jnp.ones(3)}, ["['f']: kind 'a' (str) -> float32[3] (jax array)"]),
    "keys of random": (jax.random.key(0), jax.random.key(1), []),
    "implementations": (
        *(jax.random.key(0), jax.random.key(0, impl="rbg")),
        ["the tree: dtype key<fry> -> key<rbg>"],
    ),
}


@pytest.mark.parametrize(("a", "b", "expected"), PAIRS.values(), ids=PAIRS)
def test_differences(a: Any, b: Any, expected: list[str]) -> None:
    """All differences are named, each by its path and with both sides, and no others."""
    found = lw.diff(a, b)
    assert len(found) == len(expected), found
    for reason, line in zip(found, expected, strict=True):
        assert str(reason).startswith(line)
    assert bool(found) is bool(expected)
    assert str(found) == repr(found) == ("\n".join(map(str, found)) or "no differences")
    back = lw.diff(b, a)
    assert sorted(each.path for each in back) == sorted(each.path for each in found)
    assert not lw.diff(a, a)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)  # noqa: S301  # our own


NAN = np.array(0x7FC00001, np.uint32).view(np.float32)
VALUES: dict[str, tuple[Any, Any, str]] = {
    "elements": (
        *(jnp.ones((2, 3)), jnp.ones((2, 3)).at[0, 2].set(3.5).at[1, 1].set(0)),
        "1.0 at [0, 2] -> 3.5 (2 of 6 elements differ, by 2.5 at most)",
    ),
    "signs of zero": (np.array([0.0]), np.array([-0.0]), "0.0 at [0] -> -0.0 (1 of 1"),
    "a distance beside nan": (
        *(np.array([np.nan, 1.0]), np.array([0.0, 3.0])),
        "nan at [0] -> 0.0 (2 of 2 elements differ, by 2 at most)",
    ),
    "nan": (np.float32([1, np.nan]), np.array([1, NAN]), ""),
    "python and array": (0.1, jnp.asarray(0.1), ""),
    "complex zeros": (np.array(0j), np.array(complex(0, -0.0)), "0j -> -0j"),
    "bool": (np.array([True]), np.array([False]), "True at [0] -> False (1 of 1 elements differ)"),
    "key": (jax.random.key(0), jax.random.key(1), "0 at [1] -> 1 (1 of 2"),
    "texts": (["a", 1.0, len], ["a", 1.0, len], ""),
    "arrays of texts": (np.array(["a"]), np.array(["a", "b"]), "<U1[1] (numpy.ndarray) -> <U1[2]"),
    "objects": (
        *(np.array([None, 1], object), np.array([None, 1.0], object)),
        "object[2] (numpy.ndarray) -> object[2] (numpy.ndarray), which is not equal",
    ),
    "abstract": (F3, jnp.ones(3), "float32[3] -> float32[3] (jax array)"),
    "both abstract": (F3, F3.update(), ""),
}


@pytest.mark.parametrize(("a", "b", "expected"), VALUES.values(), ids=VALUES)
def test_values(a: Any, b: Any, expected: str) -> None:
    """Data is compared bit by bit but for NaN, and the words say where it first differs."""
    found = [each for each in lw.diff({"k": a}, {"k": b}, values=True) if each.path == "['k']"]
    values = [str(each) for each in found if each.kind is ReasonKind.VALUE]
    assert len(values) == bool(expected), found
    assert "".join(values).startswith(f"['k']: value {expected}" if expected else "")
    assert ReasonKind.VALUE not in {each.kind for each in lw.diff({"k": a}, {"k": b})}


def test_tolerance() -> None:
    """Within a tolerance numbers are equal, as `numpy.isclose` says; the others are counted."""
    a, b = np.array([1.0, 2.0, np.nan]), np.array([1.0 + 1e-7, 2.1, np.nan])
    assert "2.0 at [1] -> 2.1 (1 of 3" in str(lw.diff(a, b, values=True, rtol=1e-6))
    assert not lw.diff(a, b, values=True, atol=0.2)
    for wrong in ({"rtol": 1e-6}, {"atol": -1.0, "values": True}, {"rtol": np.nan, "values": True}):
        with pytest.raises(ValueError, match=r"(?s)negative, and need values.*fix: lw.diff"):
            lw.diff(a, b, **wrong)


def test_tracers() -> None:
    """Tracers have shapes and dtypes, no values: those are refused, unless one tracer is both."""

    def inside(x: Any) -> Any:
        assert not lw.diff(Params(x), Params(jnp.ones(3)))
        assert not lw.diff(Params(x), Params(x), values=True)
        assert str(lw.diff(Params(x), Params(jnp.ones(2)))).startswith("w: shape (3,) -> (2,)")
        with pytest.raises(lw.errors.TreeError, match=r"(?s)w: the value of a tracer.*fix:"):
            lw.diff(Params(x), Params(jnp.ones(3)), values=True)
        return x

    jax.jit(inside)(jnp.ones(3))
    jax.vmap(inside)(jnp.ones((2, 3)))
    jax.grad(lambda x: inside(x).sum())(jnp.ones(3))


def test_deleted_arrays_have_no_value() -> None:
    """An array that was donated still has its shape, and no data to compare."""
    gone = jnp.ones(3)
    gone.delete()
    assert not lw.diff(gone, jnp.ones(3))
    assert "deleted or donated" in str(lw.diff(gone, jnp.ones(3), values=True))


def test_static_whose_comparison_raises() -> None:
    """A static that JAX cannot compare is a difference of its own."""
    found = lw.diff(Plain(1.0, np.ones(2)), Plain(1.0, np.ones(2)))
    assert [(each.path, each.kind) for each in found] == [("n", ReasonKind.COMPARISON)]


def test_paths_lead_into_the_tree() -> None:
    """The path of a difference is one that `lw.update` takes."""
    a, b = Params({"k": [1.0, 2.0]}, Opt(0.1)), Params({"k": [1.0, 2]}, Opt(1, 7))
    paths = {
        each.path: 1.0 if "k" in each.path or "lr" in each.path else 1 for each in lw.diff(a, b)
    }
    assert set(paths) == {"w['k'][1]", "opt.lr", "opt.n"}
    assert not lw.diff(lw.update(b, paths), a)


def test_assert_same_structure() -> None:
    """It passes where classes, statics and structure agree, and names all places where not."""
    a, b = Params(jnp.ones(3), Opt(0.1)), Params(jnp.ones(4, jnp.int8), Opt(jnp.float32(1)))
    lw.assert_same_structure(a, b)
    for asked, path in (
        ("shapes", "w: shape"),
        ("dtypes", "w: dtype"),
        ("weak_types", "opt.lr: w"),
    ):
        with pytest.raises(lw.errors.StructureMismatchError) as caught:
            lw.assert_same_structure(a, b, **{asked: True})
        assert [str(each)[: len(path)] for each in caught.value.differences] == [path]
    with pytest.raises(AssertionError) as wrong:
        lw.assert_same_structure(a, Params(None, Opt(0.1, True)), shapes=True)
    assert isinstance(wrong.value, lw.errors.TreeError)
    assert wrong.value.message == (
        "Params: the trees differ in 2 places (first -> second)\n"
        "  w (structure): float32[3] (jax array) -> None\n"
        "  opt.n (static): 1 -> True\n"
        "  fix: make the second like the first, as lw.replace(first, ...) does"
    )
    again = pickle.loads(pickle.dumps(wrong.value))  # noqa: S301  # our own
    assert (str(again), str(again.differences)) == (str(wrong.value), str(wrong.value.differences))
