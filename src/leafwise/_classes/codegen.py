"""Source code for one class: ``__init__``, flatten and unflatten, and access to statics.

An instance stores its children and its key. A static field is a property that reads the
key, so that JAX and Python always see the same value.

Generated code makes flattening as fast as JAX's own: no loops, and only the calls that
are needed. It is short, one statement a line, and registered with `linecache`, so that a
traceback or a debugger shows it; `leafwise.debug.source_of` prints it.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

import jax

from leafwise._classes import construct
from leafwise._classes.annotations import annotate_constructor, written_annotations
from leafwise._classes.spec import (
    ClassSpec,
    FieldSpec,
    declaration,
    is_static_metadata,
    refuse_late_statics,
)
from leafwise._objects.attributes import in_class
from leafwise._objects.classes import ClassMap
from leafwise._objects.locks import cached_property
from leafwise._objects.source.call_site import add_source
from leafwise._objects.stand_ins import Verbatim
from leafwise._statics.key import KEY, key_of, verify, verify_content
from leafwise.errors import DefinitionError, LeafwiseError

RESERVED: Final = "_lw_"
"""The prefix of every helper's name in generated code, which field names may not have."""

_count = itertools.count(1)
_SOURCES: Final[ClassMap[list[str]]] = ClassMap()


def source_of(cls: type) -> str:
    return "\n".join(_SOURCES.get(cls) or [])


def _compile(cls: type, name: str, lines: list[str], namespace: dict[str, Any]) -> None:
    source = "\n".join(lines) + "\n"
    filename = f"<leafwise {cls.__qualname__}.{name} {next(_count)}>"
    add_source(filename, source)
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102  # what this module is for
    _SOURCES.setdefault(cls, list).append(source)


def _take(cls: type, name: str, namespace: dict[str, Any]) -> Any:
    return _named(cls, name, namespace.pop(name))


def _named(cls: type, name: str, function: Any) -> Any:
    function.__module__ = cls.__module__
    function.__qualname__ = f"{cls.__qualname__}.{name}"
    return function


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


_BIND: Final = object.__setattr__.__get__
"""Binding it to an instance once is faster than passing the instance each time."""


def _key_lines(spec: ClassSpec) -> list[str]:
    """Return the lines that look up the key of the statics, trying the table's last key first."""
    tests = ["_lw_found is None"]
    for index, name in enumerate(spec.static_names):
        values = "_lw_values" if index else "(_lw_values := _lw_found.values)"
        tests.append(f"{values}[{index}] is not {name}")
    return [
        "_lw_found = _lw_table.last()",
        f"if {' or '.join(tests)}:",
        f"    _lw_found = _lw_key_of(_lw_table, {_tuple(list(spec.static_names))})",
    ]


