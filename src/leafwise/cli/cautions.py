"""What other libraries do not promise, shown on a class of theirs: both calls, both results.

`SHOWN` has a function for each law that a library is known to break. Each runs what goes wrong on
the class itself, so that the warning has the results that came out, and leafwise's own spelling as
the fix.
"""

import copy
import dataclasses
import functools
import inspect
import operator
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._classes.annotations import Unknown, resolve, without_marks
from leafwise._classes.spec import written_default
from leafwise._jax.events import count_events
from leafwise._objects.classes import public_name
from leafwise._objects.text import without_addresses
from leafwise._trees.roles import duplicate, exchange, names_of
from leafwise.cli.changes import Builder
from leafwise.cli.records import Call, Caution, ClassReport, LawResult, Verdict
from leafwise.cli.targets import for_jit, is_own, library_of
from leafwise.errors import LawViolation
from leafwise.testing._format import format_leaf, format_static
from leafwise.testing._laws.keys import ONE_HASH, UNHASHABLE
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.same import lookalike_of, state_of
from leafwise.testing._laws.structure import calls_of
from leafwise.testing.strategies._constructor import parameters_of
from leafwise.testing.strategies._statics import twins


def cautions(builder: Builder, law: Law) -> list[Caution]:
    """Show how a class breaks a law that its library is known to break.

    Returns:
        One caution a field, or one for the class; none if it could not be shown.
    """
    library = library_of(builder.cls)
    try:
        return [dataclasses.replace(each, library=library) for each in SHOWN[law](builder)]
    except (Exception, SystemExit):  # noqa: BLE001  # user code: then there is nothing to show
        return []


def cautions_of_part(whole: Any, law: Law, result: LawResult) -> list[Caution]:
    """Show how the class of a part breaks a law, which JAX asks it to keep.

    Args:
        whole: An instance of the class that was checked.
        law: The law that is broken.
        result: Where it is, and by which class.

    Returns:
        As `cautions`; one that only says so if `whole` has no such part, or it cannot be shown.
    """
    owner = result.owner
    if owner is None or owner is type(whole) or is_own(owner):
        return []
    name = public_name(owner)
    note = f"found at {result.path}: the fault is one of {name}, not of {type(whole).__name__}"
    nodes = jax.tree_util.tree_leaves(whole, is_leaf=lambda node: type(node) is owner)
    part = next((node for node in nodes if type(node) is owner), None)
    shown = [] if part is None else cautions(Builder(owner, part), law)
    if not shown:
        field = result.path.rpartition(".")[2]
        message = f"{note}\n{result.message}"
        return [Caution(result.law, f"{name}.{field}", message, library=library_of(owner))]
    prefix = name.removesuffix(owner.__name__)
    return [
        dataclasses.replace(each, path=prefix + each.path, message=f"{note}\n{each.message}")
        for each in shown
    ]


CONVENTIONS: Final = (Law.STATIC_TYPES, Law.DISTINCT_CLASSES)
"""Laws that JAX itself does not keep: no class of another library can be blamed for them."""


def excuses(builder: Builder, law: Law, result: LawResult) -> list[Caution]:
    """Return what shows that a library is known to break a law, the class's or that of a part."""
    own = is_own(builder.cls)
    shown = [] if own else cautions(builder, law)
    if not shown and result.verdict is Verdict.VIOLATION:
        shown = cautions_of_part(builder.base, law, result)
        if not shown and not own and _is_convention(result):
            library = library_of(builder.cls)
            shown = [Caution(result.law, result.path, result.message, library=library)]
    return shown


def _is_convention(result: LawResult) -> bool:
    """Return whether a broken law is one that other libraries do not promise to keep."""
    unasked = any(text in result.message for text in (UNHASHABLE, ONE_HASH))
    return result.law in CONVENTIONS or (result.law == str(Law.AUX_DATA_HASH) and unasked)


def is_excused(cls: type, error: LawViolation) -> bool:
    """Return whether a broken law is a warning of `leafwise check`, not a failure."""
    law = next((law for law in SHOWN if str(law) == error.law), None)
    if law is None:
        return False
    message = without_addresses(error.message)
    result = LawResult(error.law, Verdict.VIOLATION, error.path, message, error.owner)
    try:
        return bool(excuses(Builder(cls), law, result))
    except Exception:  # noqa: BLE001  # user code: then there is nothing to show
        return False


