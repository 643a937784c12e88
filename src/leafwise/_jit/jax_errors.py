"""Why JAX refused a call: notes with the reasons, added to its errors."""

import ast
import contextlib
import dataclasses
import itertools
import operator
import re
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeAlias

import jax
import numpy as np
from jax.core import Tracer

from leafwise._classes.annotations import annotations_of, is_array, without_marks
from leafwise._classes.refusals import library_of
from leafwise._classes.spec import declaration, is_decorated, written_default
from leafwise._compare.changes import is_function
from leafwise._compare.diff import compare
from leafwise._compare.fixes import Cause
from leafwise._compare.signature import labels_of
from leafwise._findings.reasons import Outcome, Reason, ReasonKind, format_value
from leafwise._findings.words import paths_of
from leafwise._jax.compat import donated_by
from leafwise._jax.frames import frames_of, hide_frames, keep_frames, refusal_in, release_frames
from leafwise._objects.classes import is_a, public_name
from leafwise._objects.source.call_site import locals_of, tree_of
from leafwise._objects.source.code import Block, is_installed_module
from leafwise.errors import DOCS

_SHOWN: Final = 20

SECTIONS: Final = {
    "non-hashable-static-arguments-are-not-supported-unhashable-type-list": (
        "ValueError: Non-hashable static arguments"
    ),
    "the-truth-value-of-an-array-is-ambiguous-an-array-as-a-static-field": (
        "checking equality of metadata fields of pytree"
    ),
    "cannot-interpret-value-of-type-custom_jvp-as-an-abstract-array-equinox-and-optaxmultisteps": (
        r"TypeError: (Argument|Cannot interpret value) .*of type '?<class '\S+\.custom_jvp'>"
    ),
    "is-not-a-valid-jax-type-error-interpreting-argument-as-an-abstract-array": (
        "(TypeError|InvalidInputException): .*(not a valid JAX type|as an abstract array)"
    ),
    "tracerboolconversionerror-concretizationtypeerror-tracerintegerconversionerror": (
        "(TracerBoolConversion|TracerIntegerConversion|ConcretizationType)Error: "
        "|TypeError: Shapes must be 1D sequences of concrete values"
    ),
    "tracerarrayconversionerror": "TracerArrayConversionError: ",
    "unexpectedtracererror-leaked-tracers-saving-to-self-inside-jit": "UnexpectedTracerError: ",
    "in_axes-must-be-a-tree-prefix-static-fields-in-in_axes": (
        "ValueError: .*(specification must be a tree prefix|pjit (in|out)_shardings"
        "|was requested to map its argument)|TypeError: vmap in_axes must be an int"
    ),
    "manual-axis-types-do-not-match-a-scan-carry-becomes-varying-in-shard_map": (
        "TypeError: .* carry .*the manual axis types do not match"
    ),
    "the-pytree-node-metadata-does-not-match-carry-input-and-carry-output-must-have-equal-types": (
        "TypeError: .*(carry input and carry output must have"
        "|branch outputs must have the same pytree structure)"
        "|ValueError: Old and new values have different structures/shapes/dtypes"  # equinox
    ),
    "custom-node-type-mismatch-mismatch-custom-node-data-a-tree-mismatch-error-in-tree_map": (
        "ValueError: (pytree structure error|Custom node type mismatch|Mismatch custom node data)"
    ),
    "attempt-to-donate-the-same-buffer-twice-array-has-been-deleted": (
        "RuntimeError: .*(donate the same buffer twice|(Array|[Bb]uffer) has been deleted)"
    ),
    "received-incompatible-devices-for-jitted-computation": (
        "ValueError: Received incompatible devices"
    ),
    "unhashable-type-dynamicjaxprtracer": "TypeError: .*unhashable type: 'DynamicJaxprTracer'",
}
"""The sections of the page on JAX's errors, each with a pattern for the class and the message."""


