"""What an annotation says about a field: that it is static, an array, or text.

An alias (a ``type`` statement or a `typing.NewType`) is read as the annotation it stands for.
"""

import builtins
import contextlib
import dataclasses
import difflib
import enum
import importlib
import inspect
import re
import sys
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import jax
import numpy as np

from leafwise._classes.fields import OTHER_MARKS, StaticMark
from leafwise._objects.classes import is_tree_node, public_name
from leafwise._objects.frozen import StaticArray
from leafwise._objects.source.code import is_installed_module
from leafwise._objects.stand_ins import MISSING
from leafwise.errors import DefinitionError

annotationlib: Final[Any] = (
    importlib.import_module("annotationlib") if sys.version_info >= (3, 14) else None
)
"""Since Python 3.14 annotations are evaluated lazily."""


def annotations_of(owner: Any) -> dict[str, Any]:
    """Return the annotations of a class body or a function; a string where a name comes later."""
    if annotationlib is None:
        return inspect.get_annotations(owner)
    form = annotationlib.Format
    annotations: dict[str, Any] = annotationlib.get_annotations(owner, format=form.FORWARDREF)
    late = [name for name, annotation in annotations.items() if _has_forward_name(annotation)]
    if late:
        texts = annotationlib.get_annotations(owner, format=form.STRING)
        annotations |= {name: texts[name] for name in late}
    return annotations


def written_annotations(cls: type) -> dict[str, tuple[type, Any]]:
    """Return, for each annotated name, the nearest class that annotates it and the annotation."""
    bodies = ((base, annotations_of(base)) for base in reversed(cls.__mro__))
    return {name: (base, kind) for base, body in bodies for name, kind in body.items()}


def _has_forward_name(annotation: Any) -> bool:
    """Return whether an annotation uses a name that is not defined yet: ``list[Later]``."""
    if isinstance(annotation, type | str):
        return False
    annotation = without_initvar(annotation)
    if isinstance(annotation, typing.ForwardRef):
        return getattr(annotation, "__owner__", None) is not None  # a quoted one has no owner
    parts = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    return any(map(_has_forward_name, parts))


def without_initvar(annotation: Any) -> Any:
    if isinstance(annotation, str):
        return re.sub(r"^(?:\w+\.)*InitVar\[(.*)\]$", r"\1", annotation)
    return annotation.type if isinstance(annotation, dataclasses.InitVar) else annotation


def signature_of(value: Any) -> inspect.Signature:
    """Return the signature of a callable, with annotations as `annotations_of` returns them."""
    if annotationlib is None:
        return inspect.signature(value)
    read: Any = inspect.signature
    signature: inspect.Signature = read(value, annotation_format=annotationlib.Format.FORWARDREF)
    late = [arg.name for arg in signature.parameters.values() if _has_forward_name(arg.annotation)]
    if late:
        texts = read(value, annotation_format=annotationlib.Format.STRING).parameters
        parameters = {**signature.parameters, **{name: texts[name] for name in late}}
        signature = signature.replace(parameters=list(parameters.values()))
    return signature


def annotate_constructor(init: Any, cls: type, kinds: dict[str, Any]) -> None:
    # Strings are read lazily, so that `typing.get_type_hints` finds the names defined by then.
    if annotationlib is None:
        init.__annotations__ = kinds
        return
    late = {name for name, kind in kinds.items() if isinstance(kind, str)}

    def annotate(wanted: Any, /) -> dict[str, Any]:
        if wanted == annotationlib.Format.VALUE_WITH_FAKE_GLOBALS:
            raise NotImplementedError  # required by the `__annotate__` protocol
        annotations: dict[str, Any] = dict(kinds)
        for base in reversed(cls.__mro__ if late else ()):
            own = annotationlib.get_annotations(base, format=wanted)
            annotations |= {name: without_initvar(own[name]) for name in late & own.keys()}
        if wanted == annotationlib.Format.STRING:
            annotations = annotationlib.annotations_to_string(annotations)
        return annotations

    init.__annotate__ = annotate


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


class _Namespace(ChainMap[str, Any]):
    """The names an annotation can use; an unknown one is recorded instead of raising."""

    def __init__(self, scopes: list[Any]) -> None:
        super().__init__(*scopes)
        self.unknown: list[str] = []

    def __missing__(self, name: str) -> Any:
        self.unknown.append(name)
        return Unknown()