def once_a_library(report: ClassReport, known: set[tuple[str, str]]) -> ClassReport:
    """Return a report without the warnings that say of a library what an earlier one has said.

    Args:
        report: The report.
        known: The law and the library of each; added to.
    """
    kept: list[Caution] = []
    for warning in report.warnings:
        kind = warning.law, warning.library
        is_of_field = warning.law not in CONVENTIONS and "." in warning.path
        if is_of_field or kind not in known:
            kept.append(warning)
            if not is_of_field:
                known.add(kind)
    return dataclasses.replace(report, warnings=tuple(kept))


# ------------------------------------------------------------------------ what shows them


def _types(builder: Builder) -> Iterator[Caution]:
    """Show statics that are equal and of another type, for which one program answers."""
    for name in names_of(builder.base).static:
        for one, other in _pairs(builder, name):
            shown = _confusion(name, one, other)
            if shown is not None:
                yield shown
                break


def _pairs(builder: Builder, name: str) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of instances with equal values in one field, of two types."""
    value = getattr(builder.base, name)
    pairs: list[tuple[Any, Any]] = [(1, True)] if type(value) in (bool, int) else []
    if type(value) is str:
        pairs.append((value, np.str_(value)))
    for one, other in [*pairs, *((value, twin) for twin in twins(value))]:
        first, second = (_stored(builder, name, each) for each in (one, other))
        if first is not None and second is not None and _structure(first) == _structure(second):
            yield first, second


def _stored(builder: Builder, name: str, value: Any) -> Any:
    """Return an instance with a value, or None if the class does not take it as it is."""
    made = builder.remake(name, value)
    return made if made is not None and type(getattr(made, name)) is type(value) else None


def _confusion(name: str, one: Any, other: Any) -> Caution | None:
    """Return what shows that one program answers for two instances, if it does."""
    first, second = getattr(one, name), getattr(other, name)
    kind = type(first)
    readers: list[tuple[str, Callable[[Any], Any]]] = [
        (
            f"type(p.{name}) is {kind.__name__}",
            lambda p: jnp.asarray(type(getattr(p, name)) is kind),
        )
    ]
    if isinstance(first, bool | int | float | complex):  # the dtype of a result says more
        readers.insert(0, (f"p.{name}", lambda p: jnp.asarray(getattr(p, name))))
    for text, read in readers:
        program = _program(read)
        results = [program(each) for each in (one, other)]
        truth = _program(read)(other)
        if results[1] == truth:
            continue
        cls = type(one)
        calls = [f"f({_with(one, name, value)})" for value in (first, second)]
        return Caution(
            str(Law.STATIC_TYPES),
            f"{cls.__name__}.{name}",
            f"{library_of(cls)} does not distinguish {format_static(second)} "
            f"({type(second).__name__}) from {format_static(first)} ({kind.__name__}): the second "
            f"call runs the program of the first",
            f"f = jax.jit(lambda p: jnp.asarray({text}))",
            (Call(calls[0], results[0]), Call(calls[1], results[1])),
            Call("the second call, recompiled", truth),
            spelling(one, name),
        )
    return None


def _mutable(builder: Builder) -> Iterator[Caution]:
    """Show statics that are changed in place, for which the old program answers."""
    for name in names_of(builder.base).static:
        whole = copy.deepcopy(getattr(builder.base, name))
        found = next(_changes_inside(whole, operator.attrgetter(name), f"p.{name}"), None)
        if found is None:
            continue
        value, get, where, change = found
        instance = exchange(builder.base, name, whole)
        made = f"p = {_with(instance, name, copy.deepcopy(whole))}"

        def read(p: Any, get: _Get = get, change: _InPlaceChange = change) -> Any:
            return jnp.asarray(change.read(get(p)))

        program = _program(read)
        first = program(instance)
        change.apply(value)
        second, truth = program(instance), _program(read)(instance)
        if second != truth:
            yield Caution(
                str(Law.AUX_DATA_HASH),
                f"{builder.cls.__name__}.{name}",
                f"{library_of(builder.cls)} accepts a {type(value).__name__} as a static: once it "
                f"has changed in place, the program for its old content still runs",
                f"f = jax.jit(lambda p: jnp.asarray({change.reading.format(where)}))\n{made}",
                (Call("f(p)", first), Call(f"{where}.{change.text}; f(p)", second)),
                Call("the second call, recompiled", truth),
                spelling(instance, name, freeze=True),
            )


class _InPlaceChange(NamedTuple):
    """A change of a value in place, and code that reads what it changes."""

    text: str
    apply: Callable[[Any], object]
    reading: str = "len({})"
    read: Callable[[Any], Any] = len


_CHANGES: Final[dict[type, _InPlaceChange]] = {
    list: _InPlaceChange("append(9)", operator.methodcaller("append", 9)),
    dict: _InPlaceChange("update(new=9)", operator.methodcaller("update", new=9)),
    set: _InPlaceChange("add('new')", operator.methodcaller("add", "new")),
}


_Get = Callable[[Any], Any]


def _changes_inside(
    value: Any, get: _Get, where: str, deepest: int = 5
) -> Iterator[tuple[Any, _Get, str, _InPlaceChange]]:
    """Yield what can be changed in place, in a static or inside it: the object, how it is read."""
    change = _change_in_place(value)
    if change is not None:
        yield value, get, where, change
    elif deepest and isinstance(value, tuple | Mapping):
        for key, item in enumerate(value) if isinstance(value, tuple) else value.items():

            def get_item(p: Any, key: Any = key) -> Any:
                return get(p)[key]

            yield from _changes_inside(item, get_item, f"{where}[{key!r}]", deepest - 1)
    elif deepest and dataclasses.is_dataclass(value):
        for name, item in state_of(value).items():

            def get_field(p: Any, name: str = name) -> Any:
                return getattr(get(p), name)

            yield from _changes_inside(item, get_field, f"{where}.{name}", deepest - 1)


def _change_in_place(value: Any) -> _InPlaceChange | None:
    """Return a change of a container, or of a number that an object without a hash holds."""
    kind: type = type(value)
    if kind in _CHANGES or kind.__hash__ is not None:
        return _CHANGES.get(kind)
    attributes: dict[str, Any] = getattr(value, "__dict__", {})
    for name, number in attributes.items():
        if type(number) in (int, float):
            add_one = functools.partial(_add_one, name=name)
            text = f"{name} = {number + 1}"
            return _InPlaceChange(text, add_one, f"{{}}.{name}", operator.attrgetter(name))
    return None


def _add_one(holder: Any, name: str) -> None:
    setattr(holder, name, getattr(holder, name) + 1)


def _classes(builder: Builder) -> Iterator[Caution]:
    """Show another class that is taken for this one."""
    decoy = lookalike_of(builder.base)
    if decoy is None or _structure(builder.base) != _structure(decoy):
        return
    cls = builder.cls
    one, other = for_jit(builder.base), for_jit(decoy)
    results = [jax.lax.cond(flag, lambda: one, lambda: other) for flag in (True, False)]
    if type(results[1]) is type(decoy):
        return
    yield Caution(
        str(Law.DISTINCT_CLASSES),
        cls.__name__,
        f"{library_of(cls)} does not distinguish {cls.__name__} from another class with as many "
        f"fields and equal statics",
        f"p = {cls.__name__}(...)\nother = {type(decoy).__name__}(...)  # of another class",
        tuple(
            Call(f"type(jax.lax.cond({flag}, lambda: p, lambda: other))", type(result).__name__)
            for flag, result in zip((True, False), results, strict=True)
        ),
        Call("type(other)", type(decoy).__name__),
        spelling(builder.base, ""),
    )


def _post_init(builder: Builder) -> Iterator[Caution]:
    """Show that ``__post_init__`` runs whenever JAX makes an instance."""
    cls = builder.cls
    code = getattr(getattr(cls, "__post_init__", None), "__code__", None)
    if code is None:
        return

    def identity(leaf: Any) -> Any:
        return leaf

    with calls_of((code,)) as built:
        instance = builder.build({})
    with calls_of((code,)) as mapped:
        jax.tree.map(identity, instance)
    times = [f"__post_init__ ran {_times(len(each))}" for each in (built, mapped)]
    if built and mapped:
        yield Caution(
            str(Law.POST_INIT),
            f"{cls.__name__}.__post_init__",
            f"{library_of(cls)} runs __post_init__ again whenever JAX rebuilds an instance, with "
            f"tracers or None for leaves",
            "",
            (
                Call(f"p = {cls.__name__}(...)", times[0]),
                Call("jax.tree.map(lambda leaf: leaf, p)", times[1]),
            ),
            None,
            spelling(instance, ""),
        )


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")


def _caches(builder: Builder) -> Iterator[Caution]:
    """Show an attribute that is computed once, whose reading changes the treedef."""
    cls = builder.cls
    cached = {
        name
        for base in cls.__mro__
        for name, value in vars(base).items()
        if isinstance(value, functools.cached_property)
    }
    for name in sorted(cached):
        instance = duplicate(builder.base)
        before = _structure(instance)
        program = _program(lambda _: jnp.zeros(()))
        with count_events() as first:
            program(instance)
        try:
            getattr(instance, name)
        except Exception:  # noqa: BLE001, S112  # user code, with arguments that fit nothing
            continue
        with count_events() as second:
            program(instance)
        with count_events() as other:
            program(duplicate(builder.base))
        if before != _structure(instance) and second.traces:
            yield Caution(
                str(Law.STABLE_TREEDEF),
                f"{cls.__name__}.{name}",
                f"{library_of(cls)} counts what a cached_property keeps among the statics: "
                f"reading it once makes JAX retrace and recompile",
                f"f = jax.jit(...)\np = {cls.__name__}(...)",
                (
                    Call("f(p)", f"traced {_times(first.traces)}"),
                    Call(f"p.{name}; f(p)", f"traced {_times(second.traces)} more"),
                ),
                Call("f(copy of p, where it was not read)", f"traced {_times(other.traces)}"),
                spelling(instance, ""),
            )


SHOWN: Final[dict[Law, Callable[[Builder], Iterator[Caution]]]] = {
    Law.STATIC_TYPES: _types,
    Law.AUX_DATA_HASH: _mutable,
    Law.STABLE_TREEDEF: _caches,
    Law.POST_INIT: _post_init,
    Law.DISTINCT_CLASSES: _classes,
}
"""The laws that other libraries are known to break, and what shows it."""


# ------------------------------------------------------------------------ instances and programs


def _structure(tree: Any) -> Any:
    return jax.tree_util.tree_structure(tree)


def _with(instance: Any, name: str, value: Any) -> str:
    others = [each for kind in names_of(instance) for each in kind if each != name]
    return f"{type(instance).__name__}({name}={format_static(value)}{', ...' if others else ''})"


def _program(read: Callable[[Any], Any]) -> Callable[[Any], str]:
    """Return a jitted function that shares no program with others; its results as text."""

    def own(tree: Any) -> Any:
        return read(tree)

    function = jax.jit(own)
    return lambda tree: format_leaf(function(for_jit(tree)))


# ------------------------------------------------------------------------ the fix


def spelling(instance: Any, name: str, *, freeze: bool = False) -> str:
    """Return the class as leafwise has it: its name, and the one static field.

    Args:
        instance: An instance.
        name: The static field; empty for none.
        freeze: Whether the field's values can change in place.
    """
    cls, library = type(instance), library_of(type(instance))
    bases = [base.__name__ for base in cls.__bases__ if base.__module__ == cls.__module__]
    head = ["@lw.pytree(replace=True)" if library in ("chex", "flax.struct") else "@lw.pytree"]
    if library == "equinox":
        head, bases = ["from leafwise.interop.equinox import Module", ""], [*bases, "Module"]
        if cls.__module__.partition(".")[0] == "equinox":  # one of its own is derived from
            return "\n".join([*head, f"class {cls.__name__}({public_name(cls)}, Module): ..."])
    inside = f"({', '.join(bases)})" if bases else ""
    lines = [*head, f"class {cls.__name__}{inside}:", "    ..."]
    if name:
        lines.append(f"    {static_declaration(instance, name, 'freeze=True' * freeze)}")
    return "\n".join(lines)


def static_declaration(instance: Any, name: str, more: str = "") -> str:
    """Return how leafwise declares a static field of a class, with one more option."""
    options = ", ".join(filter(None, (_default(type(instance), name), more)))
    return f"{name}: {_annotation(instance, name)} = lw.static_field({options})"


def _annotation(instance: Any, name: str) -> str:
    """Return what a field is annotated with, without the marks of other libraries."""
    cls = type(instance)
    for base in cls.__mro__:
        own = inspect.get_annotations(base)
        if name in own:
            kind = resolve(base, name, own[name], [])
            if isinstance(kind, Unknown):
                kind = own[name]
            elif typing.get_origin(kind) is typing.Annotated:  # as `jax_dataclasses.Static[int]` is
                kind = typing.get_args(kind)[0]
            return _text(kind)
    kinds = [each.kind for each in parameters_of(cls) if each.name == name]
    known = kinds and kinds[0] is not inspect.Parameter.empty
    return _text(kinds[0] if known else type(getattr(instance, name)))


def _text(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    text = kind.__name__ if type(kind) is type else str(without_marks(kind))
    return re.sub(r"\b(typing|builtins|collections\.abc|__main__)\.", "", without_addresses(text))


def _default(cls: Any, name: str) -> str:
    """Return a default as it is written, if that is short; an empty text for none."""
    fields = getattr(cls, "__dataclass_fields__", None) or inspect.signature(cls).parameters
    for option in ("default", "default_factory"):
        value = getattr(fields.get(name), option, dataclasses.MISSING)
        if value is not dataclasses.MISSING and value is not inspect.Parameter.empty:
            return f"{option}={written_default(cls, name, value)}"
    return ""
