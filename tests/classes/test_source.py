"""Generated code can be read."""

import traceback
from typing import Any

import jax
import pytest

import leafwise as lw


@lw.pytree
class Params:
    w: Any
    depth: lw.Static[int] = 2


def test_source_of_shows_all_functions() -> None:
    """The source of each generated function is there, one statement a line, and compiles."""
    source = lw.debug.source_of(Params)
    compile(source, "source", "exec")
    for name in ("__init__", "flatten", "flatten_with_keys", "unflatten"):
        assert f"def {name}(" in source
    assert ";" not in source


@pytest.mark.parametrize("other", [int, 1, None, type("Sub", (Params,), {})])
def test_source_of_another_class(other: Any) -> None:
    """Only a decorated class has generated code."""
    with pytest.raises(TypeError, match=r"decorated with @lw\.pytree, got"):
        lw.debug.source_of(other)


def test_tracebacks_show_generated_lines() -> None:
    """An error goes from the user's line to the generated constructor, and shows its code."""
    try:
        Params(1.0, depth=[1])  # type: ignore[arg-type]
    except lw.errors.StaticFieldError as error:
        text = "".join(traceback.format_exception(error))
    assert "raise _lw_error.without_own_frames()" in text
    assert "_lw_found = _lw_key_of(_lw_table, (depth,))" in lw.debug.source_of(Params)
    assert jax.tree.leaves(Params(1.0)) == [1.0]
