"""What a user reads who guesses the name of an argument."""

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = pytest.mark.message

OURS = str(Path(lw.__file__).parent)
ANY: Any = lw


def step(x: Any) -> Any:
    return x


GUESSES: dict[str, tuple[Callable[[], Any], str]] = {
    "no_retrace": (
        lambda: ANY.no_retrace(step),
        r"by name\n  fix: `of=step` for a function to watch",
    ),
    "budget": (lambda: ANY.budget(trace=1), r"'trace' \(did you mean 'traces'\?\)$"),
    "watch": (lambda: ANY.watch(step), r"^watch\(\) takes its arguments by name$"),
    "field": (lambda: ANY.field(validater=len), r"^field\(\) .* \(did you mean 'validator'\?\)$"),
    "static": (lambda: ANY.static_field(freez=1), r"'freez' \(did you mean 'freeze'\?\)$"),
    "pytree": (lambda: ANY.pytree(kwonly=True), r"'kwonly' \(did you mean 'kw_only'\?\)$"),
    "update": (lambda: ANY.update([1], w=2), r"one mapping\n  fix: put `'w': \.\.\.` into it$"),
    "show": (lambda: ANY.show([1], max_depth=2), r"'max_depth' \(did you mean 'depth'\?\)$"),
    "none near": (lambda: ANY.show([1], xyz=2), r"'xyz'; it takes tree, depth, children$"),
}


@pytest.mark.parametrize("name", GUESSES)
def test_the_right_name_is_named(name: str) -> None:
    """The error is a TypeError, as of any function, and has few frames of ours."""
    call, words = GUESSES[name]
    with pytest.raises(TypeError, match=words) as error:
        call()
    files = [frame.filename for frame in traceback.extract_tb(error.value.__traceback__)]
    assert sum(file.startswith(OURS) for file in files) <= 2
    assert error.value.__cause__ is None


def test_other_errors_stay() -> None:
    """An argument that is missing, and an error from inside, are as Python raises them."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'changes'"):
        ANY.update([1])
    with pytest.raises(TypeError, match=r"budget\(traces=\.\.\.\) takes a number"):
        ANY.budget(traces="1")
    assert [*inspect.signature(lw.show).parameters] == ["tree", "depth", "children"]


def test_counts_are_those_of_the_log() -> None:
    """A block that was not entered has none; the error says where they are."""
    for block in (lw.watch(), lw.budget(traces=1)):
        with pytest.raises(
            AttributeError, match=r"enter it, `with \.\.\. as log:`, .*`log\.traces`"
        ):
            block.traces  # type: ignore[attr-defined]  # noqa: B018
        with pytest.raises(AttributeError, match=r"has no attribute 'tracez'$"):
            block.tracez  # type: ignore[attr-defined]  # noqa: B018
    with lw.watch() as log:
        jnp.ones(3)
    assert log.traces == [event for event in log if event.kind == "trace"]