def make_init(
    spec: ClassSpec,
    initvars: "list[dataclasses.Field[Any]]",
    types: dict[str, Any],
    finish: Callable[[Any, type], None],
    late: list[str],
) -> Any:
    """Return a constructor that calls `finish` where ``__post_init__`` sets, or may set, fields.

    For a class with a child `w` and a static `act`, neither of which needs that::

        def __init__(self, w, act=_lw_default_act):
            try:
                _lw_mine = _lw_type(self) is _lw_cls  # not `super().__init__` of a subclass
                if not _lw_mine:
                    _lw_foreign(_lw_type(self))  # raises for a subclass that is not decorated
                _lw_put = _lw_bind(self)
                _lw_put("w", w)
                if _lw_mine:
                    _lw_found = _lw_table.last()
                    if _lw_found is None or (_lw_values := _lw_found.values)[0] is not act:
                        _lw_found = _lw_key_of(_lw_table, (act,))
                    _lw_put("__leafwise_key__", _lw_found)
                else:
                    _lw_put("act", act)
            except _lw_Error as _lw_error:
                __tracebackhide__ = True
                raise _lw_error.without_own_frames()
    """
    cls = spec.cls
    definitions = cls.__dict__["__dataclass_fields__"]
    self_ = "_lw_self" if "self" in definitions else "self"
    namespace: dict[str, Any] = {
        "__name__": cls.__module__,
        "_lw_cls": cls,
        "_lw_type": type,
        "_lw_bind": _BIND,
        "_lw_table": spec.table,
        "_lw_key_of": key_of,
        "_lw_foreign": construct.check_decorated,
        "_lw_late": late,  # the fields whose annotations are read again, once
        "_lw_refuse_late": refuse_late_statics,
        "_lw_finish": finish,
        "_lw_Error": LeafwiseError,
        "_lw_factory": Verbatim("<factory>"),  # in the signature, for what is created by each call
    }
    fields = {field.name: field for field in spec.fields}
    names = {*fields, *(definition.name for definition in initvars)}
    order = [definition for definition in definitions.values() if definition.name in names]
    parameters = [definition for definition in order if definition.init]
    signature = ", ".join([self_, *_signature(cls, parameters, namespace)])
    stored = [field for field in spec.fields if field.definition.init or field.has_default]
    dynamic = [f"_lw_put({f.name!r}, {f.name})" for f in stored if not f.static]
    static = [f"_lw_put({f.name!r}, {f.name})" for f in stored if f.static]
    body = ["if _lw_late:", "    _lw_refuse_late(_lw_cls, _lw_late)"] if late else []
    body += [f"_lw_mine = _lw_type({self_}) is _lw_cls"]
    body += ["if not _lw_mine:", f"    _lw_foreign(_lw_type({self_}))"]
    for definition in order:
        body += _prepare_lines(definition, fields.get(definition.name), namespace)
    body += [f"_lw_put = _lw_bind({self_})", *dynamic]
    has_post = hasattr(cls, "__post_init__")
    if has_post or len(stored) < len(fields):
        arguments = ", ".join(definition.name for definition in initvars)
        body += [*static, *[f"{self_}.__post_init__({arguments})"] * has_post]
        body += ["if _lw_mine:", f"    _lw_finish({self_}, _lw_cls)"]
    else:
        body += ["if _lw_mine:", *_indent([*_key_lines(spec), f"_lw_put({KEY!r}, _lw_found)"])]
        body += ["else:", *_indent(static)] if static else []
    # Entering `try` costs nothing. It lets tracebacks go from the user's line to this function.
    end = ["    __tracebackhide__ = True", "    raise _lw_error.without_own_frames()"]
    lines = ["try:", *_indent(body), "except _lw_Error as _lw_error:", *end]
    _compile(cls, "__init__", [f"def __init__({signature}):", *_indent(lines)], namespace)
    init = _take(cls, "__init__", namespace)
    kinds = {definition.name: types[definition.name] for definition in parameters}
    annotate_constructor(init, cls, kinds | {"return": None})
    init.__doc__ = f"Construct a {cls.__name__}; statics are validated."
    return init


def _indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _signature(
    cls: type, parameters: "list[dataclasses.Field[Any]]", namespace: dict[str, Any]
) -> list[str]:
    """Return the parameters as code, positional ones first, with defaults in the namespace."""
    missing = dataclasses.MISSING
    positional: list[str] = []
    keywords: list[str] = []
    defaulted: str | None = None
    for definition in parameters:
        name = text = definition.name
        if definition.default is not missing:
            namespace[f"_lw_default_{name}"] = definition.default
            text = f"{name}=_lw_default_{name}"
        elif definition.default_factory is not missing:
            text = f"{name}=_lw_factory"
        if definition.kw_only:
            keywords.append(text)
            continue
        if text == name and defaulted is not None:
            owner, _ = written_annotations(cls)[defaulted]
            of = "" if owner is cls else f" of {owner.__name__}"
            static = is_static_metadata(definition.metadata) is True
            code = declaration(definition, definition.type, "kw_only=True", static=static)
            raise DefinitionError(
                f"{cls.__name__}.{name}: non-default argument {name!r} follows default argument "
                f"{defaulted!r}{of}\n  fix: declare it `{code}`{'' if of else ', or above'}"
            )
        defaulted = None if text == name else name
        positional.append(text)
    return positional + (["*", *keywords] if keywords else [])


