"""`lw.debug.explain_errors` adds a note, and leaves the exception as it is otherwise.

On trees that do not agree the note says what the messages of JAX do not.
"""

import contextlib
import gc
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from tests.kit.inside import count_events, frames
from tests.kit.specimens import Plain, Slotted

import leafwise as lw

NOTE = "leafwise: "


def wrong(x: Any = 1.0) -> Any:
    return jax.jvp(lambda p: p.x, (Slotted(x),), (Slotted(x, 3),))


def inside_jit() -> Any:
    return jax.jit(lambda x: wrong(x))(1.0)  # a frame between two of JAX's


def raising(error: BaseException) -> Any:
    raise error


def from_cause() -> Any:
    try:
        raising(KeyError("first"))
    except KeyError as error:
        raise OSError(2) from error


def through_map() -> Any:
    return jax.tree.map(lambda x: jax.jit(wrong)(x), [1.0])


CALLS = {"jvp": wrong, "jit": inside_jit, "map": through_map, "cause": from_cause}


def plainly(call: Callable[[], Any]) -> BaseException:
    """Return what a call raises, by the same code without a block."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001
        return error
    pytest.fail("nothing was raised")


def explained(call: Callable[[], Any]) -> BaseException:
    """Return what a call raises in a block."""
    try:
        with lw.debug.explain_errors():
            call()
    except BaseException as error:  # noqa: BLE001
        return error
    pytest.fail("nothing was raised")


def notes(error: BaseException) -> list[str]:
    """Return what stands below an error."""
    return list(getattr(error, "__notes__", ()))


def shape_of(error: BaseException | None) -> Any:
    """Return all that can be seen of an error but its notes."""
    if error is None:
        return None
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    frames = [name for name in frames if name not in {"plainly", "explained"}]
    chain = shape_of(error.__cause__), shape_of(error.__context__), error.__suppress_context__
    text = "" if type(error).__name__ == "UnfilteredStackTrace" else str(error)
    return type(error), text, frames, chain


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let JAX treat tracebacks in a way, and see that the block leaves it so."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", request.param)
    yield
    assert jax.config.jax_traceback_filtering == request.param
    jax.config.update("jax_traceback_filtering", before)


@pytest.mark.parametrize("mode", ["off", "remove_frames", "auto"], indirect=True)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_only_a_note_is_added(mode: None, call: Callable[[], Any]) -> None:
    """Type, message, traceback, cause and context are those without the block, in every mode."""
    plain, noted = plainly(call), explained(call)
    assert shape_of(noted) == shape_of(plain)
    added = notes(noted)[len(notes(plain)) :]
    assert notes(noted)[: len(notes(plain))] == notes(plain)
    assert len(added) == (call is not from_cause)
    for note in added:
        assert note.startswith(NOTE)
        assert "primals[0].n (static): 2 -> 3" in note


def test_nothing_raised() -> None:
    """Without an error nothing is done: nothing is retraced, and the setting is as it was."""
    double = jax.jit(lambda x: x * 2)
    double(1.0)
    before = jax.config.jax_traceback_filtering
    with count_events() as counts, lw.debug.explain_errors() as block:
        assert block is None
        double(2.0)
    assert jax.config.jax_traceback_filtering == before
    assert (counts.traces, counts.compiles) == (0, 0)


def test_nested_blocks_say_it_once() -> None:
    """Of nested blocks one adds the note, and JAX's own note is there once as well."""

    def twice() -> None:
        with lw.debug.explain_errors():
            wrong()

    noted = explained(twice)
    assert sum(note.startswith(NOTE) for note in notes(noted)) == 1
    assert sum("removed its internal frames" in note for note in notes(noted)) == 1
    assert len(notes(noted)) == 2


def test_decorator() -> None:
    """A block decorates functions, again and again."""
    guarded = lw.debug.explain_errors()(wrong)
    for _ in range(2):
        assert "primals[0].n (static)" in "".join(notes(plainly(guarded)))


