"""JAX's messages on trees that do not agree: what they say, and what a note adds."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import leafwise as lw

from .mismatched import CALLS, compiled, many, one, two

pytestmark = pytest.mark.hazard


@lw.pytree
class Params:
    x: Any
    a: Any = lw.static_field(default=2)


@lw.pytree
class Twin:
    x: Any
    a: Any = lw.static_field(default=2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plain:
    x: Any
    a: Any = dataclasses.field(default=2, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PlainTwin:
    x: Any
    a: Any = dataclasses.field(default=2, metadata={"static": True})


PRINTED = {"custom_vjp fwd", "custom_jvp output"}
"""Where JAX prints the instances themselves, and so the fields of any dataclass."""


def raised(call: Callable[[], Any]) -> tuple[str, str]:
    """Return the message of what JAX raises, and the note that explains it."""
    with pytest.raises((TypeError, ValueError)) as caught, lw.debug.explain_errors():
        call()
    notes = [each for each in getattr(caught.value, "__notes__", ()) if "leafwise" in each]
    assert len(notes) <= 1
    return str(caught.value), "".join(notes)


@pytest.mark.parametrize("name", CALLS)
def test_static_mismatch_is_named(name: str) -> None:
    """JAX names both values and the field for leafwise alone; the note, for any dataclass."""
    message, note = raised(lambda: CALLS[name](Params))
    assert "Params(a=2" in message or "a=2)" in message
    assert "Params(a=3" in message or "a=3)" in message
    plain, plain_note = raised(lambda: CALLS[name](Plain))
    assert not ("a=2" in plain and "a=3" in plain) or name in PRINTED
    for text in (note, plain_note):
        assert ".a (static): 2 -> 3" in text or ".a (static): 3 -> 2" in text
        assert "\n  fix: " in text


def scan_with(after: Any, before: Any = None) -> Any:
    carry = Params(jnp.float32(1)) if before is None else before
    return lax.scan(lambda _, __: (after, None), carry, None, length=2)


def deep(dtype: Any) -> Any:
    """Return a tree of many leaves of which one has another dtype."""
    return {f"layer{i}": Params(jnp.ones(2, dtype if i == 17 else None)) for i in range(20)}


def branches(other: Any) -> Any:
    return lax.cond(jnp.array(True), lambda: Params(jnp.float32(1)), lambda: other)


def exported_for(*shapes: str) -> Callable[..., Any]:
    """Return an exported function of arrays, with a class around each."""
    args = [Params(jax.ShapeDtypeStruct(each, jnp.float32)) for each in symbolic(*shapes)]
    return jax.export.export(jax.jit(lambda *args: jax.tree.leaves(args)))(*args).call


def symbolic(*shapes: str) -> list[Any]:
    scope = jax.export.SymbolicScope()
    return [jax.export.symbolic_shape(each, scope=scope) for each in shapes]


EXPORTED = "exported for other arguments (exported for -> called with)\n  args"
HIDDEN = {
    "none": (lambda: scan_with(Params(None)), "_.x (structure): float32[] -> None"),
    "class": (lambda: branches(Twin(jnp.float32(1))), "out (class): Params -> Twin"),
    "dtype": (
        lambda: scan_with(Params(jnp.float16(1))),
        "_.x: dtype float32 -> float16\n  fix: convert where the body returns it, as "
        "`x.astype(...)` does, or start from `lw.stable_carry(step, carry)`",
    ),
    "deep": (
        lambda: scan_with(deep(jnp.float16), deep(jnp.float32)),
        "_['layer17'].x: dtype float32 -> float16",
    ),
    "key": (lambda: scan_with({"a": 1.0}, {"a": 1.0, "b": 2.0}), "_['b'] (structure): there -> "),
    "length": (
        lambda: lax.scan(lambda c, x: (c, x), 0, {"a": jnp.ones(2), "b": Params(jnp.ones((3, 1)))}),
        "xs['b'].x: shape (2, 1) -> (3, 1)",
    ),
    "cond_fun": (
        lambda: lax.while_loop(lambda p: p, lambda p: p, Params(jnp.float32(1))),
        "returned (structure): bool[] -> Params",
    ),
    "compiled": (
        lambda: (
            jax.jit(lambda p: p.x).lower(one(Params)).compile()(Params(jnp.ones(3, jnp.int32), 2))
        ),
        "args[0].x: shape () -> (3,)\n  args[0].x: dtype float32 -> int32",
    ),
    "exported shape": (
        lambda: exported_for("2", "2")(Params(jnp.ones(2)), Params(jnp.ones(3))),
        f"{EXPORTED}[1].x: shape (2,) -> (3,)\n  fix: export the function for these arguments",
    ),
    "exported dtype": (
        lambda: jax.jit(exported_for("b"))(Params(jnp.ones(2, jnp.int32))),
        f"{EXPORTED}[0].x: dtype float32 -> int32\n  fix: ",
    ),
    "exported rank": (
        lambda: exported_for("b")(Params(jnp.ones((2, 2)))),
        f"{EXPORTED}[0].x: shape (b,) -> (2, 2)\n  fix: ",
    ),
    "exported sizes": (
        lambda: exported_for("b, 2*b", "b")(Params(jnp.ones((2, 4))), Params(jnp.ones(3))),
        f"{EXPORTED}[1].x: shape (2,) -> (3,)\n  fix: ",
    ),
    "devices": (
        lambda: jax.device_put({"a": 1.0, "b": 2.0}, {"a": jax.devices()[0]}),
        "device['b'] (structure): (absent) -> there\n  fix: give one for all values; or `jax.tree",
    ),
    "map": (
        lambda: jax.tree.map(jnp.add, {"a": 1.0, "b": jnp.ones(2)}, {"a": 2.0, "b": jnp.ones(3)}),
        "tree['b']: shape (2,) -> (3,)",
    ),
    "map none": (
        lambda: jax.tree.map(lambda a, b: a + b, one(Params), Params(None)),
        "tree.x (structure): float32[] (jax array) -> None",
    ),
    "cotangent": (
        lambda: jax.vjp(lambda p: p, {"p": one(Params), "n": 1})[1](
            {"p": Params(jnp.ones(3)), "n": jax.dtypes.float0}
        ),
        "out['p'].x: shape () -> (3,)",
    ),
}


@pytest.mark.parametrize(("call", "expected"), HIDDEN.values(), ids=HIDDEN)
def test_hidden_cause_is_named(call: Callable[[], Any], expected: str) -> None:
    """The note names the place and both sides by path, where JAX's message shows whole trees."""
    _, note = raised(call)
    assert expected in note


