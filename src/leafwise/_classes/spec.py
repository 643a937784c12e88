"""A class and its options, resolved into the one record that everything later reads."""

import ast
import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

import jax

from leafwise._classes import annotations
from leafwise._classes.annotations import resolve, resolve_known, written_annotations
from leafwise._classes.fields import STATIC_ENTRIES, STATIC_METADATA
from leafwise._classes.options import OPTIONS, FieldOptions
from leafwise._objects.interrupts import or_default
from leafwise._objects.source.call_site import inner_frame
from leafwise._objects.stand_ins import Verbatim
from leafwise._objects.text import got, shorten
from leafwise._statics.key import KeyTable, StaticKey, table_of
from leafwise.errors import DefinitionError, DynamicFunctionWarning

_NO_OPTIONS: Final = FieldOptions()

MARK: Final = "__leafwise_pytree__"
"""An attribute in the ``__dict__`` of every decorated class; one in a base does not count."""


def is_decorated(cls: type) -> bool:
    """Return whether the class itself, not only a base, was decorated."""
    return MARK in cls.__dict__


class FieldSpec(NamedTuple):
    """One field, resolved."""

    owner: str  # the name of the class, for messages
    name: str
    static: bool
    options: FieldOptions
    definition: "dataclasses.Field[Any]"
    is_late: bool = False  # its annotation uses a name not defined yet, so it may be ``Static``

    @property
    def has_default(self) -> bool:
        missing = dataclasses.MISSING
        definition = self.definition
        return definition.default is not missing or definition.default_factory is not missing

    @property
    def prepare(self) -> Callable[[Any], Any]:
        """The function from a value to the one to store; see `FieldOptions.prepare`."""
        return functools.partial(self.options.prepare, f"{self.owner}.{self.name}")


class ClassSpec:
    """A resolved pytree class, as code generation and registration read it."""

    any_uncompared: ClassVar = False  # whether any class has `uncompared` fields

    def __init__(
        self,
        cls: type,
        fields: tuple[FieldSpec, ...],
        *,
        has_own_init: bool,
        many_statics: bool = False,
    ) -> None:
        self.cls = cls
        self.fields = fields
        self.dynamic_names = tuple(field.name for field in fields if not field.static)
        self.static_names = tuple(field.name for field in fields if field.static)
        self.content_names = frozenset(
            field.name for field in fields if field.static and field.options.compare_by == "content"
        )
        if self.content_names:
            # Now, not at the first instance: an import can deadlock in a forked child.
            importlib.import_module("leafwise._statics.content")
        # With ``compare=False``, which ``==`` ignores but the key does not.
        self.uncompared = frozenset(field.name for field in fields if not field.definition.compare)
        if self.uncompared:
            ClassSpec.any_uncompared = True
        self.table: KeyTable = table_of(cls)
        self.empty_key: StaticKey | None = None  # of a class without statics, kept alive
        self.has_own_init = has_own_init  # whether its ``__init__`` was written by hand
        # From statics to the extra child of ``many_statics``.
        self.hash_node: Callable[[tuple[Any, ...]], object] | None = None
        if many_statics:
            from leafwise._statics.hash_nodes import hash_node_of  # noqa: PLC0415  # slow to import

            self.hash_node = hash_node_of

    def declaration(self, name: str, more: str = "") -> str:
        """Return the declaration of a static field as code, with one more option."""
        (definition,) = (field.definition for field in self.fields if field.name == name)
        return declaration(definition, definition.type, more, owner=self.cls)


def declaration(
    definition: "dataclasses.Field[Any]",
    annotation: Any,
    more: str = "",
    *,
    static: bool = True,
    owner: Any = None,
) -> str:
    """Return the declaration of a field as code, with one more option."""
    # For example ``act: str = lw.static_field(default="relu")``, or ``lw.field`` if not `static`.
    # Empty for an int or another scalar with ``freeze=True``, which makes no int of a list.
    kind = annotations.without_marks(annotation)
    if more == "freeze=True":
        if kind in ("bool", "int", "float", "complex", "str", "bytes"):
            return ""
        # Type checkers would reject the list, or the dict, that the field converts.
        kind = re.sub(
            r"\btuple\[((?:[^][]|\[[^][]*\])*), \.\.\.\]", r"Sequence[\1]", frozen_kind(kind)
        )
        kind = kind.replace("lw.FrozenMapping", "Mapping")
    options: FieldOptions = definition.metadata.get(OPTIONS, _NO_OPTIONS)
    missing = dataclasses.MISSING
    parts = {
        "default": definition.default,
        "default_factory": definition.default_factory,
        "converter": options.converter or missing,
        "validator": options.validator or missing,
    }
    codes = {key: _as_code(value) for key, value in parts.items() if value is not missing}
    if owner is not None and not codes.get("default_factory", "known"):
        code = written_default(owner, definition.name, definition.default_factory)
        codes["default_factory"] = code if code and "..." not in code else "..."
    arguments = [f"{key}={code}" for key, code in codes.items() if code]
    inside = ", ".join([*arguments, *([more] if more else [])])
    return f"{definition.name}: {kind} = lw.{'static_' * static}field({inside})"


