"""What other libraries do not promise: the law's own message, as a warning."""

import dataclasses

import jax
import pytest

import leafwise as lw
from leafwise.cli.laws import CheckOptions
from leafwise.cli.records import Verdict
from leafwise.cli.run import check_class
from leafwise.cli.targets import CheckTarget, find_targets
from leafwise.testing import Law

from .conftest import Check, Write

UNPROMISED = (
    Law.STATIC_TYPES,
    Law.AUX_DATA_HASH,
    Law.STABLE_TREEDEF,
    Law.POST_INIT,
    Law.DISTINCT_CLASSES,
)
FIELDS = """
    x: jax.Array
    n: int = {0}
    sizes: list[int] = {1}

    def __post_init__(self): pass
"""
NATIVE = "dataclasses.field(default{}, metadata={{'static': True}})"
# The library, the head of a class of it, a static field, and the laws that it does not promise.
LIBRARIES = {
    "jax": (
        "@jax.tree_util.register_dataclass\n@dataclasses.dataclass\nclass P:",
        NATIVE,
        "static-types aux-data-hash post-init distinct-classes",
    ),
    "flax": (
        "import flax\n@flax.struct.dataclass\nclass P:",
        "flax.struct.field(default{}, pytree_node=False)",
        "static-types aux-data-hash post-init distinct-classes",
    ),
    "equinox": (
        "import equinox as eqx\nclass P(eqx.Module):",
        "eqx.field(default{}, static=True)",
        "static-types aux-data-hash",
    ),
    "jax_dataclasses": (
        "import jax_dataclasses as jdc\n@jdc.pytree_dataclass\nclass P:",
        "jdc.static_field(default{})",
        "static-types aux-data-hash post-init",
    ),
    "leafwise": ("@lw.pytree\nclass P:", "lw.static_field(default{}, freeze=True)", ""),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_each_library_does_not_promise(library: str, write: Write) -> None:
    """It is a warning, with a fix in words of the library; a class of leafwise has none."""
    pytest.importorskip(library)
    head, static, laws = LIBRARIES[library]
    fields = FIELDS.format(static.format("=2"), static.format("_factory=list"))
    (target,) = find_targets([write(f"import dataclasses\n{head}{fields}")]).targets
    options = CheckOptions(laws=UNPROMISED, fields=False, examples=5)
    report = check_class(target, options)
    assert {each.law for each in report.warnings} == set(laws.split()), report.laws
    assert report.passed
    for each in report.warnings:
        assert "aux_data" not in each.message.partition("fix: ")[2]
        assert each.library == report.library
    strict = check_class(target, dataclasses.replace(options, strict=True))
    assert strict.passed is not bool(laws)
    assert not strict.warnings


SOURCE = """
import dataclasses

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Native:
    n: int = dataclasses.field(default=2, metadata={"static": True})
    m: int = dataclasses.field(default=3, metadata={"static": True})
"""


def test_in_the_report(write: Write, check_all: Check) -> None:
    """The command prints the law's message and the fix; the exit code stays 0."""
    file = write(SOURCE)
    arguments = (file, "--law", "static-types", "--examples", "3")
    outcome = check_all(*arguments)
    assert outcome.code == 0, outcome.out
    for words in (
        "ok, 1 warning",
        "warning: law static-types, Native.",
        "equal treedefs, so that one program answers for both",
        "fix: declare Native by `@lw.pytree`, with `",
        ": int = lw.static_field(default=",
        "\n1 class, 1 law: 1 warning\n",
    ):
        assert words in outcome.out
    (entry,) = check_all(*arguments, "--json").document["classes"]
    (warning,) = entry["warnings"]
    assert list(warning) == ["law", "path", "message", "library"]
    assert (warning["law"], warning["library"]) == ("static-types", "JAX")
    strict = check_all(*arguments, "--strict", "--json")
    assert (strict.code, strict.document["passed"]) == (1, False)


def test_fields_alone_warn_too(write: Write, check: Check) -> None:
    """Changing fields alone finds statics of two types."""
    outcome = check(write(SOURCE))
    assert outcome.code == 0
    assert "warning: a type change of a static field promises a retrace" in " ".join(
        outcome.out.split()
    )
    assert outcome.out.endswith(": 2 warnings\n")
    assert check(write(SOURCE), "--strict").code == 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Inner:
    x: jax.Array
    k: int = dataclasses.field(default=2, metadata={"static": True})


@lw.pytree
class HoldsOthers:
    inner: list[Inner]
    n: lw.Static[int] = 2


def test_faults_of_a_part() -> None:
    """What the class of a part does not keep is a warning that names that class and its fix."""
    options = CheckOptions(laws=(Law.STATIC_TYPES,), fields=False, examples=10)
    report = check_class(CheckTarget(HoldsOthers, "here:HoldsOthers"), options)
    (law,) = report.laws
    assert (law.verdict, report.passed, law.library) == (Verdict.WARNING, True, "JAX")
    (warning,) = report.warnings
    assert warning.path == "HoldsOthers.inner[0].k"
    assert f"one of {Inner.__module__}.Inner, not of HoldsOthers" in warning.message
    assert "fix: declare Inner by `@lw.pytree`, with `k: int = lw.static_field(default=2)`" in (
        warning.message
    )
    strict = dataclasses.replace(options, strict=True)
    assert not check_class(CheckTarget(HoldsOthers, "here:HoldsOthers"), strict).passed


def test_function_leaves_of_a_part(write: Write, check_all: Check) -> None:
    """A class that holds a module with functions for leaves is checked without them."""
    pytest.importorskip("equinox")
    file = write("""
        import equinox as eqx

        def mlp():
            return eqx.nn.MLP(2, 2, 2, 1, key=jax.random.key(0))

        @lw.pytree
        class Net:
            mlp: eqx.nn.MLP = lw.field(default_factory=mlp)
    """)
    outcome = check_all(file, "--examples", "1", "--fields", "--json")
    assert outcome.code == 0, outcome.out
    (entry,) = outcome.document["classes"]
    assert entry["rows"]
    assert {row["verdict"] for row in entry["rows"]} == {"ok"}
