"""Every error of leafwise, and the texts of their messages.

All of them survive pickling, so that a worker process can send them back whole.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

__all__ = [
    "CannotBuildError",
    "CheckpointError",
    "DefinitionError",
    "DifferentProcessesError",
    "DynamicFunctionWarning",
    "FieldCheckError",
    "FrozenInstanceError",
    "LawViolation",
    "LeafwiseError",
    "PathError",
    "PortableError",
    "ProcessTimeoutError",
    "RetraceError",
    "RetraceStormWarning",
    "StaleCaptureError",
    "StaleCaptureWarning",
    "StaticFieldError",
    "StaticMutatedError",
    "StructureMismatchError",
    "TreeError",
]


DOCS: Final = "https://leafwise.readthedocs.io/en/stable/"


class _Linked:
    """What an error and a warning have in common: a message, and a link to its section."""

    args: tuple[Any, ...]

    @property
    def message(self) -> str:
        """The message without the link. Behind it, `args` has what it speaks of, as values."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        """Return the message, and the link that tells more."""
        # A subclass leads to the section of a class above it.
        named = next(cls.__name__ for cls in type(self).__mro__ if cls.__name__ in __all__)
        return f"{self.message}\nSee {DOCS}reference/errors/#{named.lower()}"


def message_of(error: BaseException) -> str:
    """Return the text of an error that another message quotes: without a link."""
    if isinstance(error, _Linked):
        return error.message
    try:
        return str(error)
    except Exception as inner:  # noqa: BLE001  # the user's own code
        return f"(its text raises {type(inner).__name__})"


class LeafwiseError(_Linked, Exception):
    """Base class of every error that leafwise raises on its own account."""

    def without_own_frames(self) -> Self:
        """Return the error without the frames below its handler, if all of them are ours."""
        below = self.__traceback__ and self.__traceback__.tb_next
        while below is not None:
            code, names = below.tb_frame.f_code, below.tb_frame.f_globals
            package = str(names.get("__name__")).partition(".")[0]
            if package not in _OWN and not code.co_filename.startswith("<leafwise "):
                return self  # the user's own converter, say
            below = below.tb_next
        return self.with_traceback(None)


_OWN: Final = ("leafwise", "dataclasses", "copy", "functools")


class DefinitionError(LeafwiseError, TypeError):
    """A class cannot be a pytree dataclass as it is written.

    Raised while the class is being decorated or registered, and by a constructor for what shows
    only then: a subclass without a decorator, or a field that was given no value.
    """


class FieldCheckError(LeafwiseError, ValueError):
    """A field's ``validator=`` refused its value: it answered False, or raised this itself."""


class FrozenInstanceError(LeafwiseError, dataclasses.FrozenInstanceError):
    """A field was assigned or deleted after construction (an `AttributeError`)."""


class PathError(LeafwiseError, LookupError):
    """A path leads nowhere in the tree, or is not a path."""


class TreeError(LeafwiseError, ValueError):
    """Trees, selections, changes, a loop's carry or a mesh do not fit together.

    Raised, too, where trees cannot be compared: ``==`` of traced values.
    """


class StructureMismatchError(TreeError, AssertionError):
    """Two trees differ that were asserted to have one structure.

    Attributes:
        differences: All of them, as `leafwise.diff` returns them.
    """

    def __init__(self, message: str, differences: tuple[Any, ...] = ()) -> None:
        super().__init__(message, differences)
        self.differences = differences


class StaticMutatedError(LeafwiseError, RuntimeError):
    """A static value was changed in place after a key was made from it.

    Programs compiled for the old value would have gone on answering for the new one.
    """


class StaleCaptureError(LeafwiseError, RuntimeError):
    """A jitted function was called after something that it captures had changed.

    The program was traced with the old value, and would have gone on answering for it.

    Attributes:
        captures: What changed, as `leafwise.types.StaleCapture`.
    """

    def __init__(self, message: str, captures: tuple[Any, ...] = ()) -> None:
        super().__init__(message, captures)
        self.captures = captures


class RetraceError(LeafwiseError, AssertionError):
    """JAX traced, lowered or compiled more often than a budget allows.

    Attributes:
        explanations: Why, for each event that has an explanation.
    """

    def __init__(self, message: str, explanations: tuple[Any, ...] = ()) -> None:
        super().__init__(message, explanations)
        self.explanations = explanations


class Difference(NamedTuple):
    """One place where a saved tree is not the target of its restoring.

    Attributes:
        path: Where: the class of the tree, and the way to the place.
        saved: What was saved, in words.
        target: What the target has, in words.
    """

    path: str
    saved: str
    target: str

    def __str__(self) -> str:
        """Return the difference as the error prints it."""
        return f"{self.path}: saved {self.saved}, target {self.target}"


