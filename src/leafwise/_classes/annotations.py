"""What an annotation says about a field: that it is static, an array, or text."""

import builtins
import contextlib
import enum
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import jax
import numpy as np

from leafwise._classes.fields import StaticMark
from leafwise._objects.frozen import StaticArray
from leafwise.errors import DefinitionError


class Unknown:
    """Stands for a name in an annotation that cannot be found."""

    def __getitem__(self, _item: object) -> "Unknown":
        return self

    def __getattr__(self, name: str) -> "Unknown":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __or__(self, _other: object) -> "Unknown":
        return self

    __ror__ = __or__

    def __call__(self) -> None:
        """Do nothing; typing requires its arguments to be callable."""


class _Namespace(dict[str, Any]):
    """The names an annotation can use; an unknown one is recorded instead of raising."""

    def __init__(self, scopes: list[Mapping[str, Any]]) -> None:
        super().__init__()
        self._scopes = scopes
        self.unknown: list[str] = []

    def __missing__(self, name: str) -> Any:
        for scope in self._scopes:
            with contextlib.suppress(KeyError):
                return scope[name]
        self.unknown.append(name)
        return Unknown()


class _FrameScope(Mapping[str, Any]):
    """The local names of running code, each read when an annotation needs it."""

    def __init__(self, frame: types.FrameType) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> Any:
        """Return a local variable, and keep none of the others alive.

        Raises:
            KeyError: There is none of this name.
        """
        frame, code = self._frame, self._frame.f_code
        if not code.co_flags & inspect.CO_OPTIMIZED:  # a module, or the body of a class
            return frame.f_locals[name]
        if name not in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            raise KeyError(name)
        found = frame.f_locals
        try:
            return found[name]
        finally:
            # Before Python 3.13 this is a copy, which the frame keeps until the function returns.
            # Somebody else may have it too: from `locals()`, or a debugger at work in the frame.
            unshared = type(found) is dict and sys.getrefcount(found) <= _REFERENCES_TO_COPY
            if unshared and frame.f_trace is None:
                found.clear()

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame.f_locals)

    def __len__(self) -> int:
        return len(self._frame.f_locals)


_REFERENCES_TO_COPY: Final = 3
"""Those of the frame, of the variable that holds it, and of the call that counts."""


def caller_scopes(depth: int) -> list[Mapping[str, Any]]:
    """Return the local names that the code `depth` frames up can see.

    That is the caller itself, and whoever called it from the same module: a class in a
    function in a function.
    """
    frame: types.FrameType | None = inspect.currentframe()
    for _ in range(depth):
        frame = frame.f_back if frame is not None else None
    scopes: list[Mapping[str, Any]] = []
    module = frame.f_globals if frame is not None else {}
    while frame is not None:
        if frame.f_globals is module:
            scopes.append(_FrameScope(frame))
        frame = frame.f_back
    return scopes


def resolve(cls: type, name: str, annotation: Any, scopes: list[Mapping[str, Any]]) -> Any:
    """Return the annotation of a field, evaluated if it is a string.

    Names that cannot be found (imported for type checkers only) become placeholders.

    Raises:
        DefinitionError: It says ``Static`` through a name that cannot be found.
    """
    if not isinstance(annotation, str):
        return annotation
    value, unknown = _evaluate(cls, annotation, scopes)
    if unknown and re.search(r"\bStatic\s*\[", annotation) and not has_mark(value):
        msg = (
            f"{cls.__name__}.{name}: cannot tell whether it is static, as {unknown[0]!r} "
            f"in its annotation {annotation!r} cannot be found\n"
            f"  fix: import it at the top of the module, or write "
            f"`{name}: ... = lw.static_field()`"
        )
        raise DefinitionError(msg)
    return value


def resolve_known(cls: type, annotation: Any, scopes: list[Mapping[str, Any]]) -> Any:
    """Return an annotation, evaluated if it is a string whose names can all be found."""
    if not isinstance(annotation, str):
        return annotation
    value, unknown = _evaluate(cls, annotation, scopes)
    return annotation if unknown else value


