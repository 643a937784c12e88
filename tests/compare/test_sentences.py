"""What is said of each difference and its fix: the one table of sentences, in `sentences.txt`.

Every other test asserts the kind, the path, and what a fix does.
"""

import copy
import doctest
import enum
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from tests.compare.fixes import PROGRAMS, alike
from tests.kit.inside import UNNAMED_CONFIG, Act, Cause, from_json
from tests.kit.specimens import Slotted

import leafwise as lw
from leafwise.types import Outcome, Reason, ReasonKind, Signature

TABLE = Path(__file__).with_name("sentences.txt")

REASONS: list[Reason] = []
FIXES: list[str] = []
"""What the table has shown."""


@lw.pytree
class ByContent:
    f: Any = lw.static_field(compare_by="content")


class Sampler:
    """A node with aux_data."""

    def __init__(self, w: Any, aux: Any = None) -> None:
        self.w, self.aux = w, aux

    def method(self) -> None: ...


jax.tree_util.register_pytree_node(
    Sampler, lambda it: ((it.w,), it.aux), lambda aux, children: Sampler(*children, aux)
)


class Machine:
    """It compares by identity."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def method(self) -> Any:
        return self.n


class Equal:
    """All are equal."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 0


class Hashed(Equal):
    """All are equal, and each has another hash."""

    def __hash__(self) -> int:
        return id(self)


class Raising:
    def __eq__(self, other: object) -> bool:
        raise ValueError


class Mode(enum.Enum):
    UP = 1
    DOWN = 2


limit = 1.0


def scaled(rate: Any) -> Callable[[Any], Any]:
    return lambda x: x * rate


def limited() -> Callable[[Any], Any]:
    return lambda x: x * limit


def redefined() -> Any:
    global Again  # noqa: PLW0603  # as a notebook's cell, it binds the name again

    @lw.pytree
    class Again:
        x: Any

    return Again(1.0)


def under(context: Any, *arguments: Any) -> Signature:
    """Return the signature of a call in a context."""
    with context:
        return lw.signature(*arguments)


def show(before: Any, after: Any, **options: Any) -> None:
    """Print the reasons for which a second call differs from a first one."""
    calls = [
        each if isinstance(each, Signature) else lw.signature(each, **options)
        for each in (before, after)
    ]
    explanation = calls[1].explain(calls[0])
    for reason in (*explanation.reasons, *explanation.unsound):
        REASONS.append(reason)
        if reason.path != f"config.{UNNAMED_CONFIG}":  # where JAX does not name all options
            text = str(reason).replace("TFRT_CPU_", "cpu:")  # as JAX calls devices before 0.9
            print(text)  # noqa: T201  # what the table has


def show_statics(before: Any, after: Any) -> None:
    """Print what differs between two statics of a class that compares them by identity."""
    show(Slotted(1.0, before), Slotted(1.0, after))


def show_fix(fix: Any) -> None:
    """Print a fix that is not part of a reason."""
    FIXES.append(str(fix))
    print(fix)  # noqa: T201  # what the table has


def show_cause(cause: Cause, path: str = "x", before: Any = None, after: Any = None) -> None:
    """Print what is said of a cause that no two signatures have."""
    reason = Reason(path, ReasonKind.STATIC, Outcome.RETRACE, before, after, cause)
    REASONS.append(reason)
    print(reason.advice.change or reason.fix)  # noqa: T201  # what the table has


@pytest.fixture(scope="module")
def table() -> doctest.TestResults:
    """Show what the table has."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.testfile(str(TABLE), module_relative=False, globs=globals(), optionflags=flags)


def test_the_table(table: doctest.TestResults) -> None:
    """Each difference is told as the table has it, and the table has a row for each cause."""
    assert table.failed == 0
    assert set(Cause) - {reason.cause for reason in REASONS} == set()


@pytest.mark.usefixtures("table")
def test_each_fix_has_a_program() -> None:
    """No fix is printed that is not done in a program of `fixes.txt`, where its words stand."""
    fixes = {str(reason.fix) for reason in REASONS if reason.fix.act is not Act.NOTHING}
    printed = {alike(fix) for fix in fixes | set(FIXES) if "none needed" not in fix} - {""}
    assert printed - {alike(fix) for fix, _ in PROGRAMS} == set()


@pytest.mark.parametrize(
    "sent",
    [
        lambda reason: pickle.loads(pickle.dumps(reason)),  # noqa: S301  # our own
        copy.copy,
        copy.deepcopy,
    ],
    ids=["pickle", "copy", "deepcopy"],
)
@pytest.mark.usefixtures("table")
def test_a_reason_is_sent_as_it_is_shown(sent: Callable[[Reason], Reason]) -> None:
    """Another process shows it with all texts, without the objects that these were made of."""
    for reason in REASONS:
        again = sent(reason)
        assert str(again) == str(reason)
        assert again.advice == reason.advice
        assert again == sent(again)
        assert hash(again) == hash(sent(again))
        assert from_json(Reason, reason.as_dict()).as_dict() == reason.as_dict()
        assert repr(reason).endswith(f"fix={str(reason.fix)!r})")
