"""`update` and `replace`: copies of a tree, or of an instance, with some values changed."""

import collections
import copy
import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

import jax

from leafwise._classes import instance
from leafwise._classes.annotations import signature_of
from leafwise._classes.instance import check_names
from leafwise._classes.registry import registered_names, spec_of
from leafwise._classes.spec import is_decorated
from leafwise._objects.attributes import attributes, has_generated_init, instance_with
from leafwise._objects.classes import declared_fields, is_a, per_class
from leafwise._objects.frozen import FrozenMapping
from leafwise._objects.text import got
from leafwise._objects.wrong_arguments import named
from leafwise._trees.combine import unflatten_one
from leafwise._trees.nodes import Node, open_node
from leafwise._trees.paths import (
    Request,
    Steps,
    field_name,
    group_by_part,
    name_in,
    requests_of,
    whole_request,
)
from leafwise.errors import LeafwiseError

T = TypeVar("T")
Path = TypeVar("Path", bound=str | tuple[Any, ...])


@named
def update(tree: T, changes: Mapping[Path, Any]) -> T:
    """Return a copy of a tree with some values changed, including static ones.

    It takes any tree, and paths can lead into static values: ``"config.depth"`` where ``config``
    is a static field with a frozen dataclass, a tuple, a `FrozenMapping` or a partial in it.

    Every object on the path is rebuilt, from the inside out, with all its changes at once, and
    validated as in `replace`: a generated constructor runs, with converters, validators and the
    validation of statics. A constructor written by hand does not run, nor does one that
    does not take the changed fields (``init=False``): the fields are set, the changed
    ones converted and validated, and for an equinox module ``__check_init__`` runs. All
    other objects are reused.

    Args:
        tree: Any tree; it is not modified.
        changes: The new values by path: ``"encoder.act"``, ``"layers[0].w"``,
            ``"params['a b']"``, as leafwise prints them, or JAX key paths.

    Returns:
        The copy.

    Raises:
        PathError: A path leads nowhere; the message names the nearest one.
        TreeError: Two changes overlap: one path is, or is part of, the other.
        TypeError: `changes` is not a mapping from paths, or an object cannot be copied.
        Exception: Whatever constructors, converters and validators raise, with a note that
            says where.

    Examples:
        >>> @pytree
        ... class Layer:
        ...     w: float
        >>> update({"layer": Layer(1.0)}, {"['layer'].w": 2.0})
        {'layer': Layer(w=2.0)}
    """
    requests = requests_of(changes, "lw.update")
    return cast("T", _updated(tree, requests, (), tree)) if requests else tree


def _updated(value: Any, requests: Sequence[Request], path: Steps, tree: Any) -> Any:
    if whole := whole_request(requests, len(path)):
        return whole.value
    parts = parts_of(value)
    places = group_by_part(
        requests, path, value, parts and parts.steps, tree=tree, paths=_paths(tree)
    )
    if parts is None:  # a leaf: `group_by_part` has raised for every path into it
        return value
    changes: dict[str, Any] = {}
    for place, inside in places.items():
        step = parts.steps[place]
        changes[step] = _updated(parts.values[place], inside, (*path, step), tree)
    try:
        return copy_with_parts(value, parts, changes)
    except Exception as error:  # a user's constructor
        error.add_note(f"in lw.update, where {name_in(tree, path)} is rebuilt")
        raise


def _paths(tree: Any) -> Iterator[Steps]:
    """Yield the paths to everything that can be changed, outer ones first."""
    todo: collections.deque[tuple[Steps, Any]] = collections.deque([((), tree)])
    while todo:
        path, value = todo.popleft()
        yield path
        parts = parts_of(value)
        if parts is not None:
            todo += zip([(*path, step) for step in parts.steps], parts.values, strict=True)


def replace(obj: T, /, **changes: Any) -> T:
    """Return a copy of an instance with some fields changed.

    The constructor runs, as in `dataclasses.replace`, including converters, validators and the
    validation of statics. A constructor written by hand may take arguments other than
    fields, so it does not run: the fields are set, the changed ones converted
    and validated, and the statics validated. The same holds for every equinox module, whose
    ``__check_init__`` then runs. `leafwise.update` does this at any depth.

    Args:
        obj: An instance of a pytree class (or of any dataclass).
        **changes: New values by field name. Type checkers do not catch a wrong name, which
            raises at run time.

    Returns:
        An instance of the same class.

    Raises:
        TypeError: A name is not a field, or `obj` is a class.
        ValueError: A field has ``init=False``, so the generated constructor does not
            accept it.

    Examples:
        >>> @pytree
        ... class Params:
        ...     lr: float
        >>> replace(Params(0.1), lr=0.2)
        Params(lr=0.2)
    """
    if is_a(obj, type):
        raise TypeError(f"replace() takes an instance, got the class {obj.__qualname__}")
    cls = type(obj)
    if not dataclasses.is_dataclass(cls):
        raise TypeError(
            f"replace() takes an instance of a pytree class or dataclass, got {got(obj)}"
        )
    if is_decorated(cls):
        try:
            return cast("T", instance.replace(obj, **changes))
        except LeafwiseError as error:
            __tracebackhide__ = True
            raise error.without_own_frames()  # noqa: B904  # the same error
    check_names(obj, changes)
    # Calling the class with its fields runs nothing but the generated constructor.
    if type(cls).__call__ is type.__call__ and has_generated_init(cls):
        return cast("T", dataclasses.replace(cast("Any", obj), **changes))
    parts = parts_of(obj)
    steps = {f".{name}": value for name, value in changes.items()}
    return obj if parts is None else cast("T", copy_with_parts(obj, parts, steps))