def _evaluate(cls: type, annotation: str, scopes: list[Mapping[str, Any]]) -> tuple[Any, list[str]]:
    """Return what a string says, and the names in it that cannot be found."""
    module = sys.modules.get(cls.__module__)
    names = _Namespace([vars(cls), *scopes, vars(module) if module else {}, vars(builtins)])
    try:
        # With real builtins: subscripting a generic class imports.
        value = eval(annotation, {"__builtins__": vars(builtins)}, names)  # noqa: S307  # as typing
    except Exception:  # noqa: BLE001  # any code can stand in an annotation
        return Unknown(), [*names.unknown, annotation]
    return value, names.unknown


def has_mark(annotation: Any) -> bool:
    """Return whether an annotation is ``Static[...]``, also within ``Annotated``."""
    if typing.get_origin(annotation) is Final:
        return has_mark(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) is not Annotated:
        return False
    metadata = annotation.__metadata__
    return any(isinstance(item, StaticMark) for item in metadata) or has_mark(annotation.__origin__)


def has_buried_mark(annotation: Any) -> bool:
    """Return whether ``Static`` is inside another type, where it has no effect."""
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is Annotated:
        parts = parts[:1]
    if typing.get_origin(annotation) is Literal:
        return False
    for part in parts:  # those of Callable start with a list
        inner: list[Any] = part if isinstance(part, list) else [part]
        if any(has_mark(each) or has_buried_mark(each) for each in inner):
            return True
    return False


def without_marks(annotation: Any) -> str:
    """Return an annotation as code, without its ``Static``."""
    text = annotation if isinstance(annotation, str) else _as_code(annotation)
    while found := re.search(r"\b(?:\w+\.)*Static\[", text):
        depth, end = 1, found.end()
        while depth and end < len(text):
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + text[found.end() : end - 1] + text[end:]
    return text


def _as_code(annotation: Any) -> str:
    if annotation is type(None):
        return "None"
    if annotation is jax.Array:
        return "jax.Array"
    if annotation in (np.ndarray, np.dtype):
        return f"np.{annotation.__name__}"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    if typing.get_origin(annotation) is Annotated:
        return _as_code(annotation.__origin__)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_as_code, parts))
    if annotation is ...:
        return "..."
    if isinstance(origin, type) and origin.__module__ == "builtins":
        return f"{origin.__name__}[{', '.join(map(_as_code, parts))}]"
    return str(annotation).replace("typing.", "")


def is_array(annotation: Any) -> bool:
    """Return whether values of this annotation are arrays (or None)."""
    return _all_members(annotation, _is_array_type)


def is_text(annotation: Any) -> bool:
    """Return whether values are text, enum members or dtypes (or None).

    JAX cannot trace any of them, so such a field has to be static.
    """
    return _all_members(annotation, _is_text_type)


def _is_array_type(kind: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    if not isinstance(origin, type):
        return False
    if issubclass(origin, StaticArray):
        return False
    return issubclass(origin, jax.Array | np.ndarray) or hasattr(origin, "array_type")


_DTYPE_LIKE: Final = tuple(getattr(module, "DTypeLike", None) for module in (jax.typing, np.typing))


def _is_text_type(kind: Any) -> bool:
    if any(kind is dtype_like for dtype_like in _DTYPE_LIKE):
        return True
    if typing.get_origin(kind) is Literal:
        return all(isinstance(item, str | bytes | enum.Enum) for item in typing.get_args(kind))
    origin = typing.get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, str | bytes | enum.Enum | np.dtype)


_CONTAINERS: Final = (tuple, list, set, frozenset)


def _all_members(annotation: Any, test: Callable[[Any], bool]) -> bool:
    """Return whether all members of a union (except None), or all items, pass the test."""
    if test(annotation):
        return True
    if isinstance(annotation, typing.NewType):
        return _all_members(annotation.__supertype__, test)
    if hasattr(annotation, "__value__"):  # a type alias of Python 3.12
        return _all_members(annotation.__value__, test)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated or origin is Final:
        return _all_members(parts[0], test)
    if origin in (typing.Union, types.UnionType):
        members = [part for part in parts if part is not type(None)]
    elif origin is dict:
        members = list(parts[1:])
    elif origin in _CONTAINERS:
        members = [part for part in parts if part is not ...]
    else:
        return False
    return bool(members) and all(_all_members(member, test) for member in members)
