"""What a digest has in it, and what is refused; equal programs have equal fingerprints.

Of other programs, the first operations that differ are named.
"""

import functools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Optional, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.sharding import PartitionSpec
from tests.kit.inside import (
    Compile,
    LoweredProgram,
    LoweredRecord,
    describe,
    first_differences,
    from_json,
    packed,
    read_program,
    to_json,
    unpacked,
)

import leafwise as lw

X = jnp.ones((2, 3))


@lw.pytree
class P:
    x: Any
    n: Any = lw.static_field(default=None)
    f: Any = lw.static_field(default=None, compare_by="content")


class Plain:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def scaled(self, x: Any) -> Any:
        return x * self.rate


class Scale(Plain):
    def __call__(self, x: Any) -> Any:
        return self.scaled(x)


def test_it_is_text_that_depends_on_no_data() -> None:
    """A digest is 64 digits, of what JAX traces with and not of the data."""
    found = lw.digest(P(X))
    assert len(found) == 64
    assert set(found) <= set("0123456789abcdef")
    assert found == lw.digest(P(X * 2)) == lw.digest(P(np.ones((2, 3), np.float32)))
    assert found == lw.digest(P(jax.ShapeDtypeStruct((2, 3), jnp.float32)))
    assert found == lw.digest(jax.eval_shape(lambda: P(X)))
    inside: list[str] = []
    jax.make_jaxpr(lambda p: inside.append(lw.digest(p)))(P(X))
    assert inside == [found]


def test_a_key_has_a_digest() -> None:
    """The key of an instance has its statics and its class, and no leaf."""

    def key(tree: Any) -> Any:
        return cast("Any", jax.tree.structure(tree)).node_data()[1]

    assert lw.digest(key(P(X, 1))) == lw.digest(key(P(1.0, 1)))
    assert lw.digest(key(P(X, 1))) != lw.digest(key(P(X, True)))

    class Other(P):
        pass

    assert lw.digest(key(lw.pytree(Other)(X, 1))) != lw.digest(key(P(X, 1)))


FUNCTIONS: list[Any] = [jnp.sin, jnp.cos, np.sin, int, type(None), Plain, PartitionSpec("a")]
TREEDEFS = [jax.tree.structure(each) for each in ({"a": 1}, {"b": 1}, P(1, 2), P(1, 3))]


def test_functions_treedefs_and_devices_have_digests() -> None:
    """All are distinct: a mesh counts by its axes and devices, and a sharding by its mesh."""
    auto, explicit = jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit
    meshes = [
        jax.make_mesh((2,), ("x",), axis_types=(kind,), devices=jax.devices()[start:][:2])
        for kind, start in ((auto, 0), (auto, 2), (explicit, 0))
    ]
    spec = PartitionSpec("x")
    values = [*FUNCTIONS, *TREEDEFS, *meshes, meshes[0].abstract_mesh, jax.devices()[0]]
    values += [jax.sharding.NamedSharding(mesh, spec) for mesh in meshes]
    assert len({lw.digest(P(X, value)) for value in values}) == len(values)
    # The sharding of an aval, too.
    explicit_x = jax.device_put(X, jax.sharding.NamedSharding(meshes[2], spec))
    assert lw.digest(P(explicit_x)) != lw.digest(P(X))


def define(source: str) -> Any:
    """Run the definition of a class ``C``, and return the class."""
    names = {"__name__": __name__, "lw": lw, "Any": Any, "Callable": Callable, "P": PartitionSpec}
    exec(source, names)  # noqa: S102  # classes of one name
    return names["C"]


def one_field() -> Any:
    return define("@__import__('dataclasses').dataclass(frozen=True)\nclass C: a: int")


def local_function(x: Any) -> Any:
    def inner() -> Any:
        return x

    return inner


class Local(NamedTuple):
    value: Any


REFUSED: dict[str, tuple[Any, str, str]] = {
    "in a partial": (functools.partial(str, Plain(1.0)), r"P.n.args\[0\]: Plain", "class Plain"),
    "in a tuple": ((1, Local(Plain(1.0))), r"P.n\[1\].value: Plain", "class Plain"),
    "in a closure": (local_function(Plain(1.0)), r"P.n.__closure__\['x'\]: Plain", "class Plain"),
    "a jitted lambda": (jax.jit(lambda x: x), "P.n: another process cannot import", "top level"),
    "a local class": (one_field(), "P.n: another process cannot import this class", "top"),
    "an object": (Plain(1.0), "P.n: Plain compares by identity", "class Plain"),
    "a method": (Plain(1.0).scaled, "P.n.__self__: Plain compares", "class Plain"),
    "a lock": (threading.Lock(), "P.n: lock compares by identity", "fields"),
}


@pytest.mark.message
@pytest.mark.parametrize("name", REFUSED)
def test_what_means_nothing_to_another_process_is_refused(name: str) -> None:
    """The message names the field and the way to the value, says why, and what to do."""
    value, where, fix = REFUSED[name]
    with pytest.raises(lw.errors.PortableError, match=f"^{where}") as caught:
        lw.digest(P(X, value))
    assert fix in caught.value.message.partition("fix: ")[2]


