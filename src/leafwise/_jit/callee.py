"""The user's function and arguments, behind those that JAX sees."""

import contextlib
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax

from leafwise._classes.annotations import annotated_static, function_scopes, without_marks
from leafwise._classes.registry import is_checking
from leafwise._compare.signature import Signature, StaticArguments, labels_of, record
from leafwise._compare.tree_differences import nnx_parts
from leafwise._objects.attributes import in_class, is_bound_method, wrapped_by
from leafwise._statics.findings import of_argument
from leafwise._statics.key import ArgumentOwner, KeyTable, StaticKey, argument_value, key_of, verify
from leafwise.errors import DefinitionError, StaticFieldError


class Marked(NamedTuple):
    """A parameter that its annotation marks as static."""

    name: str
    place: int | None
    by_name: bool
    kind: str  # its annotation, as code


@dataclasses.dataclass(frozen=True, slots=True)
class StaticParameters:
    """The marked parameters of one function."""

    function: str
    marked: tuple[Marked, ...]

    @property
    def arguments(self) -> StaticArguments:
        """Their positions and names, as `jax.jit` takes them."""
        places = (each.place for each in self.marked if each.place is not None)
        names = sorted(each.name for each in self.marked if each.by_name)
        return StaticArguments(tuple(places), tuple(names))

    def key(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments of a call with keys in place of marked values."""
        keyed, named = list(args), dict(kwargs)
        for name, place, by_name, kind in self.marked:
            if place is not None and place < len(keyed):
                keyed[place] = _key(_table(self.function, name), keyed[place], kind)
            elif by_name and name in named:
                named[name] = _key(_table(self.function, name), named[name], kind)
        return keyed, named

    def calling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `call` with keys in place of marked values."""

        def keyed(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            positional, named = self.key(args, kwargs)
            return call(*positional, **named)

        return keyed


@dataclasses.dataclass(frozen=True, slots=True)
class Callee:
    """A function as `jax.jit` got it, with its static arguments."""

    name: str
    find: Callable[[], Callable[..., Any] | None]  # returns the function, if it still lives
    statics: StaticArguments
    placed: bool = False  # with a device, to which JAX moves the arguments
    sharded: bool = False  # with shardings, which the arguments have to fit
    marked: StaticParameters | None = None  # JAX sees keys instead of their values
    timeout: float | None = None  # seconds that processes wait to compare it
    has_states: bool = True  # whether it is traced again where a capture has changed

    @property
    def options(self) -> tuple[Any, ...]:
        where = self.statics, self.placed, self.sharded
        return *where, self.marked, self.timeout, self.has_states

    @property
    def fun(self) -> Callable[..., Any]:
        fun = self.find()
        if fun is None:
            raise ReferenceError(f"the function {self.name} no longer exists")
        return fun

    def with_values(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> "functools.partial[Any]":
        """Return the function bound to the arguments of a call, values in place of their keys."""
        named = {name: argument_value(argument) for name, argument in kwargs.items()}
        return functools.partial(self.fun, *map(argument_value, args), **named)

    def record(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, abstract: bool = False
    ) -> Signature:
        """Record a call as the user wrote it; `abstract` if nothing runs."""
        if _is_filter_jit_call(self.fun, args):
            return _record_filter_jit(*args)
        if self.marked is not None:
            args, kwargs = self.marked.key(args, kwargs)
        labels = labels_of(self.fun, args, kwargs)
        labels = {**_names_of_nnx(args, labels), **labels}
        return record(args, kwargs, self.statics, abstract=abstract, labels=labels)


def _names_of_nnx(args: Sequence[Any], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of flax modules, which `nnx.jit` passes as lists, by their paths."""
    names: dict[str, str] = {}
    for place, argument in enumerate(args):
        if type(argument).__name__ == "NodeStates":
            with contextlib.suppress(Exception):  # of another flax
                path, name = f"args[{place}].states[0]", labels[f"args[{place}]"]
                graph, (values,) = argument.graphdef, argument.states
                parts = nnx_parts(iter(graph.nodes), iter(graph.attributes), name)
                kept = (step for step, part in parts if type(part).__name__ in _HOLDING)
                pairs = enumerate(zip(values, kept, strict=True))
                names |= {f"{path}[{at}]": step for at, (_, step) in pairs} | {path: name}
    return names


_HOLDING: Final = ("VariableDef", "LeafAttr")  # parts of an nnx module with arrays


def jitted_name(fun: Callable[..., Any]) -> str:
    while isinstance(fun, functools.partial):
        fun = fun.func
    return str(getattr(fun, "__name__", "<unnamed function>"))


def function_behind(fun: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """Return the user's function, where a library passes its own function to `jax.jit`."""
    if not _is_filter_jit_call(fun, args):
        return fun
    donated, kept, static = args
    behind: Callable[..., Any] = _combined({**donated, **kept}["fun"], static[0])
    return behind


def innermost(value: Any) -> Any:
    """Return the function whose code finally runs when `value` is called."""
    for _ in range(20):
        kind = type(value)  # an object may deceive `isinstance`, or raise
        if issubclass(kind, functools.partial):
            value = value.func
        elif issubclass(kind, types.MethodType) or is_bound_method(value):
            value = value.__func__
        elif (inner := wrapped_by(value)) is not None:
            value = inner
        else:
            break
    return value if type(value) is types.FunctionType else in_class(type(value), "__call__")


def capturing_function(fun: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """Return the function whose captures count; equinox passes it as an argument."""
    behind = function_behind(fun, args)
    found: Callable[..., Any] = fun if behind is fun else innermost(behind)
    return found


def code_id(fun: Callable[..., Any]) -> int:
    """Return an id that functions of the same code share, such as a new closure each call."""
    return id(getattr(innermost(fun), "__code__", fun))


def definition(fun: Callable[..., Any] | None) -> tuple[str, int]:
    """Return the file and line where a function is defined; empty and 0 if unknown."""
    inner = inspect.unwrap(innermost(fun))
    code = getattr(inner, "__code__", None)
    # Under `filter_jit`, JAX sees a wrapper made by equinox; two functions compiled from strings
    # may have nothing in common.
    if code is None or is_equinox(inner) or code.co_filename == "<string>":
        return "", 0
    return code.co_filename, code.co_firstlineno


def static_arguments(
    fun: Callable[..., Any], numbers: int | Iterable[int] | None, names: str | Iterable[str] | None
) -> StaticArguments:
    """Resolve static arguments as `jax.jit` does: names from numbers, and numbers from names."""
    given = StaticArguments.checked(numbers, names)
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return given
    from_start = given.resolved(len(parameters))
    given = StaticArguments(tuple(sorted(from_start)), tuple(sorted(given.names)))
    if (numbers is None) == (names is None):
        return given
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    both = {place: each.name for place, each in enumerate(parameters) if each.kind is either}
    if names is None:
        named = sorted(both[number] for number in given.numbers if number in both)
        return StaticArguments(given.numbers, tuple(named))
    places = (place for place, name in both.items() if name in given.names)
    return StaticArguments(tuple(places), given.names)


def is_equinox(fun: Callable[..., Any]) -> bool:
    """Return whether a function is the one that `equinox.filter_jit` passes to `jax.jit`."""
    return getattr(fun, "__module__", None) == "equinox._jit"


def _is_filter_jit_call(fun: Callable[..., Any], args: Sequence[Any]) -> bool:
    return is_equinox(fun) and len(args) == 3  # noqa: PLR2004  # donated, kept and static ones


def _record_filter_jit(donated: Any, kept: Any, static: Any) -> Signature:
    """Record a call under `equinox.filter_jit`, which partitions the arguments."""
    dynamic = {**donated, **kept}
    fun, first, (rest, kwargs) = (
        _combined(dynamic[name], part)
        for name, part in zip(("fun", "first", "rest"), static, strict=True)
    )
    # equinox appends one argument, so that there always is a first one.
    args = (first, *rest)[:-1]
    # The function comes first: every other argument is one place further on.
    shifted = {f"args[{place}]": f"args[{place + 1}]" for place in range(len(args))}
    named = labels_of(fun, args, kwargs)
    labels = {shifted.get(path, path): label for path, label in named.items()}
    labels["args[0]"] = getattr(fun, "__name__", type(fun).__name__)
    return record((fun, *args), kwargs, StaticArguments(), filtered=True, labels=labels)


def _combined(dynamic: Any, static: Any) -> Any:
    leaves, treedef = static
    pairs = zip(dynamic, leaves, strict=True)
    return jax.tree.unflatten(treedef, [mine if its is None else its for mine, its in pairs])


# The parameters that a function marks with `leafwise.Static`. JAX compares static arguments by
# ``==`` and their outermost type, so that ``(1,)`` and ``(True,)`` would share a program: it gets
# the key of each value instead.


@functools.cache
def _table(function: str, name: str) -> KeyTable:
    """Return the key table of a parameter; functions of the same name share it."""
    owner = type(function, (), {})
    table = KeyTable(owner)
    table.set_owner(ArgumentOwner(owner, (name,)))
    return table


def _key(table: KeyTable, value: Any, kind: str) -> StaticKey:
    if isinstance(value, StaticKey) and value.owner is table.owner:
        return value
    try:
        key = key_of(table, (value,))
    except StaticFieldError as error:
        findings = (of_argument(finding, kind) for finding in error.findings)
        raise StaticFieldError(*findings) from None
    if is_checking():
        verify(key)
    return key


def static_parameters(
    fun: Callable[..., Any], given: StaticArguments, depth: int
) -> StaticParameters | None:
    """Return the parameters that a function's annotations mark as static, or None."""
    name, annotated = jitted_name(fun), _annotated(fun)
    if not getattr(annotated, "__annotations__", None):  # which is faster than its signature
        return None
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):  # some builtins have none
        return None
    scopes = function_scopes(getattr(annotated, "__globals__", {}), depth + 1)
    marked: list[Marked] = []
    for place, each in enumerate(parameters):
        is_known = each.name in given.names or place in given.numbers
        if not annotated_static(f"{name}({each.name})", each.annotation, scopes, known=is_known):
            continue
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise DefinitionError(
                f"{name}({each}): JAX takes a static argument by its own position or name\n"
                f"  fix: use one parameter for each, or one tuple: "
                f"`{each.name}: lw.Static[tuple]`"
            )
        positional = None if each.kind is each.KEYWORD_ONLY else place
        by_name, kind = each.kind is not each.POSITIONAL_ONLY, without_marks(each.annotation)
        marked.append(Marked(each.name, positional, by_name, kind))
    return StaticParameters(name, tuple(marked)) if marked else None


def _annotated(fun: Any) -> Any:
    """Return the function whose signature `inspect` reads."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    if isinstance(fun, type):
        fun = vars(fun).get("__init__", fun)
    if not hasattr(fun, "__globals__") and not hasattr(fun, "__wrapped__"):
        fun = getattr(fun, "__func__", in_class(type(fun), "__call__"))
    return inspect.unwrap(fun)