def _prepare_lines(
    definition: "dataclasses.Field[Any]", field: FieldSpec | None, namespace: dict[str, Any]
) -> list[str]:
    """Return the lines that turn a parameter into the value of its field."""
    name = definition.name
    missing = dataclasses.MISSING
    lines: list[str] = []
    if definition.default_factory is not missing:
        namespace[f"_lw_make_{name}"] = definition.default_factory
        if definition.init:
            lines = [f"if {name} is _lw_factory:", f"    {name} = _lw_make_{name}()"]
        else:
            lines = [f"{name} = _lw_make_{name}()"]
    elif not definition.init and definition.default is not missing:
        namespace[f"_lw_default_{name}"] = definition.default
        lines = [f"{name} = _lw_default_{name}"]
    if field is not None and field.options.prepares and (definition.init or lines):
        # A subclass's own constructor prepares all fields at its end.
        namespace[f"_lw_prepare_{name}"] = field.prepare
        lines += ["if _lw_mine:", f"    {name} = _lw_prepare_{name}({name})"]
    return lines


def _dict_setter(spec: ClassSpec) -> Any:
    """Return what sets an instance's ``__dict__``; None if some children are in slots."""
    # Setting one dict is faster than one attribute at a time, by a third of an unflatten. It is
    # larger than the key-sharing dict of CPython, and reading from it is up to a quarter slower.
    found = [in_class(spec.cls, name) for name in (*spec.dynamic_names, KEY)]
    if any(hasattr(type(member), "__set__") for member in found):
        return None
    return getattr(in_class(spec.cls, "__dict__"), "__set__", None)


class Functions:
    """The flatten and unflatten functions of one class, as registered with JAX."""

    def __init__(self, spec: ClassSpec) -> None:
        self.spec = spec
        names = [*spec.dynamic_names, *([f"{KEY}.hash_node"] if spec.hash_node else [])]
        paths = tuple(map(jax.tree_util.GetAttrKey, names))
        self._namespace: dict[str, Any] = {
            "__name__": spec.cls.__module__,
            "_lw_new": functools.partial(object.__new__, spec.cls),  # faster than passing the class
            "_lw_bind": _BIND,
            "_lw_set_dict": _dict_setter(spec),
            "_lw_unfinished": functools.partial(construct.unfinished, spec),
            "_lw_verify": functools.partial(construct.check_key, verify),
            "_lw_check": functools.partial(construct.check_key, verify_content),
            "_lw_paths": paths,
            "_lw_zip": zip,
            "_lw_tuple": tuple,
            **dict(zip((f"_lw_path_{name}" for name in spec.dynamic_names), paths, strict=False)),
            "_lw_hash_node_path": paths[-1] if spec.hash_node else None,
            "_lw_get": object.__getattribute__,
        }
        _compile(spec.cls, "flatten", self._flatten(checked=False), self._namespace)
        self.flatten = _take(spec.cls, "flatten", self._namespace)
        self.flatten_with_keys = _take(spec.cls, "flatten_with_keys", self._namespace)
        self.unflatten = _take(spec.cls, "unflatten", self._namespace)
        self._plain = (self.flatten.__code__, self.flatten_with_keys.__code__)

    def _flatten(self, *, checked: bool) -> list[str]:
        """Return the source lines of all three functions: compiling them together is faster."""
        by_content = ["    _lw_check(self)"] if self.spec.content_names else []
        verify = ["    _lw_verify(self)"] if checked else by_content
        hash_node = self.spec.hash_node is not None
        found = _key_of_self(self.spec.cls)
        read_key = [f"        key = {found}"] if hash_node else []
        key = "key" if hash_node else found
        names = self.spec.dynamic_names
        children = [f"self.{name}" for name in names] + ["key.hash_node"] * hash_node
        with_keys = [f"(_lw_path_{name}, self.{name})" for name in names]
        with_keys += ["(_lw_hash_node_path, key.hash_node)"] * hash_node
        unfinished = ["        children, key = _lw_unfinished(self)"]
        unfinished += ["        return _lw_tuple(_lw_zip(_lw_paths, children)), key"]
        lines: list[str] = []
        for name, items, otherwise in (
            ("flatten", children, ["        return _lw_unfinished(self)"]),
            ("flatten_with_keys", with_keys, unfinished),
        ):
            lines += [f"def {name}(self):", *verify, "    try:", *read_key]
            lines += [f"        return {_tuple(items)}, {key}", "    except AttributeError:"]
            lines += [*otherwise, ""]
        return lines + self._unflatten()

    def _unflatten(self) -> list[str]:
        names = self.spec.dynamic_names
        lines = ["def unflatten(_lw_key, _lw_children):", "    _lw_self = _lw_new()"]
        if names:
            targets = [f"v_{name}" for name in names]
            targets += ["_lw_hash_node"] if self.spec.hash_node is not None else []
            lines += [f"    {_tuple(targets)} = _lw_children"]
        pairs = [*((name, f"v_{name}") for name in names), (KEY, "_lw_key")]
        if self._namespace["_lw_set_dict"] is not None:
            items = ", ".join(f"{name!r}: {value}" for name, value in pairs)
            lines += [f"    _lw_set_dict(_lw_self, {{{items}}})"]
        else:
            lines += ["    _lw_put = _lw_bind(_lw_self)"]
            lines += [f"    _lw_put({name!r}, {value})" for name, value in pairs]
        return [*lines, "    return _lw_self"]

    @cached_property
    def _checked(self) -> tuple[Any, Any]:
        namespace = dict(self._namespace)
        _compile(self.spec.cls, "flatten", self._flatten(checked=True), namespace)
        return namespace["flatten"].__code__, namespace["flatten_with_keys"].__code__

    def set_checked(self, *, checked: bool) -> None:
        """Swap the code of the registered functions, so that checking costs nothing when off."""
        codes = self._checked if checked else self._plain
        self.flatten.__code__, self.flatten_with_keys.__code__ = codes


