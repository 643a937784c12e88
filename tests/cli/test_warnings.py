"""What other libraries do not promise: a warning with both calls, both results and the fix."""

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise.cli.cautions import SHOWN, cautions, spelling
from leafwise.cli.changes import Builder
from leafwise.cli.records import Caution, ClassReport, LawResult, Verdict
from leafwise.cli.run import CheckOptions, check_class
from leafwise.cli.targets import CheckTarget
from leafwise.testing import Law, LawViolation

from .conftest import Outcome

Write = Callable[..., str]
Check = Callable[..., Outcome]


@dataclasses.dataclass
class Config:
    depth: int = 3


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Params:
    x: jax.Array
    n: int = dataclasses.field(default=2, metadata={"static": True})
    mode: str = dataclasses.field(default="a", metadata={"static": True})
    sizes: list[int] = dataclasses.field(default_factory=list, metadata={"static": True})
    config: Config = dataclasses.field(default_factory=Config, metadata={"static": True})

    def __post_init__(self) -> None: ...


@lw.pytree
class Own:
    x: jax.Array
    n: lw.Static[int] = 2
    mode: lw.Static[str] = "a"

    def __post_init__(self) -> None: ...


def shown(cls: Any, law: Law) -> list[Caution]:
    """Return what is shown of a law on a class."""
    return cautions(Builder(cls), law)


def results(caution: Caution) -> list[str]:
    """Return what the calls gave, the true one last."""
    assert caution.truth is not None
    return [*(call.result for call in caution.calls), caution.truth.result]


def test_equal_statics_of_two_types() -> None:
    """The second call gets the first one's answer; recompiled it gets its own."""
    number, text = shown(Params, Law.STATIC_TYPES)
    assert (number.path, text.path) == ("Params.n", "Params.mode")
    assert results(number) == ["int32[] weak 1", "int32[] weak 1", "bool[] True"]
    assert [call.text for call in number.calls] == [
        "f(Params(n=1, ...))",
        "f(Params(n=True, ...))",
    ]
    assert "jnp.asarray(p.n)" in number.program
    assert results(text) == ["bool[] True", "bool[] True", "bool[] False"]
    assert "np.str_('a')" in text.calls[1].text


def test_the_calls_say_what_happens() -> None:
    """What is printed can be typed in, and gives what is printed."""
    (number, *_) = shown(Params, Law.STATIC_TYPES)
    names: dict[str, Any] = {"jax": jax, "jnp": jnp}
    exec(number.program, names)  # noqa: S102  # it is what a reader would type
    assert names["f"](Params(jnp.zeros(3), n=1)).dtype == "int32"
    assert names["f"](Params(jnp.zeros(3), n=True)).dtype == "int32"


def test_mutable_statics() -> None:
    """A static list or object that changes in place leaves the old program to answer."""
    sizes, config = shown(Params, Law.AUX_DATA_HASH)
    assert results(sizes) == ["int32[] weak 0", "int32[] weak 0", "int32[] weak 1"]
    assert "p.sizes.append(9)" in sizes.calls[1].text
    assert sizes.fix.endswith(
        "sizes: list[int] = lw.static_field(default_factory=list, freeze=True)"
    )
    assert results(config) == ["int32[] weak 3", "int32[] weak 3", "int32[] weak 4"]
    assert "p.config.depth = 4" in config.calls[1].text


def test_another_class() -> None:
    """An instance of another class comes out of `lax.cond` as one of this class."""
    (found,) = shown(Params, Law.DISTINCT_CLASSES)
    assert results(found) == ["Params", "Params", "Other"]


def test_post_init_that_runs_again() -> None:
    """How often `__post_init__` ran is counted, without a change of the class."""
    before = Params.__post_init__
    profile = sys.getprofile()
    (found,) = shown(Params, Law.POST_INIT)
    assert [call.result for call in found.calls] == ["__post_init__ ran once"] * 2
    assert Params.__post_init__ is before
    assert sys.getprofile() is profile