def test_all_are_named_at_once() -> None:
    """One error names every place of a tree."""
    with pytest.raises(lw.errors.PortableError) as caught:
        lw.digest({"a": P(X, one_field()), "b": [P(X, Plain(1.0)), Plain(2.0)]})
    paths = [line.partition(": ")[0] for line in caught.value.message.splitlines()]
    assert [each for each in paths if each.startswith("dict")] == [
        "dict['a'].n",
        "dict['b'][0].n",
        "dict['b'][1]",
    ]


def with_default(k: Any) -> Any:
    return lambda x, k=k: x


@pytest.mark.parametrize("make", [local_function, with_default])
@pytest.mark.parametrize("field", ["n", "f"])
def test_a_function_without_a_name_counts_by_what_it_holds(make: Any, field: str) -> None:
    """Its module, its qualified name, and what its closure and defaults hold; not its code."""
    found = lw.digest(P(X, **{field: make(1)}))
    assert found == lw.digest(P(X, **{field: make(1)}))
    assert found != lw.digest(P(X, **{field: make(True)}))
    assert lw.digest(P(X, **{field: lambda: 1})) == lw.digest(P(X, **{field: lambda: 2}))


def test_the_version_of_its_package_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a function without a name may be another one in another version."""
    activation = eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0)).final_activation
    found = lw.digest(P(X, activation))
    monkeypatch.setattr(eqx, "__version__", "0.0.1")
    assert found != lw.digest(P(X, activation))


def test_objects_by_content_count_by_attributes() -> None:
    """A callable counts by its attributes; in another field it is refused."""
    own = Plain(1.0)
    own.own = own  # type: ignore[attr-defined]
    for one, same, other in (
        (Scale(1.0), Scale(1.0), Scale(2.0)),
        (Plain(1.0).scaled, Plain(1.0).scaled, Plain(2.0).scaled),
        (own, own, Plain(1.0)),
    ):
        assert lw.digest(P(X, f=one)) == lw.digest(P(X, f=same)) != lw.digest(P(X, f=other))


def test_the_order_of_a_set_is_in_the_ordered_description_alone() -> None:
    """A digest has the members of a set in one order; `in_order` has them as a loop meets them."""
    some = frozenset({0, 8, 16})  # which collide: the first one in comes first
    other = frozenset([16, 8, 0])
    assert list(some) != list(other)
    assert lw.digest(P(X, some)) == lw.digest(P(X, other))
    assert describe(P(X, some), in_order=True) != describe(P(X, other), in_order=True)


def test_unions_are_equal_in_any_order() -> None:
    """As JAX takes them; before Python 3.14 the spellings are two classes."""
    assert lw.digest(P(X, int | None)) == lw.digest(P(X, Optional[int]))  # noqa: UP045
    assert lw.digest(P(X, dict[str, int | None])) == lw.digest(P(X, dict[str, Optional[int]]))  # noqa: UP045
    assert lw.digest(P(X, int | None)) == lw.digest(P(X, None | int))
    assert lw.digest(P(X, int | None)) != lw.digest(P(X, int | str))


W = np.ones((3, 3), np.float32)


def read(module: Any, options: Any = None) -> LoweredProgram:
    return read_program(Compile(module, None, None, None), options)


def parsed(text: str) -> LoweredProgram:
    with jax.jit(abs).lower(1.0).compiler_ir().context:
        return read(ir.Module.parse(text))


def lowered(fun: Callable[..., Any], *args: Any, **options: Any) -> LoweredProgram:
    return read(jax.jit(fun, **options).lower(*args).compiler_ir())


def scaled(x: Any, by: Any = 2.0) -> Any:
    return jnp.sin(x) * np.float32(by)


def line_of(text: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{__file__}:{1 + next(n for n, line in enumerate(lines) if text in line)}"


def test_names_and_places_do_not_count() -> None:
    """Names of the module and of inner functions, and lines of source, are no part of it."""

    def variant(x: Any) -> Any:
        return jnp.sin(x) * np.float32(2)

    assert lowered(scaled, W).fingerprint == lowered(variant, W).fingerprint

    def called(count: int) -> Callable[[Any], Any]:
        inner = lambda x: jnp.cos(x) + 1  # noqa: E731
        inner.__name__ = f"inner_{count}"
        return lambda x: jax.jit(inner)(x) * 2

    one, other = lowered(called(1), W), lowered(called(2), W)
    assert (one.functions, other.functions) == (("inner_1",), ("inner_2",))
    assert one.fingerprint == other.fingerprint
    assert not first_differences(one, other)


def add(x: Any) -> Any:
    return x + 1


def nan(payload: int) -> Any:
    return np.array([0x7FC00000 + payload], np.uint32).view(np.float32)[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: lowered(add, W), lambda: lowered(add, W, donate_argnums=0)),
        (lambda: lowered(scaled, W), lambda: lowered(scaled, W[:2])),
        (lambda: lowered(scaled, W), lambda: lowered(functools.partial(scaled, by=3.0), W)),
        (
            lambda: lowered(functools.partial(scaled, by=0.0), W),
            lambda: lowered(functools.partial(scaled, by=-0.0), W),
        ),
        (
            lambda: lowered(functools.partial(scaled, by=nan(0)), W),
            lambda: lowered(functools.partial(scaled, by=nan(1)), W),
        ),
        (lambda: lowered(lambda x: x - x.T, W), lambda: lowered(lambda x: x.T - x, W)),
    ],
    ids=["donated", "shape", "constant", "zero", "nan", "operands"],
)
def test_what_differs_counts(
    one: Callable[[], LoweredProgram], other: Callable[[], LoweredProgram]
) -> None:
    """What XLA would compile to something else has another fingerprint, and is found."""
    assert one().fingerprint == one().fingerprint != other().fingerprint
    assert first_differences(one(), other())
    assert not first_differences(one(), one())


def test_shardings_and_options_count() -> None:
    """A sharding is in the program; options are compared with it."""
    mesh = jax.sharding.AbstractMesh((3,), ("data",))
    spec = jax.sharding.PartitionSpec

    def sharded(to: Any) -> LoweredProgram:
        options = {"in_shardings": jax.sharding.NamedSharding(mesh, to)}
        made = jax.jit(add, **options).trace(W).lower(lowering_platforms=("cpu",))
        return read(made.compiler_ir())

    one, other = sharded(spec("data")), sharded(spec(None, "data"))
    assert one.fingerprint != other.fingerprint
    module = jax.jit(add).lower(W).compiler_ir()
    assert read(module, {"a": "1"}).fingerprint != read(module).fingerprint


def test_differences_name_the_operations_and_their_lines() -> None:
    """The first difference is the operation that differs, at its innermost line on each side."""

    def first(x: Any) -> Any:
        for each in (jnp.sin, jnp.cos, jnp.tanh):
            x = each(x)  # the first
        return x @ x

    def second(x: Any) -> Any:
        for each in (jnp.sin, jnp.tanh, jnp.cos):
            x = each(x)  # the second
        return x @ x

    found = first_differences(lowered(first, W), lowered(second, W))
    mine, its = map(str, found[0])
    assert "stablehlo.cosine" in mine
    assert "stablehlo.tanh" in its
    assert mine.endswith(Path(line_of("x = each(x)  # the first")).name)
    assert its.endswith(Path(line_of("x = each(x)  # the second")).name)


def test_a_constant_has_the_line_that_uses_it() -> None:
    """JAX places constants where the function was called: the line that reads them is named."""
    one, other = lowered(scaled, W), lowered(functools.partial(scaled, by=3.0), W)
    ((mine, its),) = first_differences(one, other)
    assert mine is not None
    assert its is not None
    assert "2.0" in mine.text
    assert "3.0" in its.text
    assert mine.source == its.source == line_of("return jnp.sin(x) * np.float32(by)")


@pytest.mark.parametrize(
    ("target", "texts", "is_equal"),
    [
        ("CustomSPMDPartitioning", ("140001", "140002"), True),
        ("other", ("140001", "140002"), False),
        ("other", ("<K at 0x7f0012ab>", "<K at 0x7f0012cd>"), True),
    ],
)
def test_addresses_do_not_count(target: str, texts: tuple[str, str], is_equal: bool) -> None:
    """JAX writes the address of a callback into the call of a custom partitioning."""
    text = """
