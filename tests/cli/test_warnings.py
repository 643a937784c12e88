"""What other libraries do not promise: the law's own message, as a warning."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import strategies as st
from tests.kit.inside import CheckVerdict

import leafwise as lw
from leafwise.testing import Law, check_pytree

from .asked import laws_of
from .conftest import Check, Write

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
        "equal treedefs, so that one program serves both",
        "fix: declare Native with `@lw.pytree` and `",
        ": lw.Static[int] = ",
        "\n1 class, 1 law: 1 warning\n",
    ):
        assert words in outcome.out
    (entry,) = check_all(*arguments, "--output-format=json").document["classes"]
    (law,) = entry["laws"]
    assert (law["law"], law["verdict"], law["library"]) == ("static-types", "warning", "JAX")
    strict = check_all(*arguments, "--warnings-as-errors", "--output-format=json")
    assert (strict.code, strict.document["exit_code"]) == (1, 1)


def test_the_line_of_the_field(write: Write, check_all: Check, tmp_path: Path) -> None:
    """An annotation is at the line that declares the field."""
    file = write(SOURCE)
    options = ("--laws", "--law", "static-types", "--examples", "2")
    outcome = check_all(file, *options, "--output-format=github")
    lines = (tmp_path / file).read_text(encoding="utf-8").splitlines()
    line = next(at for at, text in enumerate(lines, 1) if "n: int" in text)
    (shown,) = outcome.out.splitlines()
    assert shown.startswith(f"::warning file={file},line={line},title=static-types::Native.n: ")


def test_fields_alone_warn_too(write: Write, check: Check) -> None:
    """Changing fields alone finds statics of two types."""
    outcome = check(write(SOURCE))
    assert outcome.code == 0
    assert "warning: a type change of a static field promises a retrace" in " ".join(
        outcome.out.split()
    )
    assert outcome.out.endswith(": 2 warnings\n")
    assert check(write(SOURCE), "--warnings-as-errors").code == 1


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
    report = laws_of(HoldsOthers, Law.STATIC_TYPES, examples=10)
    (law,) = report.laws
    assert (law.verdict, report.passed, law.library) == (CheckVerdict.WARNING, True, "JAX")
    (warning,) = report.warnings
    assert warning.path == "HoldsOthers.inner[0].k"
    assert f"in {Inner.__module__}.Inner, not in HoldsOthers" in warning.message
    assert "fix: declare Inner with `@lw.pytree` and `k: lw.Static[int] = 2`" in (warning.message)
    assert not laws_of(HoldsOthers, Law.STATIC_TYPES, examples=10, warnings_as_errors=True).passed


def test_function_leaves_of_a_part(write: Write, check_all: Check) -> None:
    """A class that holds a module with functions for leaves is checked without them."""
    file = write("""
        import equinox as eqx

        def mlp():
            return eqx.nn.MLP(2, 2, 2, 1, key=jax.random.key(0))

        @lw.pytree
        class Net:
            mlp: eqx.nn.MLP = lw.field(default_factory=mlp)
    """)
    outcome = check_all(file, "--examples", "1", "--fields", "--output-format=json")
    assert outcome.code == 0, outcome.out
    (entry,) = outcome.document["classes"]
    assert entry["rows"]
    assert {row["verdict"] for row in entry["rows"]} == {"ok"}


TABLE = """
import equinox as eqx

class Table(eqx.Module):
    w: jax.Array
    table: jax.Array = eqx.field(static=True)
"""


@pytest.mark.slow
def test_words_of_the_library(write: Write, check_all: Check) -> None:
    """An array in a static field of equinox: it is to be dynamic, and nobody speaks of aux_data."""
    laws = ("--law", "treedef-equality", "--law", "transformations")
    outcome = check_all(write(TABLE), *laws, "--examples", "5")
    assert outcome.code == 1
    fix = "make `table` a dynamic field: drop `static=True`; or hold it as `lw.StaticArray`\n"
    assert f"fix: {fix}" in outcome.out
    assert "Traceback" not in outcome.out
    assert "site-packages" not in outcome.out


class Kind:
    """It compares by identity."""


@dataclasses.dataclass(frozen=True)
class FrozenKind:
    """It compares by what it holds."""


@jax.tree_util.register_pytree_node_class
class ByHand:
    def __init__(self, x: jax.Array, kinds: tuple[Kind]) -> None:
        self.x, self.kinds = x, kinds

    def tree_flatten(self) -> Any:
        return (self.x,), self.kinds

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        return cls(*children, aux)


@lw.pytree
class Declared:
    x: jax.Array
    kinds: lw.Static[tuple[Kind | FrozenKind]] = (Kind(),)


@pytest.mark.parametrize("cls", [ByHand, Declared])
def test_a_copy_with_another_treedef(cls: Any) -> None:
    """Where a static compares by identity it is a warning, with the fix, whoever made the class."""
    (law,) = laws_of(cls, Law.COPIES).warnings
    assert law.path == f"{cls.__name__}.kinds[0]"
    assert "another Kind, and so another treedef after " in law.message
    assert "fix: make Kind a frozen dataclass: it compares by identity" in law.message
    with pytest.warns(UserWarning, match="make Kind a frozen dataclass"):
        check_pytree(cls, laws=["copies"])
    for value in (FrozenKind(), jax.nn.relu):  # of a jitted function, a copy is another one
        check_pytree(st.builds(cls, st.just(1.0), st.just((value,))), laws=["copies"])


CREATED = """
from typing import Any

@lw.pytree
class Scaled:
    x: jax.Array
    act: Any = lw.static_field()
    def __init__(self, x: jax.Array, slope: float = 0.1) -> None:
        self.x = x
        self.act = lambda x: x * slope
"""


def test_a_static_that_the_constructor_creates(write: Write, check_all: Check) -> None:
    """Instances from the same arguments have two treedefs: the field and its line are named."""
    file = write(CREATED)
    only = ("--law", "same-arguments", "--laws", "--examples", "3")
    outcome = check_all(file, *only)
    source = Path(file).read_text(encoding="utf-8").splitlines()
    (line,) = [at for at, text in enumerate(source, 1) if "self.act = lambda" in text]
    assert "warning: law same-arguments, Scaled.act" in outcome.out
    assert f"function created in {file}, line {line}, and so another treedef" in outcome.out
    content = CREATED.replace("static_field()", "static_field(compare_by='content')")
    again = check_all(write(content), *only)
    assert "1 class, 1 law: all as promised" in again.out
