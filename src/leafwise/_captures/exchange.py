"""Calling a function with other values in the place of arrays that it captures."""

import functools
import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr

from leafwise._jax.context import new_number, with_number
from leafwise._objects.classes import is_a
from leafwise.errors import HoistError

Run: TypeAlias = Callable[..., list[Any]]
"""Returns what a jaxpr, its first argument, returns for the others."""


def _trace(fun: Callable[..., Any], *args: Any) -> Any:
    """Return the jaxpr of a function, of which no part comes from an earlier trace."""
    with with_number(new_number()):
        return jax.make_jaxpr(fun)(*args)


def is_array(value: Any) -> bool:
    """Return whether a value is an array that JAX takes as an argument."""
    if not is_a(value, np.ndarray):
        return is_a(value, jax.Array) and not is_a(value, _REF)
    try:
        jax.typeof(value)
    except Exception:  # noqa: BLE001  # text, objects, masked arrays: each is refused in its way
        return False
    return bool(value.dtype != jax.dtypes.float0)


_REF: Final[Any] = getattr(jax, "Ref", ())
_ARRAY: Final = object()
"""Stands where an array was."""
_NONE: Final[Mapping[str, Any]] = types.MappingProxyType({})


class Exchange:
    """Calls a function with other values in the place of arrays that it captures.

    The function is traced as it is. Of its program, those constants are exchanged that are one of
    the arrays, by identity: JAX has one constant for each array, also for one of NumPy.

    Args:
        arrays: What the function captures, by paths for `leafwise.where`. NumPy arrays without
            dimensions are none: JAX makes literals of them.
        values: What is to stand in the place of each.
    """

    def __init__(self, arrays: Mapping[str, Any], values: Sequence[Any]) -> None:
        self._paths = list(arrays)
        self._values = values
        self._owners = {id(array): place for place, array in enumerate(arrays.values())}
        self._constants = _trace(lambda: list(arrays.values()))
        jaxpr = self._constants.jaxpr
        known = dict(zip(jaxpr.constvars, self._constants.consts, strict=True))
        self._places = {id(known[each]): place for place, each in enumerate(jaxpr.outvars)}
        self._found: dict[int, frozenset[int]] = {}
        self._refused: dict[int, str] = {}
        self._kept: list[Any] = []  # what is known by its id

    def call(
        self,
        fun: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] = _NONE,
        *,
        takes_all: bool = False,
    ) -> Any:
        """Return what the function returns with the values in the place of the arrays.

        It is traced for these arguments. What is no array stays what it is, in the arguments and
        in what is returned.

        Args:
            fun: The function.
            args: Its positional arguments.
            kwargs: Its arguments by name.
            takes_all: Whether the program must have all arrays.

        Raises:
            HoistError: An array is no constant of the program, or cannot be exchanged there.
        """
        flat: tuple[list[Any], Any] = jax.tree.flatten((tuple(args), dict(kwargs)))
        leaves, structure = flat
        arrays = list(filter(is_array, leaves))
        returned: list[Any] = []

        def of_arrays(*traced: Any) -> list[Any]:
            args, kwargs = structure.unflatten(_filled(leaves, traced))
            found, form = jax.tree.flatten(fun(*args, **kwargs))
            returned[:] = form, [_ARRAY if is_array(leaf) else leaf for leaf in found]
            return list(filter(is_array, found))

        of_arrays.__name__ = getattr(fun, "__name__", "hoisted")
        program = _trace(of_arrays, *arrays)
        self._kept.append(program)
        found = self._in_program(program)
        if takes_all:
            for place in set(range(len(self._paths))) - found:
                self._refused.setdefault(place, _NOT_TAKEN)
        if self._refused:
            raise self._refusal()
        form, others = returned
        return form.unflatten(_filled(others, self._run(program, *arrays)))

    def _in_program(self, program: Any, *, rules: bool = True) -> frozenset[int]:
        """Return the places of the arrays that a jaxpr has as constants, at any depth.

        Args:
            program: The jaxpr.
            rules: Whether to look into rules for derivatives, which may lead to themselves.
        """
        if id(program) not in self._found:
            consts = [self._place_of(const) for const in getattr(program, "consts", ())]
            found = {place for place in consts if place is not None}
            inside = [self._in_equation(each, rules=rules) for each in program.eqns]
            self._found[id(program)] = frozenset(found).union(*inside)
        return self._found[id(program)]

    def _in_equation(self, equation: Any, *, rules: bool = True) -> frozenset[int]:
        """Return the places of the arrays that the jaxprs of an equation have as constants."""
        if id(equation) not in self._found:
            name, programs = equation.primitive.name, _programs_in(equation.params)
            found = [self._in_program(each, rules=rules) for each in programs]
            if rules and name in _RULES:
                found += [self._in_program(each, rules=False) for each in self._rules_of(equation)]
            places = self._found[id(equation)] = frozenset().union(*found)
            if name not in _REMAKES and name not in _RULES:
                why = f"a jitted function inside {name} reads it"
                self._refused.update(dict.fromkeys(places, why))
        return self._found[id(equation)]

    def _rules_of(self, equation: Any) -> list[Any]:
        """Return the jaxpr of the derivative of an equation, which JAX makes by a rule."""

        def derivative(*args: Any) -> list[Any]:
            consts, args = _split(equation, args)
            if equation.primitive.name == "custom_jvp_call":
                zeros = tuple(map(_zero_tangent, args))
                found, tangents = self._jvp(equation, consts, args, zeros)
            else:
                found, pull = self._vjp(equation, consts, *args)
                tangents = pull(list(map(_zero_tangent, found)))
            return list(filter(is_array, (*found, *tangents)))

        try:
            self._kept.append(_trace(derivative, *[each.aval for each in equation.invars]))
        except Exception:  # noqa: BLE001  # of the user's rule: whoever differentiates it sees it
            return []
        return self._kept[-1:]

    def _place_of(self, const: Any) -> int | None:
        """Return which of the arrays a constant is; refuse a NumPy view of one."""
        if id(const) not in self._places:
            base = const
            while is_a(base, np.ndarray) and id(base) not in self._owners:
                base = base.base.obj if is_a(base.base, memoryview) else base.base
            if id(base) in self._owners:
                self._refused[self._owners[id(base)]] = _VIEWED
        return self._places.get(id(const))

    def _run(self, program: Any, *args: Any) -> list[Any]:
        """Return what a jaxpr returns, with the values in the place of the arrays."""
        jaxpr = getattr(program, "jaxpr", program)
        places = [(const, self._place_of(const)) for const in getattr(program, "consts", ())]
        consts = [const if place is None else self._values[place] for const, place in places]
        if not any(map(self._in_equation, jaxpr.eqns)):
            return eval_jaxpr(jaxpr, consts, *args)
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

        def read(variable: Any) -> Any:
            return variable.val if _is_literal(variable) else known[variable]

        for each in jaxpr.eqns:
            given = list(map(read, each.invars))
            if self._in_equation(each):
                found = self._remade(each, given)
            else:
                found = self._evaluate(each, *given)
            known.update(zip(each.outvars, found, strict=True))
        return list(map(read, jaxpr.outvars))

    def _remade(self, equation: Any, args: Sequence[Any]) -> Any:
        """Return what an equation returns that has some of the arrays inside."""
        if remake := _REMAKES.get(equation.primitive.name):
            return remake(equation.params, self._run, args)
        consts, args = _split(equation, args)
        itself = functools.partial(self._run, equation.params["call_jaxpr"], *consts)
        # The rules close over the values: as JAX has it, there is no derivative by what they read.
        if equation.primitive.name == "custom_jvp_call":
            by_jvp: Any = jax.custom_jvp(itself)
            by_jvp.defjvp(self._rule(functools.partial(self._jvp, equation), consts))
            return by_jvp(*args)
        by_vjp: Any = jax.custom_vjp(itself)
        forward = functools.partial(self._vjp, equation)
        by_vjp.defvjp(self._rule(forward, consts), self._rule(_applied))
        return by_vjp(*args)

    def _rule(self, fun: Callable[..., Any], *first: Any) -> Callable[..., Any]:
        def rule(*args: Any) -> Any:
            return self.call(fun, (*first, *args))

        return rule

    def _jvp(self, equation: Any, consts: Any, args: Any, tangents: Any) -> Any:
        return jax.jvp(functools.partial(self._evaluate, equation, *consts), args, tangents)

    def _vjp(self, equation: Any, consts: Any, *args: Any) -> Any:
        return jax.vjp(functools.partial(self._evaluate, equation, *consts), *args)

    def _evaluate(self, equation: Any, *args: Any) -> list[Any]:
        """Return what an equation returns, as it is."""
        pairs = zip(equation.invars, args, strict=True)
        given = [pair for pair in pairs if not _is_literal(pair[0])]
        jaxpr = self._constants.jaxpr.replace(  # which has what a jaxpr needs besides
            constvars=(),
            invars=[variable for variable, _ in given],
            outvars=equation.outvars,
            eqns=[equation],
            effects=equation.effects,
        )
        return eval_jaxpr(jaxpr, (), *[value for _, value in given])

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
_VIEWED: Final = "the program has a NumPy array that shares its memory, as np.asarray(w) does"


