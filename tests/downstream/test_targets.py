"""`leafwise check` over classes of libraries that people use, and what it says of them.

What is expected here was read and judged: a warning is true of the library named, and no
class fails. Run by `nox -s downstream`.
"""

import pytest
from tests.kit.inside import CheckOptions, check_class, find_targets

pytest.importorskip("diffrax")
pytest.importorskip("lineax")
pytest.importorskip("numpyro")

OPTIONS = CheckOptions(examples=8)
TYPES, CLASSES = "static-types", "distinct-classes"
TARGETS: dict[str, set[str]] = {
    "optax._src.transform:ScaleByAdamState": set(),
    "optax:MultiStepsState": set(),
    "flax.core:FrozenDict": set(),
    "flax.training.dynamic_scale:DynamicScale": {TYPES, CLASSES},
    "flax.training.train_state:TrainState": {CLASSES},
    "equinox.nn:LayerNorm": {TYPES},
    "equinox.nn:RotaryPositionalEmbedding": {TYPES},
    "lineax:MatrixLinearOperator": set(),
    "lineax:CG": set(),
    "diffrax:Tsit5": set(),
    "diffrax:PIDController": set(),
    "numpyro.distributions.continuous:Cauchy": {TYPES},
}


@pytest.mark.filterwarnings("default")  # of the libraries
@pytest.mark.parametrize("target", TARGETS)
def test_target(target: str) -> None:
    """The class is built and checked whole; what it is warned of is what its library does."""
    (found,) = find_targets([target]).targets
    report = check_class(found, OPTIONS)
    assert report.error == ""
    assert report.left_out == ""
    bad = [result for result in report.laws if result.verdict.is_bad]
    bad_rows = [row for row in report.rows if row.verdict.is_bad]
    assert (bad, bad_rows) == ([], [])
    assert report.passed
    warned = {result.law for result in report.laws if result.verdict == "warning"}
    assert warned == TARGETS[target]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("module", ["optax._src.transform", "lineax._solution"])
def test_whole_module(module: str) -> None:
    """Every class of a module is checked or left out, and none stops the others."""
    targets = find_targets([module]).targets
    reports = [check_class(target, CheckOptions(laws=(), examples=1)) for target in targets]
    assert len(reports) == len(targets) > 0
    assert [report.name for report in reports if not report.passed] == []