class Parts(NamedTuple):
    """The parts of one value, by step."""

    steps: tuple[str, ...]
    values: tuple[Any, ...]
    opened: tuple[Node, Sequence[Any]] | None = None


def parts_of(value: Any) -> Parts | None:
    """Return the parts of a node, including statics, or of a static value; None for a leaf."""
    opened = None if is_decorated(type(value)) else open_node(value)
    if opened is not None:
        node, children = opened
        return Parts((*node.steps, *node.names), (*children, *node.values), opened)
    if type(value) is FrozenMapping:
        return Parts(tuple(f"[{key!r}]" for key in value), tuple(value.values()))
    if type(value) is functools.partial:
        names = ["func", "args", "keywords"]
    else:
        fields = () if isinstance(value, enum.Enum) else declared_fields(type(value))
        names = [field.name for field in fields if hasattr(value, field.name)]
    if not names and not is_decorated(type(value)):
        return None
    return Parts(tuple(f".{name}" for name in names), tuple(getattr(value, name) for name in names))


def copy_with_parts(value: Any, parts: Parts, changes: Mapping[str, Any]) -> Any:
    """Return a copy of a value with some parts changed, all at once, in the first way that fits."""
    kind: Any = type(value)
    if (maker := _MAKERS.get(kind)) is not None:  # `{"w": 1.0}`
        return maker(value, changes)
    names: dict[Any, Any] = {field_name(step): new for step, new in changes.items()}
    is_named, takes = None not in names, _parameters(kind)
    if is_named and issubclass(kind, tuple) and hasattr(kind, "_fields"):  # a `NamedTuple`
        result = value._replace(**names)
    elif is_named and takes.keys() >= names.keys():  # `@lw.pytree`, `@flax.struct.dataclass`
        arguments = {
            parameter: names[name] if name in names else getattr(value, name)
            for name, parameter in takes.items()
        }
        result = kind(**arguments)
    elif is_decorated(kind):  # with an `__init__` written by hand
        return instance.rebuild_with(value, names)
    elif parts.opened is not None:  # `eqx.Module`, or a class that JAX's registry knows
        result = _with_children(value, parts.opened, changes)
    else:  # a frozen dataclass with an `__init__` written by hand, as a static
        result = instance_with(kind, {**dict(attributes(value)), **names})
    if not is_decorated(kind) and registered_names(kind) is not None:
        open_node(result)  # flattening it validates its statics
    return result


@per_class
def _parameters(kind: Any) -> dict[str, str]:
    """Return the parameters of a constructor that can run again, by field; else an empty dict."""
    # It cannot run again if it was written by hand, since it may take anything; if it requires an
    # argument that is not a field, such as a `dataclasses.InitVar` without a default; or if a
    # metaclass does more than call it, as in equinox, which then runs `__check_init__`.
    fields = declared_fields(kind)
    if is_decorated(kind):
        generated = not spec_of(kind).has_own_init
    else:
        plain = type(kind).__call__ is type.__call__
        generated = bool(fields) and plain and has_generated_init(kind)
    if not generated:
        return {}
    takes = {field.name: getattr(field, "alias", field.name) for field in fields if field.init}
    unknown = [
        parameter
        for parameter in signature_of(kind.__init__).parameters.values()
        if parameter.default is parameter.empty and parameter.name not in takes.values()
    ]
    # A wrapper takes `*args, **kwargs` for the constructor that it wraps.
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [parameter for parameter in unknown if parameter.kind not in open_ended]
    return takes if len(required) <= 1 else {}  # one required parameter is `self`


def _with_children(
    value: Any, opened: tuple[Node, Sequence[Any]], changes: Mapping[str, Any]
) -> Any:
    """Return a copy that JAX unflattens from the new children, with the new statics set."""
    node, children = opened
    # Convert and check, as equinox does at the end of every construction. A module with a key
    # rebuilds the key in its first check.
    fields = dataclasses.fields(node.cls) if dataclasses.is_dataclass(node.cls) else ()
    converters = {f".{field.name}": field.metadata.get("converter") for field in fields}
    new = {
        step: item if (convert := converters.get(step)) is None else convert(item)
        for step, item in changes.items()
    }
    pairs = zip(node.steps, children, strict=True)
    result = unflatten_one(value, [new.get(step, old) for step, old in pairs])
    for step in new.keys() - set(node.steps):
        object.__setattr__(result, step.removeprefix("."), new[step])
    for base in node.cls.__mro__:
        if (check := base.__dict__.get("__check_init__")) is not None:
            check(result)
    return result


def _changed_sequence(value: Any, changes: Mapping[str, Any]) -> Any:
    return type(value)([changes.get(f"[{at}]", item) for at, item in enumerate(value)])


def _changed_mapping(value: Any, changes: Mapping[str, Any]) -> Any:
    mapping = copy.copy(value)  # keeps the default factory and the order; JAX would sort the keys
    for key in value:
        if f"[{key!r}]" in changes:
            mapping[key] = changes[f"[{key!r}]"]
    if ".default_factory" in changes:
        mapping.default_factory = changes[".default_factory"]
    return mapping


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
