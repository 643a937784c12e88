"""What `leafwise explain --try` counts and says, with all runs of the script in this process."""

import argparse
import contextlib
import io
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from rich.console import Console
from tests.kit.inside import Script, print_report, trial

pytestmark = pytest.mark.slow

Tried: TypeAlias = Callable[..., tuple[Any, str]]


@pytest.fixture
def tried(reported: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """Try the fixes of a script; return the report, and its text."""

    def run(script: Script, options: dict[str, Any], **streams: Any) -> tuple[Any, int]:
        file = Path(script.name)
        text = options.get("changed", {}).get(str(file), file.read_text())
        lines = text.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, str(file), (len(text), None, lines, str(file)))
        printed, errors = io.StringIO(), list[Exception]()

        def program() -> None:
            try:
                exec(compile(text, str(file), "exec"), {"__name__": "__main__"})  # noqa: S102
            except Exception as error:  # noqa: BLE001  # of an edit
                errors.append(error)

        with contextlib.redirect_stdout(printed):
            report = reported(program)
        streams["stdout"].write(printed.getvalue().encode())
        report.seconds, report.exit = 1.0, len(errors)
        return report, report.exit

    monkeypatch.setattr(trial, "run", run)

    def try_fixes(text: str, **options: Any) -> tuple[Any, str]:
        file = tmp_path / f"script_{len(text)}.py"
        file.write_text(text)
        wanted = {"max_tries": 5, "diff": False, "write": False, "force": True}
        namespace = argparse.Namespace(**(wanted | options))
        report, _ = trial.run_and_try(Script(str(file), [], is_module=False), {}, namespace)
        shown = io.StringIO()
        print_report(report, Console(file=shown, width=400))
        return report, shown.getvalue()

    return try_fixes


SOLVER = """\
import equinox as eqx, jax.numpy as jnp
@eqx.filter_jit
def solve(t, y): return jnp.sin(y) + t
t, y = 0.0, jnp.array(1.0)
for _ in range(3):
    y = solve(t, y) * jnp.ones(())
    t = round(t + 0.5, 1)
"""


def test_the_whole_program_is_counted(tried: Tried) -> None:
    """One edit for two findings is one trial, and the cause that it leaves is said with its fix."""
    pytest.importorskip("equinox")
    report, text = tried(SOLVER)
    for finding in report.findings:
        assert (finding.tried.before, finding.tried.after) == (2, 1)
    assert text.count("fix, tried: 2 repeats in all -> 1, ") == 2
    assert "2 of 2 findings have a fix that was tried; together: 2 repeats -> 1, " in text
    (left,) = report.together.left
    assert [reason.path for reason, _ in left.reasons()] == ["y"]
    assert "fix: use the same type in every call" in text.partition("left with the patch:")[2]


EARLIER = """\
import jax, jax.numpy as jnp
@jax.jit
def draw(sigma): return jnp.arange(3.0) * sigma
for s in (1.0, 1.5): print(draw(s).sum())
{}
"""


@pytest.mark.parametrize(
    ("last", "edit"),
    [
        ("print(draw(jnp.float32(1.0)).sum())", "draw(jnp.float32(s))"),
        ("for s in (2, 3): print(draw(s).sum())", "draw(float(s))"),
    ],
)
def test_the_call_that_the_fix_names_is_edited(tried: Tried, last: str, edit: str) -> None:
    """Be it the earlier one, on another line, or this one."""
    report, text = tried(EARLIER.format(last))
    (finding,) = report.findings
    assert finding.tried.verdict == "confirmed"
    assert "fix, tried: 1 repeat in all -> 0, " in text
    (added,) = [line for line in finding.tried.edit if line[0] == "+"]
    assert edit in added


@pytest.mark.parametrize(
    ("printed", "verdict"), [("[2.0000002 3.5]", "confirmed up to rounding"), ("2.1", "changed")]
)
def test_rounding(tried: Tried, printed: str, verdict: str) -> None:
    """What is compiled as one program rounds otherwise: that is no other output."""
    report, _ = tried(
        "import jax, jax.numpy as jnp\nstep = jax.jit(lambda x, f: f(x), static_argnums=1)\n"
        "for _ in range(3):\n    step(jnp.ones(3), lambda x: x * 2)\n"
        f"print('{printed}' if 'f' in vars() else '[2.  3.5]')\n"
    )
    assert report.findings[0].tried.verdict.startswith(verdict)


UNTRIED = """\
import jax, jax.numpy as jnp
step = jax.jit(lambda x: x * 2)
for n in (2, 3):
    step(jnp.ones(n))
"""


def test_what_is_not_tried_is_said(tried: Tried) -> None:
    """Where no edit is known, and where there are more than are to be tried."""
    _, text = tried(UNTRIED)
    assert "not tried: 1 finding, without a known edit" in text
    twice = EARLIER.format("print(draw(jnp.float32(1.0)).sum())") * 2
    report, _ = tried(twice, max_tries=1)
    assert report.untried == 1


def test_what_is_written_is_not_offered(tried: Tried) -> None:
    """The last line says that the patch was applied."""
    _, text = tried(EARLIER.format("print(draw(jnp.float32(1.0)).sum())"), write=True)
    assert "`--write` has applied the patch." in text
    assert "`--diff` prints" not in text


@pytest.mark.parametrize(("body", "tried_line"), [("x * n", "fix, tried: "), ("x[:n]", "tried: ")])
def test_a_static_argument_is_made_dynamic(tried: Tried, body: str, tried_line: str) -> None:
    """It is kept if the program goes on as before; a size stays static, and its fix is said."""
    _, text = tried(
        "import jax, jax.numpy as jnp\n"
        f"step = jax.jit(lambda x, n: {body}, static_argnames='n')\n"
        "for n in (1, 2, 3):\n    print(step(jnp.ones(3), n))\n"
    )
    assert f"\n  {tried_line}" in text
    assert ("  fix: pass the same value each time, or make it" in text) == (body == "x[:n]")


CALL = """\
{imports}
import jax.numpy as jnp
xs = jnp.ones(3)
for {rate} in (1.0, 2.0, 3.0):
    out = {scan}(
        lambda c, x: (c + {rate} * x, x),  # a step
        jnp.float32(0), xs
    )
    print(out)
"""


@pytest.mark.parametrize(
    ("imports", "scan", "jit"),
    [
        ("from jax.lax import scan", "scan", "import jax; jitted_scan = jax.jit(lambda xs, "),
        ("from jax import jit, lax", "lax.scan", "jitted_scan = jit(lambda xs, "),
        ("import jax as j", "j.lax.scan", "jitted_scan = j.jit(lambda xs, "),
    ],
)
def test_the_code_of_a_fix(tried: Tried, imports: str, scan: str, jit: str) -> None:
    """It is printed and tried under any import of JAX, of a call over lines, at any length."""
    report, text = tried(CALL.format(imports=imports, scan=scan, rate="rate" * 99))
    (finding,) = report.findings
    assert finding.tried.verdict.startswith("confirmed"), finding.tried
    assert finding.tried.edit[0].startswith(f"+ {jit}")
    assert finding.tried.edit[0] in text
    (fix,) = finding.fixes()
    assert str(fix).startswith(f"`{jit}")