def _filled(leaves: Sequence[Any], arrays: Iterable[Any]) -> list[Any]:
    """Return leaves with others in the place of the arrays."""
    given = iter(arrays)
    return [next(given) if leaf is _ARRAY or is_array(leaf) else leaf for leaf in leaves]


def _is_literal(variable: Any) -> bool:
    return hasattr(variable, "val")


def _programs_in(params: Mapping[str, Any]) -> list[Any]:
    """Return the jaxprs among the parameters of an equation."""
    groups = [each if isinstance(each, tuple | list) else (each,) for each in params.values()]
    return [each for each in itertools.chain(*groups) if hasattr(each, "eqns")]


def _split(equation: Any, args: Sequence[Any]) -> tuple[Any, Any]:
    """Return what a function with a rule captures, and its own arguments."""
    count = equation.params["num_consts"]
    return tuple(args[:count]), tuple(args[count:])


def _applied(fun: Callable[[Any], Any], arg: Any) -> Any:
    return fun(arg)


def _zero_tangent(value: Any) -> Any:
    if jnp.issubdtype(value.dtype, jnp.inexact):
        return jnp.zeros_like(value)
    return np.zeros(value.shape, jax.dtypes.float0)


# --------------------------------------------------------------------------- remade equations
# JAX makes operands of what a loop or a branch captures. What a jitted function captures stays in
# its own jaxpr, so it is jitted again, and so is the loop around it.