@pytest.mark.parametrize("known", [True, False])
def test_without_the_frames_of_jax(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where JAX does not show them nothing is said, and nothing is changed."""
    if not known:
        monkeypatch.setattr(frames, "inside", lambda _: None)
    plain, noted = plainly(wrong), explained(wrong)
    assert shape_of(noted) == shape_of(plain)
    assert len(notes(noted)) - len(notes(plain)) == known


def scan_twice(block: Callable[[], Any]) -> list[bool]:
    """Fail to scan over two states in one function, and return which of them are alive then."""
    one, other = jnp.ones(1000), jnp.zeros(1000)
    states = [weakref.ref(state) for state in (one, other)]
    for state in (other, one):
        with pytest.raises(TypeError, match="carry"), block():
            jax.lax.scan(lambda c, x: (c[:-1], x), state, jnp.arange(3))
    del one, other, state
    gc.collect()
    return [state() is not None for state in states]


def test_what_failed_is_freed_with_its_error() -> None:
    """Of the variables around a call, the function that goes on holds its own only."""
    assert scan_twice(lw.debug.explain_errors) == scan_twice(contextlib.nullcontext) == [False] * 2


def test_locals_stay() -> None:
    """The dict that a function got from `locals()` before keeps its items."""
    x = jnp.ones(3)
    variables = locals()
    with pytest.raises(TypeError, match="carry"), lw.debug.explain_errors():
        jax.lax.scan(lambda c, x: (c[:-1], x), x, jnp.arange(3))
    assert variables["x"] is x


@lw.pytree
class Params:
    w: Any
    n: Any = lw.static_field(default=2)


@lw.pytree
class Twin:
    w: Any
    n: Any = lw.static_field(default=2)


def one(cls: Any) -> Any:
    """Return an instance with the static 2."""
    return cls(jnp.float32(1), 2)


def two(cls: Any) -> Any:
    """Return an instance that differs by the static 3."""
    return cls(jnp.float32(1), 3)


def bwd(cls: Any, wrong: Callable[[Any], Any] = lambda g: g) -> Any:
    @jax.custom_vjp
    def double(p: Any) -> Any:
        return p.w * 2

    double.defvjp(lambda p: (p.w * 2, None), lambda _, g: (cls(wrong(g), 3),))
    return jax.grad(double)(one(cls))


def jvp_rule(cls: Any) -> Any:
    @jax.custom_jvp
    def double(p: Any) -> Any:
        return cls(p.w * 2, 2)

    double.defjvp(lambda ps, ts: (cls(ps[0].w, 2), cls(ts[0].w, 3)))
    return jax.jvp(double, (one(cls),), (one(cls),))


MISMATCHES: dict[str, Callable[[Any], Any]] = {
    "custom_vjp bwd": bwd,
    "custom_jvp": jvp_rule,
    "jvp": lambda cls: jax.jvp(lambda p: p.w, (one(cls),), (two(cls),)),
    "linearize": lambda cls: jax.linearize(lambda p: p, one(cls))[1](two(cls)),
    "linear_transpose": lambda cls: jax.linear_transpose(lambda p: p, one(cls))(two(cls)),
}
"""Calls that JAX refuses, by the construct."""


def raised(call: Callable[[], Any]) -> tuple[str, str]:
    """Return the message of what JAX raises, and the note that explains it."""
    with pytest.raises((TypeError, ValueError)) as caught, lw.debug.explain_errors():
        call()
    notes = [each for each in getattr(caught.value, "__notes__", ()) if "leafwise" in each]
    assert len(notes) <= 1
    return str(caught.value), "".join(notes)


@pytest.mark.parametrize("name", MISMATCHES)
@pytest.mark.hazard
def test_static_mismatch_is_named(name: str) -> None:
    """JAX prints treedefs, with names for leafwise alone; the note names fields of any class."""
    message, note = raised(lambda: MISMATCHES[name](Params))
    assert "PyTreeDef(" in message
    assert "Params(n=2)" in message
    assert "Params(n=3)" in message
    plain, plain_note = raised(lambda: MISMATCHES[name](Plain))
    assert "n=2" not in plain
    for text in (note, plain_note):
        assert ".n (static): 2 -> 3" in text
        assert "\n  fix: " in text


def tangent(before: Any, after: Any) -> Callable[[], Any]:
    return lambda: jax.jvp(lambda p: p, (before,), (after,))


def deep(dtype: Any) -> Any:
    """Return a tree of many leaves of which one has another dtype."""
    return {f"layer{i}": Params(jnp.ones(2, dtype if i == 17 else None)) for i in range(20)}


HIDDEN = {
    "none": (tangent(one(Params), Params(None)), "[0].w (structure): float32[] -> None"),
    "class": (tangent(one(Params), one(Twin)), "primals[0] (class): Params -> Twin"),
    "dtype": (tangent(deep(None), deep("float16")), "['layer17'].w: dtype float32 -> float16"),
    "key": (
        tangent({"a": 1.0}, {"a": 1.0, "b": 2.0}),
        "primals[0]['b'] (structure): (absent) -> (present)",
    ),
    "shape": (lambda: bwd(Params, lambda g: jnp.stack([g] * 3)), "args[0].w: shape () -> (3,)"),
}


@pytest.mark.parametrize(("call", "expected"), HIDDEN.values(), ids=HIDDEN)
@pytest.mark.hazard
def test_hidden_cause_is_named(call: Callable[[], Any], expected: str) -> None:
    """The note names the place and both sides by path, where JAX's message shows whole trees."""
    _, note = raised(call)
    assert expected in note


@pytest.mark.hazard
def test_none_for_a_cotangent_is_no_difference() -> None:
    """A backward rule may return None for zeros: only what JAX refuses is named."""
    _, note = raised(lambda: bwd(Params, lambda _: None))
    assert "args[0].n (static): 2 -> 3" in note
    assert "None" not in note


@pytest.mark.hazard
def test_what_jax_says_itself() -> None:
    """Where JAX's message has the path, there is no note."""
    message, note = raised(lambda: lax.cond(True, lambda: one(Params), lambda: two(Params)))
    assert "Params(n=3)" in message
    assert not note


@pytest.mark.hazard
def test_what_jax_does_not_check() -> None:
    """Where JAX compares no structures, the statics of what a function returns are lost."""
    many = Params(jnp.ones(2))
    summed = lax.associative_scan(lambda a, b: Params(a.w + b.w, 3), many)
    assert summed.n == 2
    with pytest.raises(lw.errors.StructureMismatchError, match=r"n \(static\): 2 -> 3"):
        lw.assert_same_structure(summed, two(Params))
