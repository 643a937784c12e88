"""Errors go from the user's line to the error, and the generated code between can be read."""

import importlib.util
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from tests.kit.inside import user_frame

import leafwise as lw

OURS = str(Path(lw.__file__).parent)


@lw.pytree
class Generated:
    x: Any
    n: lw.Static[object] = 1
    m: int = lw.static_field(default=1, validator=lambda m: m > 0)


@lw.pytree
class Written:
    x: Any
    n: lw.Static[object]

    def __init__(self, x: Any, n: object) -> None:
        self.x, self.n = x, n


@lw.pytree
class Later:
    x: Any
    n: lw.Static[object]

    def __post_init__(self) -> None:
        """Do nothing."""


def refuse(value: Any) -> Any:
    msg = "mine"
    raise ValueError(msg + str(value))


@lw.pytree
class Converted:
    x: Any = lw.field(converter=refuse)


def assign(params: Any) -> None:
    params.x = 2


CASES: dict[str, Callable[[], Any]] = {
    "generated": lambda: Generated(1, [1]),
    "check": lambda: Generated(1, 1, 0),
    "written": lambda: Written(1, [1]),
    "post_init": lambda: Later(1, [1]),
    "tracer": lambda: jax.make_jaxpr(lambda v: Generated(1, v))(1.0),
    "assigned": lambda: assign(Generated(1)),
    "replace": lambda: lw.replace(Generated(1), n=[1]),
    "class": lambda: lw.pytree(type("Bad", (), {"__annotations__": {"a": str}})),
}


def raised(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except lw.LeafwiseError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("name", CASES)
def test_frames(name: str) -> None:
    """In plain Python one frame of ours is behind the user's, and pytest hides it."""
    found = list(traceback.walk_tb(raised(CASES[name]).__traceback__))
    files = [frame.f_code.co_filename for frame, _ in found]
    own = [at for at, each in enumerate(files) if each.startswith((OURS, "<leafwise "))]
    assert own == [*range(len(found) - len(own), len(found))], "ours are the last ones"
    assert len(own) <= 1
    assert all(found[at][0].f_locals.get("__tracebackhide__") for at in own)
    assert user_frame(found[-len(own) - 1][0]) is not None


def test_the_users_own_code_stays() -> None:
    """What a converter raises keeps the frames of the converter."""
    with pytest.raises(ValueError, match="mine1") as error:
        Converted(1)
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.value.__traceback__)]
    assert names[-1] == "refuse"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="needs IPython")
def test_in_jupyter(capsys: pytest.CaptureFixture[str]) -> None:
    """IPython shows the line of the cell, the generated constructor and the message."""
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell(colors="nocolor")
    shell.run_cell(
        textwrap.dedent("""
            import leafwise as lw
            @lw.pytree
            class P:
                x: object
                n: lw.Static[object] = 1
            """)
    )
    capsys.readouterr()
    shell.run_cell("P(1, [1])")
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert "P.n: a list can change in place" in text
    assert "P(1, [1])" in text
    assert "leafwise/_" not in text
    assert text.count("-> ") == 2, "the line of the cell, and the last frame"


def test_source_of_shows_all_functions() -> None:
    """The source of each generated function is there, one statement a line, and compiles."""
    source = lw.debug.source_of(Generated)
    compile(source, "source", "exec")
    for name in ("__init__", "flatten", "flatten_with_keys", "unflatten"):
        assert f"def {name}(" in source
    assert ";" not in source


@pytest.mark.parametrize("other", [int, 1, None, type("Sub", (Generated,), {})])
def test_source_of_another_class(other: Any) -> None:
    """Only a decorated class has generated code."""
    with pytest.raises(TypeError, match=r"decorated with @lw\.pytree, got"):
        lw.debug.source_of(other)


def test_tracebacks_show_generated_lines() -> None:
    """An error goes from the user's line to the generated constructor, and shows its code."""
    try:
        Generated(1.0, [1])
    except lw.errors.StaticFieldError as error:
        text = "".join(traceback.format_exception(error))
    assert "raise _lw_error.without_own_frames()" in text
    assert "_lw_found = _lw_key_of(_lw_table, (n, m))" in lw.debug.source_of(Generated)
