"""The parts of a value, be it a tree or a static value, and copies with other parts."""

import collections
import copy
import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax

from leafwise._classes.annotations import signature_of
from leafwise._classes.instance import exchange
from leafwise._classes.registry import registered_names, spec_of
from leafwise._classes.spec import is_decorated
from leafwise._objects.attributes import attributes, has_generated_init
from leafwise._objects.classes import per_class
from leafwise._objects.frozen import FrozenMapping
from leafwise._trees.combine import unflatten_one
from leafwise._trees.nodes import Node, open_node
from leafwise._trees.paths import field_name


class Parts(NamedTuple):
    """The parts of one value."""

    steps: tuple[str, ...]
    values: tuple[Any, ...]
    opened: tuple[Node, Sequence[Any]] | None = None


def parts_of(value: Any) -> Parts | None:
    """Return the parts of a node, statics included, or of a static value; None for a leaf."""
    kind: Any = type(value)
    if is_decorated(kind):
        fields = spec_of(kind).fields
        return _parts((f".{field.name}", getattr(value, field.name)) for field in fields)
    opened = open_node(value)
    if opened is None:
        return _plain_parts(value)
    node, children = opened
    return Parts((*node.steps, *node.names), (*children, *node.values), opened)


def _parts(pairs: Iterable[tuple[str, Any]]) -> Parts:
    parts = list(pairs)
    return Parts(tuple(step for step, _ in parts), tuple(part for _, part in parts))


def _plain_parts(value: Any) -> Parts | None:
    """Return the parts of a value that is not a node: of a static value."""
    kind: Any = type(value)
    if kind is FrozenMapping:
        return _parts((f"[{key!r}]", item) for key, item in value.items())
    if kind is functools.partial:
        return _parts((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    names = [field.name for field in _fields(kind) if hasattr(value, field.name)]
    if not names or isinstance(value, enum.Enum):
        return None
    return _parts((f".{name}", getattr(value, name)) for name in names)


def _fields(kind: Any) -> tuple[Any, ...]:
    """Return the fields of a dataclass or of an attrs class; of others there are none."""
    declared: Any = getattr(kind, "__attrs_attrs__", ())
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else tuple(declared)


def copy_with_parts(value: Any, parts: Parts, changes: Mapping[str, Any]) -> Any:
    """Return a copy of a value with other parts, all of them at once."""
    kind: Any = type(value)
    maker = _MAKERS.get(kind)
    if maker is not None:
        return maker(value, changes)
    names = {field_name(step): new for step, new in changes.items()}
    made = None if None in names else _with_fields(value, parts, names)
    if made is None and parts.opened is not None:
        made = _with_children(value, parts.opened, changes)
    if not is_decorated(kind) and registered_names(kind) is not None:
        open_node(made)  # flattening it validates its statics
    return made


def _with_fields(value: Any, parts: Parts, names: dict[Any, Any]) -> Any:
    """Return a copy that its own class makes; None if there is no such way."""
    kind: Any = type(value)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return value._replace(**names)
    takes = _parameters(kind)
    if takes.keys() >= names.keys():
        arguments = {
            parameter: names[name] if name in names else getattr(value, name)
            for name, parameter in takes.items()
        }
        return kind(**arguments)
    if is_decorated(kind):
        return exchange(value, names)
    return _with_attributes(value, names) if parts.opened is None else None


@per_class
def _parameters(kind: Any) -> dict[str, str]:
    """Return the parameters of a constructor that can run again, by field; else none.

    It cannot run again if it was written by hand, since it may take anything; if it requires an
    argument that is not a field, a `dataclasses.InitVar` without a default; or if a metaclass
    does more than call it, as for equinox, which runs ``__check_init__`` after it.
    """
    fields = _fields(kind)
    if is_decorated(kind):
        generated = not spec_of(kind).has_own_init
    else:
        plain = type(kind).__call__ is type.__call__
        generated = bool(fields) and plain and has_generated_init(kind)
    if not generated:
        return {}
    takes = {field.name: getattr(field, "alias", field.name) for field in fields if field.init}
    unknown = [
        each
        for each in signature_of(kind.__init__).parameters.values()
        if each.default is each.empty and each.name not in takes.values()
    ]
    # A wrapper takes `*args, **kwargs` for the constructor that it wraps.
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [each for each in unknown if each.kind not in open_ended]
    return takes if len(required) <= 1 else {}  # self is one


def _with_children(
    value: Any, opened: tuple[Node, Sequence[Any]], changes: Mapping[str, Any]
) -> Any:
    """Return a copy that JAX makes from other children, and set its new statics."""
    node, children = opened
    # What equinox does at the end of every construction: convert, and check. A module with a key
    # rebuilds it in its first check.
    fields = dataclasses.fields(node.cls) if dataclasses.is_dataclass(node.cls) else ()
    converters = {f".{each.name}": each.metadata.get("converter") for each in fields}
    new = {
        step: item if (convert := converters.get(step)) is None else convert(item)
        for step, item in changes.items()
    }
    pairs = zip(node.steps, children, strict=True)
    made = unflatten_one(value, [new.get(step, old) for step, old in pairs])
    for step in new.keys() - set(node.steps):
        object.__setattr__(made, step.removeprefix("."), new[step])
    for base in node.cls.__mro__:
        if (check := base.__dict__.get("__check_init__")) is not None:
            check(made)
    return made


def _with_attributes(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a copy without running a constructor that was written by hand."""
    kind: Any = type(value)
    made = object.__new__(kind)
    for name, item in {**dict(attributes(value)), **names}.items():
        object.__setattr__(made, name, item)
    return made


def _changed_sequence(value: Any, changes: Mapping[str, Any]) -> Any:
    items = list(value)
    for step, new in changes.items():
        items[int(step[1:-1])] = new
    return type(value)(items)


def _changed_mapping(value: Any, changes: Mapping[str, Any]) -> Any:
    made = copy.copy(value)  # keeps the default factory, and the order, which JAX would sort
    for key in value:
        if f"[{key!r}]" in changes:
            made[key] = changes[f"[{key!r}]"]
    if ".default_factory" in changes:
        made.default_factory = changes[".default_factory"]
    return made


def _changed_partial(value: Any, changes: Mapping[str, Any]) -> Any:
    func = changes.get(".func", value.func)
    args = changes.get(".args", value.args)
    return type(value)(func, *args, **changes.get(".keywords", value.keywords))


_MAKERS: Final[Mapping[type, Callable[[Any, Mapping[str, Any]], Any]]] = {
    **dict.fromkeys((list, tuple), _changed_sequence),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _changed_mapping),
    FrozenMapping: lambda value, new: FrozenMapping(_changed_mapping(dict(value), new)),
    **dict.fromkeys((functools.partial, jax.tree_util.Partial), _changed_partial),
}