def test_a_key_that_reading_changes() -> None:
    """Where reading a cached property changes the treedef, as in newer equinox, that is shown."""
    equinox = pytest.importorskip("equinox")

    class Layer(equinox.Module):  # type: ignore[misc, name-defined]
        w: jax.Array

        @functools.cached_property
        def area(self) -> int:
            return 3

    layer = Layer(jnp.ones(3))
    before = jax.tree.structure(layer)
    changes = layer.area == 3 and jax.tree.structure(layer) != before
    found = [results(each) for each in shown(Layer, Law.STABLE_TREEDEF)]
    assert found == [["traced once", "traced once more", "traced never"]] * changes


@pytest.mark.parametrize("law", list(SHOWN))
def test_leafwise_classes_have_none(law: Law) -> None:
    """Nothing of this can be shown on a class of leafwise."""
    assert not shown(Own, law)


class Broken:
    """What stands for `check_pytree`: some laws are broken, whatever the class."""

    def __init__(self, *laws: Law) -> None:
        self.laws = laws

    def __call__(self, cls: Any, *, laws: list[Law], **_: Any) -> None:
        for law in laws:
            if law in self.laws:
                raise LawViolation(
                    f"{cls.__name__}.n: broken\n  got: this", str(law), f"{cls.__name__}.n"
                )


def report_with(
    monkeypatch: pytest.MonkeyPatch, cls: type, broken: Law, **options: Any
) -> tuple[ClassReport, LawResult]:
    """Check one law, which is broken."""
    monkeypatch.setattr("leafwise.cli.run.check_pytree", Broken(broken))
    monkeypatch.setattr("leafwise.cli.run.broken_laws", lambda *_, laws, **__: set(laws))
    monkeypatch.setattr("leafwise.cli.run.is_slow", lambda *_: False)  # on a busy machine, too
    chosen = CheckOptions(laws=(broken,), fields=False, **options)
    report = check_class(CheckTarget(cls, f"here:{cls.__name__}"), chosen)
    (law,) = report.laws
    return report, law


