"""`hoist`: the arrays that a function captures, as an argument of it."""

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr

from leafwise._captures.bindings import bindings_of, reachable
from leafwise._captures.treatment import Treatment, contents_of, treatment_of_leaf
from leafwise._jax.context import make_context, new_number, with_number
from leafwise._objects.classes import is_a
from leafwise._objects.text import got
from leafwise._trees.combine import combine
from leafwise._trees.nodes import FlatTree
from leafwise._trees.where import partition
from leafwise.errors import HoistError, TreeError

P = ParamSpec("P")
R = TypeVar("R")


def hoist(
    fn: Callable[P, R], where: Any = None
) -> tuple[Callable[Concatenate[dict[str, Any], P], R], dict[str, Any]]:
    """Turn the arrays that a function captures into an argument of it.

    What a function reads from globals, closures, defaults, arguments of a partial, or attributes,
    JAX bakes into the program. Here it becomes a tree of arguments: it can be changed without a
    retrace, differentiated, mapped over and donated. Each call traces the function as it is, and
    exchanges the constants of the program that are one of the arrays: so jit the result.

    Args:
        fn: The function, or anything else that is callable: a partial, a bound method, a callable
            object, what `jax.jit`, `jax.vmap` or a decorator returns.
        where: Which captures: a name, or a selection made by `leafwise.where`, or anything that
            it takes, of the tree of all captures. The others stay baked in. None: all.

    Returns:
        The function ``fn2``, so that ``fn2(captured, *args)`` is ``fn(*args)``; and `captured`: a
        dict of arrays, and of trees with arrays, by the names that `leafwise.captures` has for
        them. An array that is captured in several places is there once. Numbers are not there,
        nor NumPy arrays without dimensions: JAX writes them into the program as it does numbers.

    Raises:
        PathError: `where` leads nowhere among the captures.
        TypeError: `fn` cannot be called. When ``fn2`` is called: its first argument is not a dict.
        TreeError: When ``fn2`` is called: its first argument has another structure than
            `captured`, or an array of another shape or dtype.
        HoistError: When ``fn2`` is called: JAX does not see an array of `captured`, as Python
            reads its value, or as nothing reads it in a call with these arguments. Or a rule of a
            `jax.custom_vjp` reads it, so that there is no derivative by it.

    Examples:
        >>> import functools
        >>> import jax.numpy as jnp
        >>> half, captured = hoist(functools.partial(jnp.multiply, jnp.float32(0.5)))
        >>> half({"args[0]": 2 * captured["args[0]"]}, 3.0)
        Array(3., dtype=float32)
    """
    if not callable(fn):
        raise TypeError(
            f"hoist takes a function, got {got(fn)}\n  fix: fn2, captured = lw.hoist(fn)"
        )
    captured = _captured_by(fn)
    if isinstance(where, str):
        named = (name for name in captured if f"{where}.".startswith((f"{name}.", f"{name}[")))
        if name := max(named, key=len, default=""):
            where = f"[{name!r}]{where[len(name) :]}"
    if where is not None:
        chosen, _ = partition(captured, where)
        captured = {name: tree for name, tree in chosen.items() if jax.tree.leaves(tree)}
    make_context()  # not while a hoisted function is traced
    return _hoisted(fn, captured), captured


