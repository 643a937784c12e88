import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.kit.processes import Runner

pytestmark = pytest.mark.nightly  # twelve compiles of a network, in a process of their own
EXAMPLES = Path(__file__).parents[2] / "examples"

CAUSES = {
    "fresh lambda": ("train_step(fresh_lambda(state)", "state.model.hidden.activation", "static"),
    "rebuilt optimizer": ("train_step(rebuilt_optimizer(state)", "state.optimizer", "static"),
    "weak type": ("learning_rate=jnp.float32(0.004)", "state.learning_rate", "weak type"),
    "growing batch": ("jnp.asarray(images[:size])", "images", "shape"),
    "committed second call": ("jax.device_put(batch", "images", "commitment"),
}
"""A piece of the calling line, the path, and the kind of each cause."""


def explain(script: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Run the command on an example; return its report, and what it printed."""
    report, page = folder / "report.json", folder / "report.html"
    options = "--output-format=json", "-o", str(report), "--html", str(page)
    # One device, as on a plain machine.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = Runner(EXAMPLES).explain(*options, script, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found, page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def churn(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Return what `leafwise explain` says of the churning example."""
    return explain("churn.py", tmp_path_factory.mktemp("churn"))


@pytest.mark.parametrize("cause", CAUSES)
def test_cause_is_named(churn: tuple[dict[str, Any], str], cause: str) -> None:
    """Each cause is named with its path, its kind, and the very line that called."""
    piece, path, kind = CAUSES[cause]
    report, printed = churn
    lines = (EXAMPLES / "churn.py").read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if piece in text)
    events = [
        event
        for event in report["events"]
        if event["name"] == "train_step"
        and event["explanation"] is not None
        and event["site"]["line"] == line
    ]
    assert events
    for event in events:
        assert Path(event["site"]["file"]).name == "churn.py"
        # The activation stands in the moments of the optimizer too.
        reasons = event["explanation"]["reasons"]
        named = {(each["path"], each["kind"]) for each in reasons if "moments" not in each["path"]}
        # A batch that grows has more labels, too.
        assert named == ({(path, kind), ("labels", kind)} if kind == "shape" else {(path, kind)})
        # The first lambda is another function than the one before, and no repeat.
        assert all(each["fix"] or each["change"] == "another function" for each in reasons)
    assert f"churn.py:{line}" in printed
    # Leaves that differ alike are one reason.
    assert re.search(rf"^  {re.escape(path)}[^:]*[(:]\s?{kind}", printed, re.MULTILINE)


def test_every_call_after_the_first_is_explained(churn: tuple[dict[str, Any], str]) -> None:
    """Ten calls are traced again, one only compiled again, and no other."""
    report, _ = churn
    (function,) = (each for each in report["functions"] if each["name"] == "train_step")
    assert (function["traces"], function["compiles"]) == (11, 12)
    outcomes = [
        event["explanation"]["outcome"]
        for event in report["events"]
        if event["name"] == "train_step" and event["explanation"] is not None
    ]
    assert outcomes == ["retrace"] * 11 + ["recompile"]


@pytest.mark.slow
def test_training_example_has_nothing_to_explain(tmp_path: Path) -> None:
    """The example as it should be: one trace, and one more for the optimizer recreated."""
    report, printed = explain("train_digits.py", tmp_path)
    (function,) = (each for each in report["functions"] if each["name"] == "train_step")
    assert (function["traces"], function["compiles"]) == (2, 2)
    assert "state.optimizer (static)" in printed
    assert "learning_rate" not in printed.partition("train_digits.py:")[2]