def frozen_kind(kind: str) -> str:
    """Return the annotation of a value of type `kind` once it is frozen."""
    kind = re.sub(
        r"^list\b(\[(.*)\])?$", lambda m: f"tuple[{m[2]}, ...]" if m[1] else "tuple", kind
    )
    kind = re.sub(r"^set\b", "frozenset", kind)
    return re.sub(r"^dict\b", "lw.FrozenMapping", kind)


def _as_code(value: Any) -> str:
    """Return a default as code, or an empty string if its code is not known."""
    if isinstance(value, Enum):
        return f"{type(value).__qualname__.rpartition('<locals>.')[2]}.{value.name}"
    text = repr(value)
    if isinstance(value, str) and text[1:-1] == value and '"' not in value:
        text = f'"{value}"'
    if type(value) in _LITERALS and len(text) < _LONGEST:
        with contextlib.suppress(ValueError, SyntaxError):
            return text if ast.literal_eval(text) == value else ""
    name = getattr(value, "__qualname__", "")
    return name if name.replace(".", "_").isidentifier() else ""


_LITERALS: Final = (type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set)
_LONGEST: Final = 60


def resolve_fields(cls: type, scopes: list[Mapping[str, Any]]) -> tuple[FieldSpec, ...]:
    """Return the fields of a new dataclass; static ones get the static metadata, in a copy."""
    problems: list[str] = []
    fields: list[FieldSpec] = []
    written = written_annotations(cls)
    for definition in dataclasses.fields(cls):
        declared_by, kind = written.get(definition.name, (cls, definition.type))
        if declared_by is not cls:
            problems.extend(_silent_override(cls, definition))
        if declared_by is cls or not is_decorated(declared_by):
            if declared_by is not cls:  # a plain dataclass's field: completed in a copy
                definition = copy.copy(definition)  # noqa: PLW2901
                typing.cast("Any", cls).__dataclass_fields__[definition.name] = definition
            definition.type = kind  # dataclasses keeps a `ForwardRef`
            static, is_late, wrong = _resolve_static(cls, declared_by, definition, scopes)
            problems.extend(wrong)
            if static:
                definition.metadata = MappingProxyType({**definition.metadata, **STATIC_METADATA})
        else:
            static = is_static_metadata(definition.metadata) is True
            kind = definition.type
            is_late = not static and (isinstance(kind, str) or annotations.is_late(kind))
        options = definition.metadata.get(OPTIONS, _NO_OPTIONS)
        field = FieldSpec(cls.__name__, definition.name, static, options, definition, is_late)
        fields.append(field)
    if problems:
        raise DefinitionError("\n".join(problems))
    return tuple(fields)


def refuse_late_statics(cls: type, late: list[str]) -> None:
    """Raise if the `late` annotations of dynamic fields now resolve to ``Static``; forget them."""
    problems: list[str] = []
    for name in late:
        definition = typing.cast("Any", cls).__dataclass_fields__[name]
        owner, kind = written_annotations(cls).get(name, (cls, definition.type))
        annotation = resolve_known(owner, kind, annotations.scopes_of(owner))
        if annotations.has_mark(annotation) or annotations.has_buried_mark(annotation):
            problems.append(
                f"{cls.__name__}.{name}: its annotation {definition.type!r} says static, but that "
                f"name was not defined yet, so the field is dynamic\n  fix: define it above "
                f"{owner.__name__}, or write `{declaration(definition, annotation)}`"
            )
    if problems:
        raise DefinitionError("\n".join(problems))
    late.clear()