def section_for(error: BaseException) -> str:
    """Return the URL of the documentation on a JAX error, or an empty string."""
    text = f"{type(error).__name__}: {error}"
    for section, pattern in SECTIONS.items():
        if re.search(pattern, text, re.DOTALL):
            return f"{DOCS}how-to/troubleshooting/#{section}"
    return ""


class Explaining(Block):
    """A block that adds to exceptions, by path, which parts of two trees differ."""

    _code = "debug.explain_errors()"

    def __enter__(self) -> None:
        keep_frames()

    def __exit__(self, *exception: object) -> None:
        """Add a note to the exception, if the trees that JAX compared are known."""
        kept, (_, error, _) = release_frames(), exception
        if not isinstance(error, Exception):
            return
        lines: list[str] = []
        # Whatever goes wrong here, the user must see the original exception.
        for lines_on in (_refused_in, _uses_in):
            with contextlib.suppress(Exception):  # code of the values' classes, or a fault of ours
                lines = lines or lines_on(error)
        with contextlib.suppress(Exception):  # a class's own code
            if kept:
                hide_frames(error)
            _add_note(error, lines)


def add_uses(
    error: Exception, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Add a note to an error of a call, if a dynamic value was used as a static one."""
    # Whatever goes wrong here, the user must see the original exception.
    with contextlib.suppress(Exception):  # a class's own code
        _add_note(error, _uses_in(error, _named_arguments(fun, args, kwargs)))


class _Explained(str):
    __slots__ = ()


def _add_note(error: Exception, lines: list[str]) -> None:
    notes = getattr(error, "__notes__", ())
    if lines and not any(isinstance(note, _Explained) for note in notes):
        error.add_note(_Explained("leafwise: " + "\n".join(lines)))


def _refused_in(error: Exception) -> list[str]:
    """Return lines on how the trees that JAX compared differ; none if the trees are not known."""
    pair = refusal_in(error)
    if pair is None:
        return []
    reasons = [
        reason
        for reason in compare(pair.label, pair.before, pair.after)
        if reason.outcome is not Outcome.REUSE
        and reason.kind is not ReasonKind.WEAK_TYPE  # which JAX promotes
        and not (pair.none_is_zero and format_value(reason.after) == "None")
    ]
    if not reasons:
        return []
    lines = [pair.check, *(f"  {reason}" for reason in reasons[:_SHOWN])]
    lines += [f"  ... and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else []
    return [*lines, *(f"  fix: {fix}" for fix in dict.fromkeys(_fixes_for(reasons)))]


def _fixes_for(reasons: list[Reason]) -> Iterator[str]:
    for reason in reasons:
        if reason.kind is ReasonKind.STRUCTURE and "None" in (reason.before, reason.after):
            yield str(reason._replace(cause=Cause.STRUCTURE).fix)
    if any(reason.kind is ReasonKind.STATIC for reason in reasons):
        yield "a static cannot change during a trace: keep its value, or make the field dynamic"


_STEP: Final = re.compile(r"(?:^|\.)(\w+)|\[(\d+)\]|\['([^']*)'\]")


def _uses_in(error: BaseException, given: Mapping[str, Any] | None = None) -> list[str]:
    """Return a line for each dynamic value that JAX needed to know during tracing."""
    calls = list(_arguments(frames_of(error))) if given is None else [given]
    for words, lines_on in _LINES.items():
        if found := re.search(words, str(error), re.MULTILINE):
            return list(dict.fromkeys(lines_on(error, calls, *found.groups())))[:_SHOWN]
    return []


_Calls: TypeAlias = Sequence[Mapping[str, Any]]
"""The arguments of the calls that may have raised an error, by parameter name."""


def _at_path(_: BaseException, calls: _Calls, path: str) -> list[str]:
    return [_not_data(path, calls)]


def _not_array(error: BaseException, _: _Calls) -> Iterator[str]:
    """Yield a line on the argument of ``jax.vjp(f, Model())`` that is not an array."""
    refused = [*map(locals_of(frames_of(error)[0]).get, ("x", "arg"))]
    for arguments in _arguments(_frames_of_jax(error, "jax._src.api")):
        leaves = _leaves(arguments)
        paths = [path for path, leaf in leaves if any(leaf is value for value in refused)]
        if len(paths) == 1:
            yield _not_data(paths[0], [arguments], or_else="close over it")


def _unmapped(error: BaseException, _: _Calls) -> Iterator[str]:
    """Yield a line on each leaf that lacks the axis of ``jax.vmap(f)({"w": 1.0})``."""
    for frame in _frames_of_jax(error):
        axes = locals_of(frame).get("in_axes_flat", ())
        leaves = [leaf for arguments in _arguments([frame]) for leaf in _leaves(arguments)]
        for (path, leaf), axis in zip(leaves, axes, strict=False):
            shape = np.shape(leaf)
            if axis is not None and not -len(shape) <= axis < len(shape):
                lacks = f"`{path}` has shape {shape}, so it has no axis {axis}"
                yield f"{lacks}: to pass it whole, set its entry of `in_axes` to None"


def _frames_of_jax(error: BaseException, module: str = "") -> list[types.FrameType]:
    """Return the frames from where JAX raised an error up to the call, those of one module."""
    frames = itertools.takewhile(_is_of_jit, frames_of(error))
    return [frame for frame in frames if frame.f_globals["__name__"].startswith(module)]


CONSTRUCTORS: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__check_init__", "__attrs_post_init__"}
)


def _constructed(error: BaseException, paths: list[str]) -> str:
    """Return a line with the fix if a constructor reads a traced value, or an empty string."""
    own = itertools.dropwhile(_is_of_jit, frames_of(error))
    frames = list(itertools.takewhile(lambda frame: not _is_of_jit(frame), own))
    places = [n for n, frame in enumerate(frames) if frame.f_code.co_name in CONSTRUCTORS]
    if not places:
        return ""
    code, values = frames[places[0]].f_code, locals_of(frames[places[0]])
    instance = values.get(code.co_varnames[0])
    name = (instance if isinstance(instance, type) else type(instance)).__name__
    reads = f"`{name}.{code.co_name}` reads {' and '.join(map('`{}`'.format, paths))}"
    above = frames[places[-1] + 1 :]
    root = re.split(r"\W", paths[0])[0]
    # The traced function, which has the argument, is not among the frames above.
    if root != paths[0] and not any(root in locals_of(frame) for frame in above):
        fix = f"construct it with `object.__new__({name})` there"
        if all(is_installed_module(frame.f_globals["__name__"]) for frame in above):
            fix = f"make {name} an `@lw.pytree`, which unflattens without a constructor"
        return f"{reads} when JAX unflattens: {fix}"
    if call := re.search(r"The problem arose with the (`\w+)` function", str(error)):
        # Not `f_lineno`, which may be that of a `finally`.
        line = dict(traceback.walk_tb(error.__traceback__))[frames[places[0]]]
        at = f"{Path(code.co_filename).name}:{line}"
        fix = f"leave {call[1]}()` out of `{code.co_name}`"
        return f"{reads} while JAX traces, at {at}: {fix}; {_ONLY_IF}"
    if not isinstance(error, jax.errors.TracerBoolConversionError):
        return ""  # a shape, say
    fields = {f"self.{name}": value for name, value in getattr(instance, "__dict__", {}).items()}
    traced = (name for name, value in (fields | values).items() if is_a(value, Tracer))
    return (
        f"{reads} while JAX traces: check it only `if not isinstance({next(traced, 'x')}, "
        f"jax.core.Tracer)`; {_ONLY_IF}"
    )


_ONLY_IF: Final = "make it static only if it decides shapes or structure"


def _is_of_jit(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(("jax._src.", "leafwise._jit."))


def _not_data(path: str, scopes: _Calls, or_else: str = "") -> str:
    """Return a line with the fix for an argument that is not an array, usually a function."""
    holder, name, value = _find(path, scopes)
    function, inner = is_function(value), ""
    while path != inner and holder is not None and is_installed_module(type(holder).__module__):
        # For a value from a package, such as an optimizer, find the field of the user's class.
        inner, path = path, re.sub(r"(\.\w+|\[[^]]*\])$", "", path)
        holder, name, value = _find(path, scopes)
    cls, is_holder = type(value), bool(inner) and function
    what = f"a {cls.__qualname__}" if value is not None else "not an array"
    what = "a function" if function else what
    is_what = "holds functions" if is_holder else f"is dynamic, but {what}"
    is_users = cls.__module__ != "builtins" and not is_installed_module(cls.__module__)
    if is_users and not (function or issubclass(cls, Enum)):
        return f"`{path}` is {what}, which is not a pytree: make the class an `@lw.pytree`"
    if holder is None:
        fix = f"keep it in a static field, or {or_else or 'pass it as a static argument'}"
        if path.isidentifier() and not or_else:  # else there is no jit
            kind = "Callable[..., Any]" if function and not inner else public_name(cls)
            kind = kind.removeprefix("builtins.")
            fix = f"make the argument static, {_static(path, kind)}"
        return f"`{path}` {is_what}: {fix}"
    owner = type(holder)
    fix = as_static(owner, name, by_content=is_holder)
    if function and not inner:
        fix += ", or wrap it in `jax.tree_util.Partial`"
    return f"`{owner.__name__}.{name}` {is_what}: make it {fix}"


def _donated_twice(_: BaseException, calls: _Calls) -> Iterator[str]:
    """Yield a line for each two arguments of a call that share a buffer."""
    paths: dict[int, list[str]] = {}
    for path, array in _arrays(calls[0]):
        paths.setdefault(array.unsafe_buffer_pointer(), []).append(path)
    for first, *others in paths.values():
        for other in others:
            fix = f"donate `jnp.copy({other})`"
            yield f"`{first}` and `{other}` are the same buffer, donated twice: {fix}"


def _donated_before(error: BaseException, _: _Calls) -> list[str]:
    """Return a line on the variable with the array that JAX could not read, and its donation."""
    frames = frames_of(error)
    array = locals_of(frames[0]).get("self")
    is_known = isinstance(array, jax.Array)  # before JAX 0.11 a call does not show which one it was
    lines: list[tuple[int, str]] = []
    for frame in itertools.filterfalse(_is_of_jit, frames):
        names = {name: frame.f_globals.get(name) for name in frame.f_code.co_names}
        names |= locals_of(frame)
        attributes: dict[str, Any] = getattr(names.get("self"), "__dict__", {})
        names |= {f"self.{name}": value for name, value in attributes.items()}
        found: list[tuple[int, str]] = []
        holders: list[str] = []
        for name, value in names.items():
            deleted = {path: leaf for path, leaf in _arrays({name: value}) if leaf.is_deleted()}
            if deleted and (not is_known or any(leaf is array for leaf in deleted.values())):
                shown = name if len(deleted) == len(jax.tree.leaves(value)) else next(iter(deleted))
                found.append(_donation_of(name, shown, frame))
                holders.append(f"`{shown}`")
        if len(found) > 1 and not is_known:
            break
        if len(found) > 1 and not min(found)[0]:
            # `w = state["w"]`, `new = step(state)`, `w + 1`
            line = min(found)[1]
            others = paths_of(each for each in holders if not line.startswith(each))
            found = [(0, f"{line}; {others} shares its arrays: {_COPY}")]
        lines += found
        if any(order < 2 for order, _ in found):  # noqa: PLR2004  # else the caller may know more
            break
    return [line for _, line in sorted(lines, key=operator.itemgetter(0))[:1]]


def _donation_of(name: str, shown: str, frame: types.FrameType) -> tuple[int, str]:
    """Return a line on how a deleted variable was donated, after how much it says."""
    donations = list(_donations_in(frame))
    places = {place for text, place in donations if text == name}
    if any(re.search(rf"(?<![\w.]){re.escape(name)}\b", text) for text, _ in donations):
        where = f"at {places.pop()}" if len(places) == 1 else "to an earlier call"
        return 0, f"`{shown}` was donated {where}: use what that call returned"
    # `best = state["w"]`, `state = step(state)`, `best + 1`
    where = " ({1} donates `{0}`)".format(*donations[0]) if len(donations) == 1 else ""
    is_parameter = name in frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return 1 + is_parameter, f"`{shown}` was donated under another name{where}: {_COPY}"


_COPY: Final = "copy what you keep with `jnp.copy` before that call"


def _arrays(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for path, leaf in _leaves(values):
        if isinstance(leaf, jax.Array) and not is_a(leaf, Tracer):
            yield path, leaf


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        with contextlib.suppress(Exception):  # a class's own code
            for steps, leaf in jax.tree_util.tree_leaves_with_path(value):
                yield name + jax.tree_util.keystr(steps), leaf


def _donations_in(frame: types.FrameType) -> Iterator[tuple[str, str]]:
    """Yield the code of each argument that the code of a frame donates, and ``file:line``."""
    code, scope = frame.f_code, frame.f_globals | locals_of(frame)
    own = {line for *_, line in code.co_lines()}
    for call in ast.walk(tree_of(code.co_filename)):
        if isinstance(call, ast.Call) and call.lineno in own:
            numbers, names = donated_by(_find(ast.unparse(call.func), [scope])[2])
            arguments = [arg for place, arg in enumerate(call.args) if place in numbers]
            arguments += [keyword.value for keyword in call.keywords if keyword.arg in names]
            for argument in arguments:
                yield ast.unparse(argument), f"{Path(code.co_filename).name}:{call.lineno}"


def _arguments(frames: Sequence[types.FrameType]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of calls by parameter name, from JAX's frames."""
    for frame in frames:
        found = locals_of(frame)
        fun, args = found.get("fun"), found.get("args", found.get("primals"))
        kwargs = found.get("kwargs", {} if "primals" in found else None)
        if callable(fun) and isinstance(args, tuple) and isinstance(kwargs, dict):
            yield _named_arguments(fun, args, kwargs)


def _named_arguments(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    values = {f"args[{place}]": each for place, each in enumerate(args)}
    values |= {f"kwargs[{key!r}]": each for key, each in sorted(kwargs.items())}  # as in a pytree
    labels = labels_of(fun, args, kwargs)
    return {labels.get(key, key): each for key, each in values.items()}


def _used(error: BaseException, _: _Calls, paths: str) -> list[str]:
    """Return a line for each dynamic value that JAX names in its message, or on a constructor."""
    several = re.split(r",? and |, ", paths)
    constructed = _constructed(error, several)
    return [constructed] if constructed else [_traced(error, path) for path in several]


_LINES: Final[Mapping[str, Callable[..., Iterable[str]]]] = {
    r"problematic value is .* was passed to the function at path (.+)\.": _at_path,
    r"\AArgument .* is not a valid JAX type": _not_array,
    "was requested to map its argument": _unmapped,
    "Attempt to donate the same buffer twice": _donated_twice,
    "(?:Array|[Bb]uffer) has been deleted": _donated_before,
    r"depends on the values? of the arguments? (.+)\.\s*(?:See .*)?$": _used,
}
"""JAX's messages, each with the function that explains the error, its calls and the groups."""


def _traced(error: BaseException, path: str) -> str:
    holder, name, value = _find(path, list(map(locals_of, frames_of(error))), wanted=Tracer)
    cls = type(holder)
    shown = f"{cls.__name__}.{name}" if holder is not None else path
    kind = _fields(cls)[name].type if name in _fields(cls) else None
    shape = getattr(value, "shape", ())
    if shape or (kind is not None and not isinstance(kind, str) and is_array(kind)):
        if isinstance(error, jax.errors.TracerArrayConversionError):
            return f"`{shown}` is traced, so NumPy cannot read it: call `jax.numpy` instead"
        fix = "`jnp.where` and `jax.lax.cond` decide when the program runs"
        return f"`{shown}` is an array, whose values are not known during tracing: {fix}"
    if holder is not None:
        return f"`{shown}` is dynamic: make it {as_static(cls, name)}"
    if name.isidentifier():
        letter = getattr(getattr(value, "dtype", None), "kind", "")
        kind = {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(letter, "Any")
        is_branch = isinstance(error, jax.errors.TracerBoolConversionError)
        branch = "; or use `jax.lax.cond`" * is_branch
        return f"`{name}` is traced: make the argument static, {_static(name, kind)}{branch}"
    return f"`{path}` is dynamic: keep it in a static field, or pass it as a static argument"


def _static(name: str, kind: str) -> str:
    return f"`{name}: lw.Static[{kind}]` under lw.jit, or `static_argnames={name!r}`"


def _find(path: str, scopes: Sequence[Any], wanted: Any = object) -> tuple[Any, str, Any]:
    """Return the object that has the last step of a path as a field, that field, and its value."""
    steps = [found.groups() for found in _STEP.finditer(path)]
    field = steps[-1][0] if len(steps) > 1 else None
    for scope in scopes:
        with contextlib.suppress(Exception):  # user code, or a name that the scope lacks
            (root, *_), *rest = steps
            holder, value = None, scope[root]
            for attribute, place, key in rest:
                holder = value
                if attribute:
                    value = getattr(value, attribute)
                else:
                    value = value[key if place is None else int(place)]
            if is_a(value, wanted):
                return (holder, field, value) if field else (None, path, value)
    return None, field or path, None


def _fields(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = getattr(cls, "__dataclass_fields__", {})
    return found


def as_static(cls: Any, name: str, *, ours: bool = False, by_content: bool = False) -> str:
    """Return how to declare a field static, in the terms of its class's library or in `ours`."""
    if by_content and is_decorated(cls):
        code = declaration(_fields(cls)[name], _fields(cls)[name].type, 'compare_by="content"')
        return f"`{code}`"
    if hasattr(cls, "tree_flatten"):
        return "static: return it from tree_flatten in the aux_data, not among the children"
    field, library = _fields(cls).get(name), library_of(cls)
    if name in getattr(cls, "_fields", ()):
        field = dataclasses.field(default=cls._field_defaults.get(name, dataclasses.MISSING))
        tables = map(annotations_of, cls.__mro__)
        field.type = next((kinds[name] for kinds in tables if name in kinds), "Any")
    if field is None and library == "flax.nnx":
        return f"`self.{name} = nnx.static({name})`"
    if field is None:
        return f"aux_data, not a child, where {cls.__name__} is flattened"
    is_made = field.default_factory is not dataclasses.MISSING
    default = field.default_factory if is_made else field.default
    value = "" if default is dataclasses.MISSING else written_default(cls, name, default)
    option = f"default{'_factory' * is_made}={value}"
    kind = without_marks(field.type)
    has_none = not ours and (issubclass(cls, tuple) or library == "chex")
    if ours or has_none or library == "jax_dataclasses" or is_decorated(cls):
        mark = "jdc.Static" if library == "jax_dataclasses" and not ours else "lw.Static"
        end = f" = dataclasses.field({option})" if is_made else f" = {value}" * bool(value)
        return f"`{name}: {mark}[{kind}]{end}`{', in a class with `@lw.pytree`' * has_none}"
    call = _STATIC_CALLS.get(library, 'dataclasses.field(metadata={"static": True}')
    return f"`{name}: {kind} = {call}{f', {option}' if value else ''})`"


_STATIC_CALLS: Final = {
    "equinox": "eqx.field(static=True",
    "flax.struct": "struct.field(pytree_node=False",
}
"""The call that declares a static field, without its end."""