def test_only_the_place_is_named() -> None:
    """Of a big tree the note has the one place, and no leaf that agrees."""
    _, note = raised(HIDDEN["deep"][0])
    assert note.count("layer") == 1


@pytest.mark.parametrize(
    ("cls", "twin", "silent"), [(Plain, PlainTwin, True), (Params, Twin, False)], ids=["jax", "lw"]
)
def test_other_class_of_one_shape(cls: Any, twin: Any, silent: bool) -> None:
    """JAX takes one registered dataclass for another, and raises nothing to explain."""

    def call() -> Any:
        return lax.cond(jnp.array(False), lambda: one(cls), lambda: one(twin))

    if silent:
        with lw.debug.explain_errors():
            assert type(call()) is cls  # though the branch that ran made a twin
    else:
        assert f"(class): {cls.__name__} -> {twin.__name__}" in raised(call)[1]
    assert [str(each) for each in lw.diff(one(cls), one(twin))] == [
        f"the tree (class): {cls.__name__} -> {twin.__name__}"
    ]


def test_weak_types_raise_nothing() -> None:
    """JAX promotes a weakly typed carry silently, to another dtype too: there is no error."""
    with lw.debug.explain_errors():
        carry, _ = lax.scan(lambda p, _: (Params(p.x * 1.5), None), Params(1), None, length=2)
        assert lax.cond(jnp.array(True), lambda: 1.0, lambda: jnp.float32(1)) == 1
    assert jnp.issubdtype(carry.x.dtype, jnp.floating)
    assert [each.kind for each in lw.diff(Params(1), carry)] == [lw.types.ReasonKind.DTYPE]


def test_what_jax_does_not_check() -> None:
    """Where JAX compares no structures, the statics of what a function returns are lost."""
    summed = lax.associative_scan(lambda a, b: Params(a.x + b.x, 3), many(Params))
    assert summed.a == 2
    with pytest.raises(lw.errors.StructureMismatchError, match=r"a \(static\): 2 -> 3"):
        lw.assert_same_structure(summed, two(Params))


def test_compiled_takes_another_weak_type() -> None:
    """A weak type is no mismatch to a compiled program, and none is told with others."""
    program = jax.jit(lambda p, q: p.x + q.x).lower(one(Params), one(Params)).compile()
    assert program(Params(1.0), one(Params)) == 2
    _, note = raised(lambda: program(Params(1.0), Params(jnp.ones(2))))
    assert "args[1].x: shape" in note
    assert "args[0]" not in note
    assert "a=3" in raised(lambda: compiled(Params))[0]