class _FrameScope(dict[str, Any]):
    """The local names of running code, each read when an annotation needs it."""

    def __init__(self, frame: types.FrameType) -> None:
        super().__init__()
        self.frame = frame

    def __missing__(self, name: str) -> Any:
        # Before Python 3.13, reading `f_locals` keeps all locals of a function alive until it ends.
        code = self.frame.f_code
        names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
        if code.co_flags & inspect.CO_OPTIMIZED and name not in names:
            raise KeyError(name)
        return self.frame.f_locals[name]


def caller_scopes(depth: int) -> list[Mapping[str, Any]]:
    """Return the local names that the code `depth` frames up can see."""
    # These are the locals of that frame and of its callers in the same module, as for a class in a
    # function in a function.
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


def function_scopes(names: Mapping[str, Any], depth: int) -> list[Mapping[str, Any]]:
    """Return the names that a function's annotations can see: locals only of its own module."""
    scopes = caller_scopes(depth + 1)
    first: Any = scopes[0]
    return [*scopes, names] if first.frame.f_globals is names else [names]


def scopes_of(cls: type) -> list[Mapping[str, Any]]:
    """Return the names that a class statement can see, from within ``__init_subclass__``."""
    frame = inspect.currentframe()
    depth = 0
    while frame is not None and frame.f_globals.get("__name__") != cls.__module__:
        frame, depth = frame.f_back, depth + 1
    return caller_scopes(depth + 1)


def resolve(cls: type, name: str, annotation: Any, scopes: list[Mapping[str, Any]]) -> Any:
    """Return a field's annotation, evaluated; names for type checkers only are placeholders."""
    if not isinstance(annotation, str):
        return annotation
    value, unknown = _evaluate_in(cls, annotation, scopes)
    instead = f"write `{name}: ... = lw.static_field()`"
    _refuse_unfound(f"{cls.__name__}.{name}", annotation, value, unknown, instead)
    return value


def _is_static(name: str) -> bool:
    word = name.rpartition(".")[2].lower()
    return bool(difflib.get_close_matches(word, ["static"], 1, 0.82))  # Statik, but not State


def _refuse_unfound(
    where: str, annotation: str, value: Any, unknown: list[str], instead: str
) -> None:
    """Raise if an annotation uses ``Static`` through a name that cannot be found."""
    # Or `Statik`, or another name that leafwise lacks; the rest may be for type checkers only.
    names = [*unknown, *re.findall(r"(\w+)\s*\[", annotation)]
    says = unknown and any(name.startswith("leafwise.") or _is_static(name) for name in names)
    if not says or has_mark(value) or has_buried_mark(value):
        return
    missing = max(unknown, key=_is_static)
    word, name = missing.rpartition(".")[2], re.split(r"[.(]", where)[-1].rstrip(")")
    fix = f"import it at the top of the module, or {instead}"
    if word != "Static" and _is_static(word):
        right = re.sub(rf"(\w+\.)*{re.escape(word)}", "lw.Static", annotation)
        fix = f"`{name}: {right}`"
    raise DefinitionError(
        f"{where}: cannot tell whether it is static, as {missing!r} "
        f"in its annotation {annotation!r} cannot be found\n  fix: {fix}"
    )


def annotated_static(
    where: str, annotation: Any, scopes: list[Mapping[str, Any]], *, known: bool
) -> bool:
    """Return whether a parameter's annotation, ``step(n)``, makes it static; raise if unclear."""
    name = where.rpartition("(")[2].rstrip(")")
    value, unknown = annotation, list[str]()
    if isinstance(annotation, str):
        value, unknown = _evaluate(annotation, scopes)
    if known:  # to be static, from ``static_argnames``
        return has_mark(value)
    _refuse_unfound(where, str(annotation), value, unknown, f"static_argnames={name!r}")
    if has_buried_mark(value):
        raise DefinitionError(
            f"{where}: Static inside another type has no effect: {annotation}\n"
            f"  fix: `{name}: lw.Static[{without_marks(value)}]`"
        )
    return has_mark(value)