def _captured_by(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return all arrays that a function captures, and trees with arrays, by name."""
    found: dict[str, Any] = {}
    seen: dict[int, Any] = {}
    for each in bindings_of(reachable(fn), fn):
        if each.place.is_member or each.itself:
            continue
        for name, tree in _arrays_in(each.place.read(), each.place.name, seen):
            own = f"{each.reader.rpartition('<locals>.')[2]}: {name}"
            names = itertools.chain((name, own), (f"{own} ({n})" for n in itertools.count(2)))
            found[next(name for name in names if name not in found)] = tree
    return found


def _arrays_in(value: Any, name: str, seen: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a value that have not been seen, those of a pytree as one tree."""
    arrays = [(name + leaf.path, each) for leaf, each in contents_of(value) if _is_array(each)]
    found = {id(each): (path, each) for path, each in arrays if id(each) not in seen}
    seen.update(found)
    with contextlib.suppress(Exception):  # a flatten of the user's may raise anything
        leaves, structure = jax.tree.flatten(value)
        rest = {id(each): each for each in leaves if id(each) in found}
        others = {key: pair for key, pair in found.items() if key not in rest}
        tree = jax.tree.unflatten(structure, [rest.pop(id(each), None) for each in leaves])
        yield from [(name, tree)] if len(others) < len(found) else []
        found = others
    yield from found.values()


def _is_array(value: Any) -> bool:
    """Return whether a value is an array that JAX takes as an argument, and makes a constant."""
    return treatment_of_leaf(value) is Treatment.CONSTANT and not is_a(value, jax.Ref)


def _hoisted(fn: Any, captures: dict[str, Any]) -> Any:
    arrays, structure = jax.tree.flatten(captures)
    paths = ["".join(steps) for steps in FlatTree(captures).paths]

    def hoisted(captured: dict[str, Any], /, *args: Any, **kwargs: Any) -> Any:
        values = _checked(captured, structure, paths, arrays)
        if not values:
            return fn(*args, **kwargs)
        return _Exchange(paths, arrays, values).call(fn, args, kwargs)

    functools.update_wrapper(hoisted, fn, updated=())
    del vars(hoisted)["__wrapped__"]
    with contextlib.suppress(TypeError, ValueError):  # a builtin has no signature
        own, first = inspect.signature(fn), "captured"
        while first in own.parameters:
            first += "_"
        parameter = inspect.Parameter(first, inspect.Parameter.POSITIONAL_ONLY)
        all_of_them = [parameter, *own.parameters.values()]
        vars(hoisted)["__signature__"] = own.replace(parameters=all_of_them)
    return hoisted


def _checked(given: Any, structure: Any, paths: list[str], arrays: list[Any]) -> list[Any]:
    """Return the values of a tree of the captures, which must be like these."""
    if not isinstance(given, dict):
        names = ", ".join(structure.unflatten(range(structure.num_leaves))) or "nothing"
        raise TypeError(
            f"a hoisted function takes its captures first, a dict of {names}: got {got(given)}\n"
            f"  fix: fn2(captured, *args)"
        )
    values, found = jax.tree.flatten(given)
    if found != structure:
        raise TreeError(
            f"captured has another structure: {structure} is wanted, got {found}\n"
            f"  fix: change the leaves of what lw.hoist returned: `jax.tree.map(..., captured)`"
        )
    for path, array, value in zip(paths, arrays, values, strict=True):
        wanted, aval = jax.typeof(array), jax.typeof(value)
        if (wanted.shape, wanted.dtype) != (aval.shape, aval.dtype):
            raise TreeError(
                f"captured{path} is another kind of array: {wanted.str_short()} is wanted, as the "
                f"function is traced with it, got {aval.str_short()}\n"
                f"  fix: keep its shape, and `.astype({str(wanted.dtype)!r})`"
            )
    return values


class _Exchange:
    """Calls a function once with other values in the place of arrays that it captures.

    The function is traced as it is. Of its program, those constants are exchanged that are one of
    the arrays, by identity: JAX has one constant for each array, also for one of NumPy.
    """

    def __init__(self, paths: list[str], arrays: list[Any], values: list[Any]) -> None:
        self._paths = paths
        self._values = values
        self._number = new_number()  # so that no part of a trace is an earlier one
        self._constants = self._trace(lambda: arrays)  # which are kept alive, as JAX may not
        jaxpr = self._constants.jaxpr
        known = dict(zip(jaxpr.constvars, self._constants.consts, strict=True))
        self._places = {id(known[each]): place for place, each in enumerate(jaxpr.outvars)}
        self._found: dict[tuple[Any, bool], frozenset[int]] = {}
        self._refused: dict[int, str] = {}

    def call(self, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the function, traced for these arguments, returns with the values."""
        arrays, others = partition((args, kwargs), _is_array)
        returned: list[tuple[Any, Any]] = []

        def of_arrays(traced: Any) -> list[Any]:
            args, kwargs = combine(traced, others)
            found, rest = partition(fun(*args, **kwargs), _is_array)
            leaves, structure = jax.tree.flatten(found)
            returned.append((structure, rest))
            return leaves

        program = self._trace(of_arrays, arrays)
        for place in set(range(len(self._paths))) - self._inside(program):
            self._refused.setdefault(place, _NOT_TAKEN)
        if self._refused:
            raise self._refusal()
        structure, rest = returned[-1]
        return combine(structure.unflatten(self._run(program, *jax.tree.leaves(arrays))), rest)

    def _trace(self, fun: Callable[..., Any], *args: Any) -> Any:
        with with_number(self._number):
            return jax.make_jaxpr(fun)(*args)

    def _inside(self, part: Any, *, rules: bool = True) -> frozenset[int]:
        """Return the places of the arrays that a jaxpr or an equation has as constants inside."""
        if (part, rules) not in self._found:
            consts = {id(each) for each in getattr(part, "consts", ())}
            found = {place for const, place in self._places.items() if const in consts}
            for each in part.eqns if hasattr(part, "eqns") else _programs_in(part):
                found |= self._inside(each, rules=rules)
            name = part.primitive.name if hasattr(part, "primitive") else "jit"
            if rules and name in ("custom_jvp_call", "custom_vjp_call"):
                found |= self._in_rules(part)
            if name not in _REMADE:
                self._refused.update(dict.fromkeys(found, f"a function inside {name} reads it"))
            self._found[part, rules] = frozenset(found)
        return self._found[part, rules]

    def _in_rules(self, equation: Any) -> frozenset[int]:
        """Return the places of the arrays in the derivative of an equation, made by its rules."""
        count = equation.params["num_consts"]

        def derivative(*operands: Any) -> list[Any]:
            fun = functools.partial(self._evaluate, equation, *operands[:count])
            found, pull = jax.vjp(fun, *operands[count:])
            pulled = pull(list(map(_zero_tangent, found)))
            return [each for each in pulled if each.dtype != jax.dtypes.float0]

        try:
            program = self._trace(derivative, *[each.aval for each in equation.invars])
        except Exception:  # noqa: BLE001  # of the user's rule: whoever differentiates it sees it
            return frozenset()
        return self._inside(program, rules=False)  # a rule may lead to itself

    def _run(self, program: Any, *args: Any) -> list[Any]:
        """Return what a jaxpr returns, with the values in the place of the arrays."""
        jaxpr = getattr(program, "jaxpr", program)
        places = [(self._places.get(id(each)), each) for each in getattr(program, "consts", ())]
        consts = [const if place is None else self._values[place] for place, const in places]
        if not any(map(self._inside, jaxpr.eqns)):
            return eval_jaxpr(jaxpr, consts, *args)
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

        def read(variable: Any) -> Any:
            return variable.val if hasattr(variable, "val") else known[variable]

        for each in jaxpr.eqns:
            remake = self._remake if self._inside(each) else self._evaluate
            found = remake(each, *map(read, each.invars))
            known.update(zip(each.outvars, found, strict=True))
        return list(map(read, jaxpr.outvars))

    def _evaluate(self, equation: Any, *args: Any) -> list[Any]:
        """Return what an equation returns, as it is."""
        pairs = zip(equation.invars, args, strict=True)
        given = [pair for pair in pairs if not hasattr(pair[0], "val")]
        jaxpr = self._constants.jaxpr.replace(  # which has what a jaxpr needs besides
            constvars=(),
            invars=[variable for variable, _ in given],
            outvars=equation.outvars,
            eqns=[equation],
            effects=equation.effects,
        )
        return eval_jaxpr(jaxpr, (), *[value for _, value in given])

    def _remake(self, equation: Any, *args: Any) -> list[Any]:
        """Return what an equation returns that has some of the arrays inside.

        JAX makes operands of what a loop or a branch captures. What a jitted function captures
        stays in its own jaxpr, so that is inlined, and a loop around it is built again.
        """
        run, params = self._run, equation.params
        found: Any
        match equation.primitive.name:
            case "jit":
                found = run(params["jaxpr"], *args)
            case "cond":
                branches = [functools.partial(run, each) for each in params["branches"]]
                found = jax.lax.switch(args[0], branches, *args[1:])
            case "remat2":
                options = {name: params[name] for name in ("prevent_cse", "policy")}
                found = jax.checkpoint(functools.partial(run, params["jaxpr"]), **options)(*args)
            case "while":
                first = params["cond_nconsts"]
                end = first + params["body_nconsts"]
                found = jax.lax.while_loop(
                    lambda carry: run(params["cond_jaxpr"], *args[:first], *carry)[0],
                    lambda carry: run(params["body_jaxpr"], *args[first:end], *carry),
                    list(args[end:]),
                )
            case _:  # a scan
                if "ft_in" in params:  # since JAX 0.12
                    consts, carry, rows = map(list, params["ft_in"].update(args).unpack())
                else:
                    first = params["num_consts"]
                    end = first + params["num_carry"]
                    consts, carry, rows = map(list, (args[:first], args[first:end], args[end:]))

                def body(carry: Any, row: Any) -> Any:
                    found = run(params["jaxpr"], *consts, *carry, *row)
                    return found[: len(carry)], found[len(carry) :]

                options = {name: params[name] for name in ("length", "reverse", "unroll")}
                carry, stacked = jax.lax.scan(body, carry, rows, **options)
                found = [*carry, *stacked]
        return list(found)

    def _refusal(self) -> HoistError:
        paths = {self._paths[place]: why for place, why in sorted(self._refused.items())}
        lines = [f"{path}: cannot be made an argument: {why}" for path, why in paths.items()]
        left = " | ".join(f"lw.where({path!r})" for path in paths)
        left = f"({left})" if len(paths) > 1 else left
        fix = (
            f"  fix: leave it baked in: `lw.hoist(fn, ~{left})`; or pass it as an argument of the "
            f"function yourself"
        )
        return HoistError("\n".join([*lines, fix]))


_NOT_TAKEN: Final = (
    "a call with these arguments gives JAX no such array: Python reads its value, as float(w) and "
    "np.asarray(w) do, or nothing reads it, or its name has another one by now"
)
_REMADE: Final = frozenset({"jit", "scan", "while", "cond", "remat2"})


def _programs_in(equation: Any) -> Iterator[Any]:
    """Yield the jaxprs of an equation."""
    for each in equation.params.values():
        for inner in each if isinstance(each, tuple | list) else (each,):
            if hasattr(inner, "eqns"):
                yield inner


def _zero_tangent(value: Any) -> Any:
    if jnp.issubdtype(value.dtype, jnp.inexact):
        return jnp.zeros_like(value)
    return np.zeros(value.shape, jax.dtypes.float0)