def parameter_types(cls: type, scopes: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the type that a generated constructor takes for each field and `InitVar`."""
    # Evaluated here: run-time type checkers would evaluate strings in the wrong namespace.
    types: dict[str, Any] = {}
    written: dict[str, tuple[type, Any]] = {}
    for name, definition in typing.cast("Any", cls).__dataclass_fields__.items():
        kind = definition.type
        if isinstance(kind, str | dataclasses.InitVar):
            written = written or written_annotations(cls)
            owner, kind = written.get(name, (cls, kind))
            kind = annotations.without_initvar(resolve_known(owner, kind, scopes))
        types[name] = kind
        options = definition.metadata.get(OPTIONS, _NO_OPTIONS)
        if options.converter is not None or options.freeze:
            types[name] = _taken_by(options.converter)
    return types


@or_default(Any)  # builtins have no signature, and a string may hold any code
def _taken_by(converter: Callable[[Any], Any] | None) -> Any:
    # Without a converter (freeze=True alone) this fails: no type describes what can freeze.
    signature = inspect.signature(typing.cast("Any", converter), eval_str=True)
    kind = next(iter(signature.parameters.values())).annotation
    return Any if kind is inspect.Parameter.empty else kind


def is_static_metadata(metadata: Mapping[Any, Any]) -> bool | None:
    """Return whether metadata says static or dynamic, or None; raise ValueError if it says both."""
    answers = {
        bool(metadata[key]) is value for key, value in STATIC_ENTRIES.items() if key in metadata
    }
    if len(answers) > 1:
        raise ValueError
    return answers.pop() if answers else None


def _resolve_static(
    cls: type,
    declared_by: type,
    definition: "dataclasses.Field[Any]",
    scopes: list[Mapping[str, Any]],
) -> tuple[bool, bool, list[str]]:
    """Return whether a field is static, whether it is late, and what is wrong with it."""
    name = definition.name
    where = f"{cls.__name__}.{name}"
    annotation = resolve(declared_by, name, definition.type, scopes)
    problems = contradictions(where, definition.metadata, annotation, definition.type)
    if problems:
        return False, False, problems
    declared = is_static_metadata(definition.metadata)
    static = annotations.has_mark(annotation) or declared is True
    is_open = not static and declared is None and OPTIONS not in definition.metadata
    if is_open:
        problems.extend(ambiguous_override(where, declared_by, name))
    problems.extend(_misfit(where, definition, annotation, static=static))
    if isinstance(definition.default, property) and vars(cls).get(name) is definition.default:
        problems.append(
            f"{where}: a property of the same name takes the place of its default\n"
            f"  fix: rename the property, or leave the field out"
        )
    if not static and not definition.metadata:
        _warn_of_function(cls, definition)
    return static, is_open and annotations.is_late(annotation), problems


def _warn_of_function(cls: type, definition: "dataclasses.Field[Any]") -> None:
    """Warn about a default that is or contains a function, in a field dynamic by default."""
    value: Any = definition.default
    name = definition.name
    is_method = any(getattr(base, name, None) is value for base in cls.__mro__[1:])
    leaves = [] if value is dataclasses.MISSING else jax.tree.leaves(value)
    functions = [leaf for leaf in leaves if callable(leaf) and not isinstance(leaf, type)]
    if is_method or not functions:
        return
    kind = annotations.without_marks(definition.type)
    text = written_default(cls, name, value)
    frame = inner_frame(inspect.currentframe())
    what, fixes = "is a function", [f"`{name}: lw.Static[{kind}] = {text}`"]
    if functions[0] is value:
        fixes.append(f"for arrays in it: `{name}: {kind} = jax.tree_util.Partial({text})`")
    else:  # an optimizer, say
        what = "holds functions"
        fixes = [f'`{name}: {kind} = lw.static_field(default={text}, compare_by="content")`']
    fixes.append(f"for equinox.filter_jit: `{name}: {kind} = lw.field(default={text})`")
    fix = ",\n       or, ".join(fixes)
    message = (
        f"{cls.__name__}.{name}: its default {what}, but the field is dynamic: jax.jit rejects "
        f"it as an argument\n  got: {got(value)}\n  fix: {fix}"
    )
    file, line = ("<unknown>", 1) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, DynamicFunctionWarning, file, line)


def contradictions(
    where: str, metadata: Mapping[Any, Any], annotation: Any, written: Any
) -> list[str]:
    """Return the contradictions in the declaration of the field `where`, as messages."""
    name = where.rpartition(".")[2]
    if isinstance(annotation, dataclasses.Field):
        own: Any = copy.copy(typing.cast("Any", annotation))
        own.name, static = name, is_static_metadata(own.metadata) is True
        return [
            f"{where}: its annotation is a field declaration: `:` was written for `=`\n"
            f"  fix: `{declaration(own, 'Any', static=static)}`"
        ]
    try:
        declared = is_static_metadata(metadata)
    except ValueError:
        return [
            f"{where}: its metadata contradicts itself: {dict(metadata)}\n"
            f"  fix: keep one of `lw.static_field()` and `lw.field()`"
        ]
    if annotations.has_mark(annotation) and declared is False:
        return [
            f"{where}: the annotation says static, the metadata dynamic: "
            f"{dict(metadata)}\n  fix: remove one of them"
        ]
    if annotations.has_buried_mark(annotation):
        # The text of an alias does not show the mark.
        marked = isinstance(written, str) and "Static[" in written
        kind = annotations.without_marks(written if marked else annotation)
        return [
            f"{where}: Static inside another type has no effect: {written}\n"
            f"  fix: `{name}: lw.Static[{kind}]`"
        ]
    return []


def ambiguous_override(where: str, cls: type, name: str) -> list[str]:
    """Return a message if a field overrides a static one without saying whether it is static."""
    for base in cls.__mro__[1:]:
        found = base.__dict__.get("__dataclass_fields__", {}).get(name)
        if found is None:
            continue
        if not is_static_metadata(found.metadata):
            break
        own = cls.__dict__.get("__dataclass_fields__", {}).get(name, found)
        return [
            f"{where}: overrides a static field of {base.__name__} without saying whether it "
            f"is static\n  fix: `{declaration(own, own.type)}` or "
            f"`{declaration(own, own.type, static=False)}` for a dynamic one"
        ]
    return []


_DECLARATIONS: Final = {("attr", "_CountingAttr"), ("pydantic", "FieldInfo")}
"""The classes of the default that `attrs.field()` and `pydantic.Field()` leave behind."""


def _misfit(
    where: str, definition: "dataclasses.Field[Any]", annotation: Any, *, static: bool
) -> list[str]:
    """Return a message if a field's type or default does not fit a static or dynamic field."""
    name = definition.name
    options = definition.metadata.get(OPTIONS, _NO_OPTIONS)
    default = type(definition.default)
    library, kind = default.__module__.partition(".")[0], annotations.without_marks(annotation)
    if (library, default.__name__) in _DECLARATIONS:
        return [
            f"{where}: its default declares a field for {library} only\n"
            f"  fix: `{name}: {kind} = lw.field()` or `{name}: {kind} = lw.static_field()`"
        ]
    if static and annotations.is_array(annotation) and not options.freeze:
        return [
            f"{where}: a static field cannot hold an array ({kind})\n"
            f"  fix: make it dynamic: `{name}: {kind}`, or, for a constant table, "
            f"`{name}: lw.Static[lw.StaticArray]` or "
            f"`{declaration(definition, annotation, 'freeze=True')}`"
        ]
    if not static and annotations.is_text(annotation):
        frozen = frozen_kind(kind)
        code = _as_code(definition.default)
        value = f" = {code}" if code else ""
        return [
            f"{where}: JAX cannot trace a {kind}, so it cannot be a dynamic field\n"
            f"  fix: `{name}: lw.Static[{frozen}]{value}` or `{declaration(definition, frozen)}`"
        ]
    return []


def _silent_override(cls: type, definition: "dataclasses.Field[Any]") -> list[str]:
    """Return a message for ``a = 3`` in a subclass, which does not change the default."""
    name = definition.name
    value = cls.__dict__.get(name, dataclasses.MISSING)
    is_slot = isinstance(value, types.MemberDescriptorType)
    if value is dataclasses.MISSING or value is definition.default or is_slot:
        return []
    static = is_static_metadata(definition.metadata) is True
    own = copy.copy(definition)
    own.default = value
    return [
        f"{cls.__name__}.{name}: assigned without an annotation, which changes nothing in a "
        f"dataclass: the default stays that of the base class\n"
        f"  fix: annotate it: `{declaration(own, own.type, static=static)}`"
    ]


def written_default(cls: type, name: str, value: Any) -> str:
    """Return the code of a default or factory, as in the source of the class if available."""
    owner, _ = written_annotations(cls).get(name, (cls, None))
    with contextlib.suppress(OSError, SyntaxError, TypeError):
        body: Any = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name and node.value:
                options = {word.arg: word.value for word in getattr(node.value, "keywords", ())}
                code = options.get("default", options.get("default_factory", node.value))
                return shorten(Verbatim(ast.unparse(code)), _LONGEST)
    if hasattr(value, "tolist"):  # not a PRNG key
        module = "jnp" if isinstance(value, jax.Array) else "np"
        array = f"{module}.array({value.tolist()}, {str(value.dtype)!r})"
        return shorten(Verbatim(array), _LONGEST)
    return _as_code(value)