module @jit_f {{
  func.func public @main(%0: tensor<f32>) -> tensor<f32> {{
    %1 = stablehlo.custom_call @{}(%0) {{backend_config = "{}"}} : (tensor<f32>) -> tensor<f32>
    return %1 : tensor<f32>
  }}
}}
"""
    one, other = (parsed(text.format(target, each)) for each in texts)
    assert (one.fingerprint == other.fingerprint) is is_equal


def test_regions_and_callbacks_are_read() -> None:
    """Every operation has a source; nothing of a location is left."""

    def step(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            return jax.nn.relu(carry) @ carry, carry.sum()

        x, sums = jax.lax.scan(body, x, None, length=13)
        x = jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x)
        jax.debug.print("loc({})", sums)
        return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((11, 11), np.float32), x)

    # Sizes that no other test has: JAX keeps its own inner functions with the lines that first
    # traced them.
    program = lowered(step, jnp.ones((11, 11)))
    assert all("loc(" not in each.text for each in program.operations)
    found = [each for each in program.operations[2:] if not each.text.startswith("  return")]
    assert all(each.source.startswith(__file__) for each in found)
    # The reduction in the loop has an operation inside that has no line of its own.
    (last,) = (each for each in found if "custom_call" in each.text and "%1#2" not in each.text)
    assert last.source == line_of("return jax.pure_callback(np.asarray")
    record = packed(program)
    assert unpacked(from_json(LoweredRecord, json.loads(json.dumps(to_json(record))))) == program
    assert record.fingerprint == program.fingerprint