def _jit(params: Mapping[str, Any], run: Run, args: Sequence[Any]) -> Any:
    def jitted(*args: Any) -> tuple[Any, ...]:
        return tuple(run(params["jaxpr"], *args))

    jitted.__name__ = params["name"]
    names = ("in_shardings", "out_shardings", "keep_unused", "inline")
    return jax.jit(jitted, **{name: params[name] for name in names})(*args)


def _scan(params: Mapping[str, Any], run: Run, args: Sequence[Any]) -> Any:
    if "ft_in" in params:  # since JAX 0.12
        consts, carry, rows = map(list, params["ft_in"].update(args).unpack())
    else:
        first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
        consts, carry, rows = map(list, (args[:first], args[first:second], args[second:]))

    def body(carry: Any, row: Any) -> Any:
        found = run(params["jaxpr"], *consts, *carry, *row)
        return found[: len(carry)], found[len(carry) :]

    options = {name: params[name] for name in ("length", "reverse", "unroll")}
    carry, found = jax.lax.scan(body, carry, rows, **options)
    return [*carry, *found]


def _while(params: Mapping[str, Any], run: Run, args: Sequence[Any]) -> Any:
    first, count = params["cond_nconsts"], params["body_nconsts"]
    return jax.lax.while_loop(
        lambda carry: run(params["cond_jaxpr"], *args[:first], *carry)[0],
        lambda carry: run(params["body_jaxpr"], *args[first : first + count], *carry),
        list(args[first + count :]),
    )


def _cond(params: Mapping[str, Any], run: Run, args: Sequence[Any]) -> Any:
    branches = [functools.partial(run, each) for each in params["branches"]]
    return jax.lax.switch(args[0], branches, *args[1:])


def _checkpoint(params: Mapping[str, Any], run: Run, args: Sequence[Any]) -> Any:
    options = {name: params[name] for name in ("prevent_cse", "policy")}
    return jax.checkpoint(functools.partial(run, params["jaxpr"]), **options)(*args)


_REMAKES: Final[Mapping[str, Callable[[Mapping[str, Any], Run, Sequence[Any]], Any]]] = {
    "jit": _jit,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "remat2": _checkpoint,
}
_RULES: Final = frozenset({"custom_jvp_call", "custom_vjp_call"})