@pytest.mark.parametrize("law", list(SHOWN))
def test_known_faults_are_warnings(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another library, what can be shown is a warning; of leafwise it fails."""
    if law is not Law.STABLE_TREEDEF:  # that one is equinox's
        report, result = report_with(monkeypatch, Params, law)
        assert (result.verdict, report.passed) == (Verdict.WARNING, True)
        assert {warning.law for warning in report.warnings} == {law}
    report, result = report_with(monkeypatch, Own, law)
    assert (result.verdict, report.passed, report.warnings) == (Verdict.VIOLATION, False, ())


def test_other_faults_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken law that no library is known for fails, of whatever library the class is."""
    report, result = report_with(monkeypatch, Params, Law.ROUND_TRIP)
    assert (result.verdict, report.passed, report.warnings) == (Verdict.VIOLATION, False, ())
    assert result.path == "Params.n"


def test_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--strict` a warning fails the class, and is shown all the same."""
    report, result = report_with(monkeypatch, Params, Law.STATIC_TYPES, strict=True)
    assert (result.verdict, report.passed) == (Verdict.VIOLATION, False)
    assert report.warnings


SOURCE = """
import dataclasses

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Native:
    n: int = dataclasses.field(default=2, metadata={"static": True})
    m: int = dataclasses.field(default=3, metadata={"static": True})
"""


def test_in_the_report(write: Write, check_all: Check) -> None:
    """The command prints both calls, both results, and the fix; the exit code stays 0."""
    file = write(SOURCE)
    arguments = (file, "--law", "static-types", "--examples", "3")
    outcome = check_all(*arguments)
    assert outcome.code == 0, outcome.out
    for words in (
        "ok, 1 warning",
        "warning: law static-types, Native.n",
        "f(Native(n=1, ...))",
        "-> int32[] weak 1",
        "the second call, recompiled  -> bool[] True",
        "n: int = lw.static_field(default=2)",
        "\n1 class, 1 law: 1 warning\n",
    ):
        assert words in outcome.out
    assert outcome.out.count("recompiled") == 1, "what a library does is told once"
    strict = check_all(*arguments, "--strict", "--json")
    assert strict.code == 1
    assert not strict.document["passed"]
    (entry,) = strict.document["classes"]
    assert [warning["path"] for warning in entry["warnings"]] == ["Native.n"]
    assert entry["warnings"][0]["calls"][1] == {
        "text": "f(Native(n=True, ...))",
        "result": "int32[] weak 1",
    }


def test_fields_alone_warn_too(write: Write, check: Check) -> None:
    """Changing fields alone finds statics of two types, and shows them."""
    outcome = check(write(SOURCE))
    assert outcome.code == 0
    assert "recompiled" in outcome.out
    assert "warning: a type change of a static field promises a retrace" in " ".join(
        outcome.out.split()
    )
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
    assert (law.verdict, report.passed, law.owner) == (Verdict.WARNING, True, Inner)
    (warning,) = report.warnings
    assert warning.path == f"{Inner.__module__}.Inner.k"
    assert "not of HoldsOthers" in warning.message
    assert "class Inner:\n    ...\n    k: int = lw.static_field(default=2)" in warning.fix
    assert results(warning) == ["int32[] weak 1", "int32[] weak 1", "bool[] True"]
    strict = dataclasses.replace(options, strict=True)
    assert not check_class(CheckTarget(HoldsOthers, "here:HoldsOthers"), strict).passed


def test_a_fault_of_a_part_that_is_no_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that no library is known to break fails the class, whoever's field it is."""

    def breaks(_: Any, *, laws: list[Law], **__: Any) -> None:
        raise LawViolation(
            "HoldsOthers.inner[0].k: broken", str(laws[0]), "HoldsOthers.inner[0].k", Inner
        )

    monkeypatch.setattr("leafwise.cli.run.check_pytree", breaks)
    monkeypatch.setattr("leafwise.cli.run.broken_laws", lambda *_, laws, **__: set(laws))
    for law in (Law.ROUND_TRIP, Law.COPIES):
        report = check_class(
            CheckTarget(HoldsOthers, "here"), CheckOptions(laws=(law,), fields=False)
        )
        assert (report.passed, report.warnings) == (False, ())


@pytest.mark.slow
def test_equinox_parts(write: Write, check_all: Check) -> None:
    """A layer of equinox in a class of leafwise: its fault, its name, and equinox's fix."""
    pytest.importorskip("equinox")
    file = write("""
        import equinox as eqx

        def norm():
            return eqx.nn.LayerNorm(2)

        @lw.pytree
        class Net:
            norm: eqx.nn.LayerNorm = lw.field(default_factory=norm)
    """)
    outcome = check_all(file, "--law", "static-types", "--examples", "3")
    assert outcome.code == 0, outcome.out
    for words in (
        "warning: law static-types, equinox.nn.LayerNorm.",
        "the fault is one of equinox.nn.LayerNorm, not of Net",
        "from leafwise.interop.equinox import Module",
        "class LayerNorm(equinox.nn.LayerNorm, Module): ...",
    ):
        assert words in outcome.out
    assert check_all(file, "--law", "static-types", "--examples", "3", "--json").code == 0


def test_the_cure_for_equinox_cures() -> None:
    """The class that a warning shows for one of equinox's own distinguishes the two statics."""
    equinox = pytest.importorskip("equinox")
    linear = equinox.nn.Linear(2, 2, key=jax.random.key(0))
    fix = spelling(linear, "use_bias")
    names: dict[str, Any] = {"equinox": equinox, "__name__": __name__}
    exec(fix, names)  # noqa: S102  # it is what a reader would type
    make: Any = functools.partial(names["Linear"], 2, 2, key=jax.random.key(0))
    structure: Any = jax.tree_util.tree_structure
    assert structure(make(use_bias=True)) == structure(make(use_bias=True))
    assert structure(make(use_bias=True)) != structure(make(use_bias=1))


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
