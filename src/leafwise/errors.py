"""The errors and warnings of leafwise.

They can be pickled, so that a worker process can send them back intact.
"""

import dataclasses
from collections.abc import Iterable, Mapping
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
    """The base of errors and warnings: a message, and a link to its section in the docs."""

    args: tuple[Any, ...]

    @property
    def message(self) -> str:
        """The message without the link. The other `args` are the values that it mentions."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        """Return the message, followed by the link to its section."""
        # A subclass without a section links to that of the nearest class above it.
        named = next(cls.__name__ for cls in type(self).__mro__ if cls.__name__ in __all__)
        return f"{self.message}\nSee {DOCS}reference/errors/#{named.lower()}"


def message_of(error: BaseException) -> str:
    """Return the text of an error without its link, to be quoted in another message."""
    if isinstance(error, _Linked):
        return error.message
    try:
        return str(error)
    except Exception as inner:  # noqa: BLE001  # the user's own code
        return f"(its text raises {type(inner).__name__})"


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6, most: int = 1) -> str:
    """Return `` (did you mean 'w'?)`` with the nearest of the known names, or an empty string."""
    import difflib  # noqa: PLC0415  # only errors need it

    near = difflib.get_close_matches(name, list(known), most, cutoff)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


class LeafwiseError(_Linked, Exception):
    """Base class of all errors that leafwise raises."""

    def without_own_frames(self) -> Self:
        """Return the error, without the frames below its handler if all of them are leafwise's."""
        below = self.__traceback__ and self.__traceback__.tb_next
        while below is not None:
            code, names = below.tb_frame.f_code, below.tb_frame.f_globals
            package = str(names.get("__name__")).partition(".")[0]
            if package not in _OWN and not code.co_filename.startswith("<leafwise "):
                return self  # such as the user's own converter
            below = below.tb_next
        return self.with_traceback(None)


_OWN: Final = ("leafwise", "dataclasses", "copy", "functools")


class DefinitionError(LeafwiseError, TypeError):
    """A class, as written, cannot be a pytree dataclass.

    Raised when the class is decorated or registered, and by the constructor for errors that only
    show there: a subclass without a decorator, or a field without a value.
    """


class FieldCheckError(LeafwiseError, ValueError):
    """A field's ``validator=`` rejected its value: it returned False, or raised this error."""


class FrozenInstanceError(LeafwiseError, dataclasses.FrozenInstanceError):
    """A field was assigned or deleted after construction (an `AttributeError`)."""


class PathError(LeafwiseError, LookupError):
    """A path does not exist in the tree, or is not a valid path."""


class TreeError(LeafwiseError, ValueError):
    """Trees, selections, updates, a loop's carry or a mesh do not match.

    Also raised when trees cannot be compared: ``==`` of traced values.
    """


class StructureMismatchError(TreeError, AssertionError):
    """Two trees that were asserted to have the same structure differ.

    Attributes:
        differences: All differences, as `leafwise.diff` returns them.
    """

    def __init__(self, message: str, differences: tuple[Any, ...] = ()) -> None:
        super().__init__(message, differences)
        self.differences = differences


class StaticMutatedError(LeafwiseError, RuntimeError):
    """A static value was changed in place after a key was made from it.

    Programs compiled for the old value would have been used for the new one.
    """


class StaleCaptureError(LeafwiseError, RuntimeError):
    """A jitted function was called after something it captures had changed.

    The program was traced with the old value, and would have kept using it.

    Attributes:
        captures: What changed, as `leafwise.types.StaleCapture`.
    """

    def __init__(self, message: str, captures: tuple[Any, ...] = ()) -> None:
        super().__init__(message, captures)
        self.captures = captures


class RetraceError(LeafwiseError, AssertionError):
    """JAX traced, lowered or compiled more often than a budget allows.

    Attributes:
        explanations: The reasons, for each event that could be explained.
    """

    def __init__(self, message: str, explanations: tuple[Any, ...] = ()) -> None:
        super().__init__(message, explanations)
        self.explanations = explanations


class Difference(NamedTuple):
    """One place where a saved tree differs from the target that it is restored into.

    Attributes:
        path: The class of the tree, and the path to the difference.
        saved: What was saved, as text.
        target: What the target has, as text.
    """

    path: str
    saved: str
    target: str

    def __str__(self) -> str:
        """Return the difference as the error prints it."""
        return f"{self.path}: saved {self.saved}, target {self.target}"


class CheckpointError(LeafwiseError, ValueError):
    """A tree cannot be saved, or a checkpoint cannot be read.

    The message names the leaf or static that cannot be saved, or the file that is damaged or was
    not written by leafwise.

    Attributes:
        differences: All places where the saved class, structure, static or array differs from the
            target; empty if the error has another cause.
    """

    def __init__(self, message: str, differences: tuple[Difference, ...] = ()) -> None:
        super().__init__(message, differences)
        self.differences = differences


