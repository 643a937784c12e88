"""`lw.debug.explain_errors` adds a note, and leaves the exception as it is otherwise."""

import contextlib
import gc
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.kit.inside import count_events, frames
from tests.kit.specimens import Slotted

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
MODES = ["off", "remove_frames", "auto"]


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


@pytest.mark.parametrize("mode", MODES, indirect=True)
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