def make_properties(spec: ClassSpec) -> dict[str, property]:
    """Return a property for each static field, which reads it from the instance's key."""
    namespace: dict[str, Any] = {
        "__name__": spec.cls.__module__,
        "_lw_cls": spec.cls,
        "_lw_read_pending": construct.read_pending,
        "_lw_get": object.__getattribute__,
    }
    lines: list[str] = []
    for index, name in enumerate(spec.static_names):
        lines += _getter(spec.cls, f"get_{index}", name, f"values[{index}]")
    if lines:
        _compile(spec.cls, "statics", lines, namespace)
    properties: dict[str, property] = {}
    for index, name in enumerate(spec.static_names):
        get = _named(spec.cls, name, namespace.pop(f"get_{index}"))
        put = _named(spec.cls, name, functools.partial(construct.write_static, name))
        properties[name] = property(get, put, doc=f"The static field {name!r}, kept in the key.")
    return properties


def _key_of_self(cls: type) -> str:
    """Return code that reads the key; a wrapper's ``__getattr__`` would return another's key."""
    return f"_lw_get(self, {KEY!r})" if hasattr(cls, "__getattr__") else f"self.{KEY}"


def _getter(cls: type, function: str, name: str, value: str) -> list[str]:
    return [
        f"def {function}(self):",
        "    try:",
        f"        return {_key_of_self(cls)}.{value}",
        "    except AttributeError:",
        f"        return _lw_read_pending(self, {name!r})",
        "",
    ]


_BY_NAME: Final = "get_by_name"


def read_by_name(static: property, name: str) -> None:
    """Make a static property find its field by name: in a subclass's key the index differs."""
    getter: Any = static.fget
    if getter.__code__.co_name == _BY_NAME:
        return
    namespace = getter.__globals__
    cls = namespace["_lw_cls"]
    _compile(cls, "statics", _getter(cls, _BY_NAME, name, f"value_of({name!r})"), namespace)
    getter.__code__ = namespace.pop(_BY_NAME).__code__