class PortableError(LeafwiseError, ValueError):
    """A class or a static value has no meaning in another process, or a different one.

    A tree that holds it has no digest, and a function that takes it cannot be exported.
    """


class DifferentProcessesError(LeafwiseError, AssertionError):
    """The processes of one program have different trees, and would compile different programs.

    Attributes:
        differences: By path, each value as text, with the indices of the processes that have it.
    """

    def __init__(
        self, message: str, differences: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None
    ) -> None:
        super().__init__(message, differences)
        self.differences: Mapping[str, Mapping[str, tuple[int, ...]]] = differences or {}


class ProcessTimeoutError(LeafwiseError, TimeoutError):
    """A process of the program did not join a comparison in time.

    Attributes:
        missing: The indices of the processes that did not join; empty if unknown.
    """

    def __init__(self, message: str, missing: tuple[int, ...] = ()) -> None:
        super().__init__(message, missing)
        self.missing = missing


class LawViolation(LeafwiseError, AssertionError):  # noqa: N818  # the name that tests use
    """A pytree class breaks a law of pytrees, or a claim about it.

    Attributes:
        law: The law's name.
        path: ``Class.field``, and the path into its value.
        owner: The class at fault: that of a part of the instance, if that part breaks the law on
            its own; None if no field is at fault.
    """

    def __init__(
        self, message: str, law: str = "", path: str = "", owner: type | None = None
    ) -> None:
        super().__init__(message, law, path, owner)
        self.law = law
        self.path = path
        self.owner = owner


class CannotBuildError(LeafwiseError):
    """No instance of a class can be built; the message says what to provide.

    Raised by `leafwise.testing` and ``leafwise check``, which draw instances.
    """


class DynamicFunctionWarning(_Linked, UserWarning):
    """A dynamic field has a function as its default, which `jax.jit` rejects in an argument."""


class RetraceStormWarning(_Linked, UserWarning):
    """One field or argument keeps causing retraces."""


class StaleCaptureWarning(_Linked, UserWarning):
    """A jitted function uses the old value of something it captures."""


StaticKind: TypeAlias = Literal["unhashable", "array", "tracer", "inconsistent"]
"""Why a value cannot be static.

- ``"unhashable"``: it can change in place, or has no hash.
- ``"array"``: it is an array, or holds one.
- ``"tracer"``: it is a tracer, or holds one.
- ``"inconsistent"``: its ``__hash__`` or ``__eq__`` is not reliable.
"""


class StaticFix(NamedTuple):
    """One way to fix a static value.

    Attributes:
        text: What to do, as words or code.
        of_field: Whether it changes the declaration of a field, so that arguments cannot use it.
        option: The option of `leafwise.static_field` for that declaration, which is still to be
            added to the text; or None.
        number: The Python number that the value converts to in the text: ``"int"``; or None.
    """

    text: str
    of_field: bool = False
    option: str | None = None
    number: str | None = None


class StaticFinding(NamedTuple):
    """One static value that cannot be part of a jit cache key.

    Attributes:
        kind: Why it cannot: ``"unhashable"``, ``"array"``, ``"tracer"`` or ``"inconsistent"``.
        path: ``Class.field``, and the path into its value.
        got: The value, truncated, with its type.
        reason: Why it cannot be static, as text.
        fixes: The ways to fix it, the best one first.
    """

    kind: StaticKind
    path: str
    got: str
    reason: str
    fixes: tuple[StaticFix, ...]

    @property
    def fix(self) -> str:
        """All fixes as one text."""
        return ",\nor ".join(fix.text for fix in self.fixes)

    def __str__(self) -> str:
        """Return the finding as the error prints it."""
        fix = self.fix.replace("\n", "\n       ")
        return f"{self.path}: {self.reason}\n  got: {self.got}\n  fix: {fix}"


class StaticFieldError(LeafwiseError, TypeError):
    """One or more static values cannot be part of a jit cache key.

    Attributes:
        findings: All findings, in field order.
    """

    findings: tuple[StaticFinding, ...]

    def __init__(self, *findings: StaticFinding) -> None:
        """Keep the findings; the message is made from them."""
        super().__init__(*findings)
        self.findings = findings

    @property
    def kind(self) -> StaticKind:
        """The kind of the first finding; others may have another kind."""
        return self.findings[0].kind

    @property
    def message(self) -> str:
        """The texts of all findings, each on its own lines."""
        return "\n".join(map(str, self.findings))