def resolve_known(cls: type, annotation: Any, scopes: list[Mapping[str, Any]]) -> Any:
    """Return an annotation, evaluated if it is a string whose names can all be found."""
    if not isinstance(annotation, str):
        return annotation
    value, unknown = _evaluate_in(cls, annotation, scopes)
    return annotation if unknown else value


def _evaluate_in(
    cls: type, annotation: str, scopes: list[Mapping[str, Any]]
) -> tuple[Any, list[str]]:
    """Return the value of a string annotation in a class body, and the names not found."""
    module = sys.modules.get(cls.__module__)
    # Include the class itself: the module may lack it, or hold an older class of that name.
    outer = [type_parameters(cls), {cls.__name__: cls}, *scopes, vars(module) if module else {}]
    value, unknown = _evaluate(annotation, [vars(cls), *outer])
    if annotation in unknown:  # a method `list` below the field, which means the builtin
        return _evaluate(annotation, outer)
    return value, unknown


def type_parameters(generic: Any) -> dict[str, Any]:
    """Return the type variables of ``class Box[T]`` or ``def take[T]()``, by name."""
    return {each.__name__: each for each in getattr(generic, "__type_params__", ())}


def _evaluate(annotation: str, scopes: list[Mapping[str, Any]]) -> tuple[Any, list[str]]:
    """Return the value of a string annotation, and the names in it that cannot be found."""
    names = _Namespace([*scopes, vars(builtins)])
    try:
        # With real builtins: subscripting a generic class imports.
        value: Any = annotation
        while isinstance(value, str):  # twice for one in quotes under the future import
            value = eval(value, {"__builtins__": vars(builtins)}, names)  # noqa: S307  # as typing
    except DefinitionError:  # from `Static(int)`
        raise
    except Exception as error:  # noqa: BLE001  # any code can stand in an annotation
        owner: Any = getattr(error, "obj", None)  # of an AttributeError
        lacks = isinstance(owner, types.ModuleType)
        missing = f"{owner.__name__}.{getattr(error, 'name', '')}" if lacks else annotation
        return Unknown(), [*names.unknown, missing]
    return value, names.unknown


def alias_of(annotation: Any) -> Any:
    """Return the ``type`` alias that an annotation is or subscripts, or None."""
    origin = typing.get_origin(annotation)
    alias: Any = annotation if origin is None else origin
    # By name: typing (from Python 3.12 on) and typing_extensions each define the class.
    return alias if type(alias).__name__ == "TypeAliasType" else None


def named_by(annotation: Any) -> Any:
    """Return what an alias, with its type arguments, or a `typing.NewType` stands for, or None."""
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    alias = alias_of(annotation)
    if alias is None:
        return None
    value = _value_of(alias)
    args: tuple[Any, ...] = typing.get_args(annotation)
    own: tuple[Any, ...] = alias.__type_params__
    wanted = (value,) if isinstance(value, typing.TypeVar) else getattr(value, "__parameters__", ())
    if not args or not wanted:
        return value
    if own != wanted:  # in another order, or not all of them
        arguments = dict(zip(own, args, strict=False))
        args = tuple(arguments.get(variable, variable) for variable in wanted)
    try:
        return args[0] if isinstance(value, typing.TypeVar) else value[args]
    except TypeError:  # variables of other kinds, in another order
        return value


def _value_of(alias: Any) -> Any:
    """Return the value of an alias; from Python 3.14 on, undefined names are forward references."""
    with contextlib.suppress(Exception):  # evaluated now; any code can stand there
        with contextlib.suppress(NameError):
            return alias.__value__
        form = annotationlib.Format.FORWARDREF
        return annotationlib.call_evaluate_function(alias.evaluate_value, form, owner=alias)
    return Unknown()


def _layers(annotation: Any, above: list[Any]) -> Iterator[Any]:
    """Yield an annotation and what it wraps; aliases, which may be cyclic, are added to `above`."""
    while True:
        yield annotation
        if typing.get_origin(annotation) is Final:
            annotation = typing.get_args(annotation)[0]
        elif typing.get_origin(annotation) is Annotated:
            annotation = annotation.__origin__
        else:
            named = named_by(annotation)
            if named is None or annotation in above or len(above) > _MOST_ALIASES:
                return
            above.append(annotation)
            annotation = named


_MOST_ALIASES: Final = 50
"""An alias can contain itself with other arguments, endlessly."""