class CheckpointError(LeafwiseError, ValueError):
    """A tree cannot be saved, or a checkpoint cannot be read.

    It names the leaf or the static that stands in the way, or the file that is damaged, or
    was written by something else.

    Attributes:
        differences: All places where what was saved has another class, structure, static or
            array than the target; empty if there is another reason.
    """

    def __init__(self, message: str, differences: tuple[Difference, ...] = ()) -> None:
        super().__init__(message, differences)
        self.differences = differences


class PortableError(LeafwiseError, ValueError):
    """A class or a static value means nothing to another process, or not what it meant there.

    So a tree with it has no digest, and a function that takes it cannot be exported.
    """


class DifferentProcessesError(LeafwiseError, AssertionError):
    """The processes of one program have different trees, for which they would compile apart.

    Attributes:
        differences: By path, each value as text, with the indices of the processes that have it.
    """

    def __init__(
        self, message: str, differences: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None
    ) -> None:
        super().__init__(message, differences)
        self.differences: Mapping[str, Mapping[str, tuple[int, ...]]] = differences or {}


class ProcessTimeoutError(LeafwiseError, TimeoutError):
    """A process of the program did not come to be compared in time.

    Attributes:
        missing: The indices of those that did not come; empty if that is unknown.
    """

    def __init__(self, message: str, missing: tuple[int, ...] = ()) -> None:
        super().__init__(message, missing)
        self.missing = missing


class LawViolation(LeafwiseError, AssertionError):  # noqa: N818  # as the tests call it
    """A pytree class breaks a law of pytrees, or a claim about it.

    Attributes:
        law: The law's name.
        path: Where: ``Class.field``, and the way into it.
        owner: The class at fault: that of a part of the instance, if the part breaks the law
            alone; None if no field is at fault.
    """

    def __init__(
        self, message: str, law: str = "", path: str = "", owner: type | None = None
    ) -> None:
        super().__init__(message, law, path, owner)
        self.law = law
        self.path = path
        self.owner = owner


class CannotBuildError(LeafwiseError):
    """No instance of a class can be built; the message says what to give.

    Raised by `leafwise.testing` and ``leafwise check``, which draw instances.
    """


class DynamicFunctionWarning(_Linked, UserWarning):
    """The default of a dynamic field is a function, which no function under `jax.jit` takes."""


class RetraceStormWarning(_Linked, UserWarning):
    """One field, or one argument, causes trace after trace."""


class StaleCaptureWarning(_Linked, UserWarning):
    """A jitted function answers for the old value of something that it captures."""


StaticKind: TypeAlias = Literal["unhashable", "array", "tracer", "inconsistent"]
"""Why a value cannot be static.

- ``"unhashable"``: it can change in place, or has no hash.
- ``"array"``: it is an array, or holds one.
- ``"tracer"``: it is a tracer, or holds one.
- ``"inconsistent"``: its ``__hash__`` or ``__eq__`` cannot be relied upon.
"""


class StaticFix(NamedTuple):
    """One way to repair a static value.

    Attributes:
        text: What to do, in words or code.
        of_field: Whether it declares the field in another way, which an argument does not have.
        option: The option of `leafwise.static_field` in that declaration, which is still to be
            written; None if there is none.
    """

    text: str
    of_field: bool = False
    option: str | None = None


class StaticFinding(NamedTuple):
    """One static value that cannot be part of a jit cache key.

    Attributes:
        kind: Why it cannot: ``"unhashable"``, ``"array"``, ``"tracer"`` or ``"inconsistent"``.
        path: Where it stands: ``Class.field`` and the way into the value.
        got: The value, shortened, with its type.
        reason: Why it cannot be static, in words.
        fixes: The ways to repair it, the best one first.
    """

    kind: StaticKind
    path: str
    got: str
    reason: str
    fixes: tuple[StaticFix, ...]

    @property
    def fix(self) -> str:
        """Code or words that repair it."""
        return ",\nor ".join(fix.text for fix in self.fixes)

    def __str__(self) -> str:
        """Return the finding as the error prints it."""
        fix = self.fix.replace("\n", "\n       ")
        return f"{self.path}: {self.reason}\n  got: {self.got}\n  fix: {fix}"


class StaticFieldError(LeafwiseError, TypeError):
    """One or more static values cannot be part of a jit cache key.

    Attributes:
        findings: What was found, in field order.
    """

    findings: tuple[StaticFinding, ...]

    def __init__(self, *findings: StaticFinding) -> None:
        """Keep the findings; the message is made from them."""
        super().__init__(*findings)
        self.findings = findings

    @property
    def kind(self) -> StaticKind:
        """The kind of the first finding: others may be of another one."""
        return self.findings[0].kind

    @property
    def message(self) -> str:
        """All findings, one below the other."""
        return "\n".join(map(str, self.findings))