def unwrap(annotation: Any) -> Any:
    """Return what an annotation says without ``Annotated``, ``Final`` and aliases around it."""
    *_, last = _layers(annotation, [])
    return last


def is_late(annotation: Any) -> bool:
    """Return whether an annotation uses a name not defined yet, which could make it static."""
    last = unwrap(annotation)
    return isinstance(last, Unknown) or _has_forward_name(last)


def has_mark(annotation: Any) -> bool:
    """Return whether an annotation is ``Static[...]``, directly or in ``Annotated`` or an alias."""
    return any(
        isinstance(item, StaticMark) or (isinstance(item, str) and item in OTHER_MARKS)
        for layer in _layers(annotation, [])
        for item in getattr(layer, "__metadata__", (layer,))
    )


def has_buried_mark(annotation: Any, seen: Sequence[Any] = ()) -> bool:
    """Return whether ``Static`` is inside another type, where it has no effect."""
    seen = list(seen)
    *_, inner = _layers(annotation, seen)
    if typing.get_origin(inner) is Literal:
        return False
    args = typing.get_args(inner)  # those of Callable start with a list
    parts: list[Any] = [each for arg in args for each in (arg if isinstance(arg, list) else [arg])]
    return any(has_mark(part) or has_buried_mark(part, seen) for part in parts)


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
        return _named(annotation)
    if typing.get_origin(annotation) is Annotated:
        return _as_code(annotation.__origin__)
    if alias_of(annotation) is not None and (has_mark(annotation) or has_buried_mark(annotation)):
        return _as_code(named_by(annotation))
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_as_code, parts))
    if annotation is ...:
        return "..."
    if isinstance(origin, type) and origin.__module__ == "builtins":
        return f"{origin.__name__}[{', '.join(map(_as_code, parts))}]"
    text = getattr(annotation, "__forward_arg__", str(annotation))  # of a `ForwardRef`
    return re.sub(r"\b(typing|collections\.abc)\.", "", text)


def _named(cls: type) -> str:
    """Return a class as code, with its module if it comes from an installed package."""
    if cls.__module__.startswith("leafwise."):
        return f"lw.{cls.__name__}"
    is_of_python = cls.__module__.partition(".")[0] in sys.stdlib_module_names
    is_package = not is_of_python and is_installed_module(cls.__module__)
    return public_name(cls) if is_package else cls.__name__


def is_array(annotation: Any) -> bool:
    """Return whether values of this annotation are arrays (or None)."""
    return _all_members(annotation, _is_array_type)


def is_text(annotation: Any) -> bool:
    """Return whether values are text, enum members or dtypes (or None), which JAX cannot trace."""
    return _all_members(annotation, _is_text_type)


def _is_array_type(kind: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    if not isinstance(origin, type) or issubclass(origin, StaticArray):
        return False
    return issubclass(origin, jax.Array | np.ndarray) or hasattr(origin, "array_type")


def _is_text_type(kind: Any) -> bool:
    of_numpy = sys.modules.get("numpy.typing")  # if it is not imported, nothing refers to it
    if any(kind is getattr(each, "DTypeLike", MISSING) for each in (jax.typing, of_numpy)):
        return True
    if typing.get_origin(kind) is Literal:
        return all(_is_text_class(type(item)) for item in typing.get_args(kind))
    return _is_text_class(typing.get_origin(kind) or kind)


def _is_text_class(kind: Any) -> bool:
    is_text = isinstance(kind, type) and issubclass(kind, str | bytes | enum.Enum | np.dtype)
    return is_text and not is_tree_node(kind)  # as by `jax.tree_util.register_static`


def _all_members(annotation: Any, test: Callable[[Any], bool], above: Sequence[Any] = ()) -> bool:
    """Return whether all members of a union (except None), or all items, pass the test."""
    above = list(above)
    layers = list(_layers(annotation, above))
    if any(map(test, layers)):
        return True
    origin, parts = typing.get_origin(layers[-1]), typing.get_args(layers[-1])
    if origin in (typing.Union, types.UnionType):
        members = [part for part in parts if part is not type(None)]
    elif origin is dict:
        members = list(parts[1:])
    elif origin in (tuple, list, set, frozenset):
        members = [part for part in parts if part is not ...]
    else:
        return False
    return bool(members) and all(_all_members(member, test, above) for member in members)
