"""The wording of each difference and its fix, all in one place.

A `Cause` is a fix, a note, or a function that words both from the facts of a reason, in the user's
own names and values. Code in a fix runs as it stands, and does not change what the calls return.
"""

import contextlib
import functools
import inspect
import itertools
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, member
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from leafwise._compare.changes import are_recreated, changed_parts, is_function
from leafwise._findings.reasons import Act, Advice, Change, Fix, Passing, Reason
from leafwise._objects.attributes import compares_by_identity, has_generated_init
from leafwise._objects.classes import distinct_names, is_a, module_of, public_name, read
from leafwise._objects.describe import describe
from leafwise._objects.interrupts import or_default
from leafwise._objects.methods import JITTED, BoundMethod
from leafwise._objects.parts import kind_of
from leafwise._objects.source.call_site import Site, is_users_file, short_file
from leafwise._objects.source.code import is_installed_module
from leafwise._objects.source.loops import Loop
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._objects.text import shorten, shorten_both
from leafwise._statics.account import BY_IDENTITY, differences
from leafwise._trees.equality import first_difference, jax_equal, same_entry
from leafwise._trees.leaves import Leaf


def fix(text: str, act: Act | None = None) -> Advice:
    """Return advice for a difference that the values themselves show."""
    return Advice("", Fix(text, act))


class StaticFacts(NamedTuple):
    """The facts that word a static: how its field compares functions, and where they differ."""

    by: str | None
    path: str
    # Of a static leaf under `equinox.filter_jit`: the class of its holder, and how many leaves that
    # has. Of a static argument: the names in the code of its function, and the line that makes it.
    cls: type = object
    leaves: int = 0
    reads: frozenset[str] | None = None
    made: str = ""
    # Of a number: the fix that the code of its function shows, as it needs the value.
    instead: Fix = Fix()


class Side(NamedTuple):
    """The facts that word a dtype: a leaf in one of two calls, and its Python number, if known."""

    leaf: Leaf
    number: object
    is_earlier: bool

    def converted(self, dtype: Any, name: str) -> Fix:
        """Return the fix that passes a strongly typed array, from the number or the name."""
        kind = "bool_" if str(dtype) == "bool" else str(dtype)
        getattr(jnp, kind)  # AttributeError on a JAX without this function
        if self.leaf.shape:
            return self.wrapped(f".astype(jnp.{kind})", name, f"`{{}}.astype(jnp.{kind})`")
        text = repr(self.number)
        is_code = self.number is not None and len(text) < _LONGEST_NUMBER and text[-1] not in "nf"
        return self.wrapped(f"jnp.{kind}", text if is_code else name)

    def wrapped(self, function: str, argument: str, words: str = "") -> Fix:
        """Return the fix that wraps the argument of this side's call in a function."""
        code = (function, "") if self.is_earlier else ("", function)
        words = words or f"`{function}({{}})`"
        call = "the earlier call" if self.is_earlier else "this call"
        return Fix(f"{words} in {call}", Act.CONVERT, code, (argument,))


_LONGEST_NUMBER: Final = 30  # longer ones, NaN and infinity are not written into code


def _unhashable(reason: Reason) -> Advice:
    kind = type(reason.after)
    if kind in {list, dict, set}:
        return fix("pass a tuple, or `lw.freeze` it: a static argument needs a hash")
    return fix(f"give {kind.__qualname__} `__eq__` and `__hash__`: a static argument needs a hash")


def _failing_comparison(reason: Reason) -> Advice:
    value = reason.after
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        dynamic = Fix("make it dynamic, or a `lw.StaticArray`", Act.MAKE_DYNAMIC)
        return Advice("comparing arrays raises", dynamic)
    correct = f"correct `{type(value).__qualname__}.__eq__`, or make it dynamic"
    return Advice("comparing it raises", Fix(correct, Act.MAKE_DYNAMIC))


def _argument(reason: Reason) -> Advice:
    once_or_never = Fix("always pass it, or never: a default and an argument are two programs")
    same_number = "always pass the same number of arguments: each number compiles its own program"
    if reason.path.endswith("]") and not reason.path.startswith(("args[", "kwargs[")):
        return fix(same_number)  # one of `*args`
    if reason.before is MISSING:
        return Advice("not passed before", once_or_never)
    if reason.after is MISSING:
        return Advice("passed before, but not now", once_or_never)
    return Advice(f"{reason.before} before, {reason.after} now")


def _structure(reason: Reason) -> Advice:
    before, after = reason.before, reason.after
    for one, other, words in ((before, after, "None became {}"), (after, before, "{} became None")):
        if one == "None":
            what = "an array" if other.endswith(")") else other
            always = "always pass an array there: None is part of the structure"
            return Advice(words.format(what), Fix(always))
    return fix("use the same structure each time: the types of all nodes are part of the key")


FIRST: Final = "first"
"""The details of a shape that differs from that of the only earlier program."""


def _shape(reason: Reason) -> Advice:
    before, after = reason.before, reason.after
    if len(before) != len(after):
        return Advice()
    is_first = reason.details == FIRST and before[1:] == after[1:] and before > after
    rest = "; a smaller last batch can be dropped" * is_first
    return Advice("", Fix("pad to one shape, and mask what is added{}", Act.PAD, names=(rest,)))


def _aux_data(reason: Reason) -> Advice:
    path, one, other = first_difference(reason.before, reason.after)
    advice, path = _differing(reason, StaticFacts(None, ""), "")
    where = f"at {path} of its aux_data" if path else "its aux_data"
    change = advice.change or " -> ".join(shorten_both(one, other, 40))
    return advice._replace(change=f"{change} ({where})")


def _dtype(reason: Reason) -> Advice:
    """Word the fix for two dtypes: convert to the one that holds both, never to a narrower one."""
    before, after, *numbers = reason.details
    mine, its = numbers or (None, None)
    earlier, later = sides = Side(before, mine, is_earlier=True), Side(after, its, is_earlier=False)
    name = _name_in_code(reason.path)
    try:
        dtype = _common_dtype(before, after)
        # `step(1)`, then `step(1.0)`; outside `jit`, JAX gives Python scalars a dtype.
        if all(isinstance(side.leaf.stored, type) for side in sides):
            narrow, wide = (earlier, later) if dtype == later.leaf.dtype else (later, earlier)
            kind = wide.leaf.stored
            if narrow.number is None:
                return Advice("", narrow.wrapped(kind.__name__, name))
            return Advice("", narrow.wrapped(kind.__name__, repr(kind(narrow.number)), "`{}`"))
        others = [side for side in sides if side.leaf.dtype != dtype or side.leaf.weak_type]
        fixes = [side.converted(dtype, name) for side in others]
    except (AttributeError, TypeError, ValueError):  # PRNG keys
        return fix("use one dtype: each one compiles its own program")
    words, _, code, names = zip(*fixes, strict=True)
    functions = tuple(map("".join, zip(*code, strict=True)))
    text = " and ".join(words) + _or_keep(before, after)
    return Advice("", Fix(text, Act.CONVERT, functions, sum(names, ())))


def _or_keep(before: Leaf, after: Leaf) -> str:
    """Return the other fix for a state that a call has promoted: float16, then float32."""
    strong = not (before.weak_type or after.weak_type)
    floats = all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in (before, after))
    if not (strong and floats and before.dtype.itemsize < after.dtype.itemsize):
        return ""
    return (
        f"; or keep {before.dtype}: where it becomes {after.dtype}, `.astype(jnp.{before.dtype})`, "
        "or a Python number, which does not promote it"
    )


def _common_dtype(before: Leaf, after: Leaf) -> Any:
    """Return the dtype that both calls can use; a weak type yields to the other."""
    weak, other = (before, after) if before.weak_type else (after, before)
    kinds: tuple[Any, ...] = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    mine, its = ([jnp.issubdtype(leaf.dtype, kind) for kind in kinds] for leaf in (weak, other))
    if weak.weak_type and not other.weak_type and mine.index(True) <= its.index(True):
        return other.dtype
    return jnp.promote_types(before.dtype, after.dtype)


def _name_in_code(path: str) -> str:
    """Return the name of an argument, or the path into it, with ``x`` for an unknown name."""
    path = re.sub(r"^kwargs\['(\w+)'\]", r"\1", path)
    path = re.sub(r"^(args|kwargs)\[[^]]*\]", "x", path)
    return "x" if "[<" in path else path or "x"  # JAX numbers the children of some classes


def _config(reason: Reason) -> Advice:
    name = reason.path.removeprefix("config.")
    return fix(_CONFIG_FIXES.get(name, f"use the same setting of `{name}` for all calls"))


_CONFIG_FIXES: Final = {
    "jax_enable_x64": "set `jax_enable_x64` once, at the start",
    "mesh": "make all calls under the same `jax.set_mesh`",
    "eager_constant_folding": "make all calls under `jax.ensure_compile_time_eval`, or none",
}


def _unsound(reason: Reason) -> Advice:
    _, one, other = first_difference(reason.before, reason.after)
    texts = shorten_both(one, other, 40)
    change = f"`{texts[1]}` is not `{texts[0]}`"
    if type(one) is not type(other):
        names = distinct_names(type(one), type(other))
        change += f" ({names[1]}, {names[0]})"
    return Advice(f"shared, but unsound: {change}; the first one's program runs")


def _own_equality(reason: Reason) -> Advice:
    one, other = shorten_both(reason.before, reason.after, 40)
    change = f"equal by its own `==`, though `{other}` is not `{one}`"
    return Advice(f"{change}: the first one's program runs")


def _static(reason: Reason) -> Advice:
    if not reason.details.path and (reason.before is MISSING or reason.after is MISSING):
        return Advice("only one of the two calls has this static")
    advice, path = _differing(reason, reason.details, reason.path)
    if reason.details.instead:
        advice = advice._replace(fix=reason.details.instead)
    path = _with_names(reason.before, path)
    if not path:
        return advice
    change = advice.change
    if not change and "..." in describe(reason.before):  # shortened, the texts may be the same
        _, one, other = first_difference(reason.before, reason.after)
        change = "`{}` -> `{}`".format(*shorten_both(one, other, 40))
    return advice._replace(change=f"{change or ' -> '.join(reason.words)} (at {path})")


def _differing(reason: Reason, facts: StaticFacts, name: str) -> tuple[Advice, str]:
    """Word the first parts of two statics that differ, by their name; return their path, too."""
    before, after, by_content = reason.before, reason.after, facts.by == "content"
    path, one, other = facts.path, before, after
    # By content, these are the first parts already; for a recreated partial, its arguments count.
    if not (by_content or are_recreated(before, after)):
        path, one, other = first_difference(before, after)
    is_recreated = not by_content and are_recreated(one, other)
    if is_function(one) and is_function(other) and not is_recreated:  # `sin`, then `cos`
        return Advice("another function", Fix(act=Act.NOTHING)), path
    if by_content:  # `lambda x: x * rate` with `rate` 1, then 2
        return _static_fix(one, other), path
    holder, way = _recreated_holder(before, after)
    if holder is not None:  # `optax.sgd(0.1)` in each call
        changes = changed_parts(before, after, name if way else "", facts.reads)
        advice, path = recreated_object(public_name(type(holder)), changes), "" if changes else way
    elif is_recreated:  # `lambda x: x * rate`, or `jax.jit(f)`, in each call
        changes = changed_parts(one, other, reads=facts.reads)
        wrapped = None if changes else _wrapped_again(one, other, facts.made)
        advice = wrapped or recreated_function(other, changes, _shared_data(one, other))
    else:
        return _changed_value(one, other, reason, facts, name and name + path), path
    if facts.by == "identity" and not changes:  # with the same content, it is equal by content
        words = f'{advice.fix.words}, or declare the field `lw.static_field(compare_by="content")`'
        advice = advice._replace(fix=advice.fix._replace(words=words))
    return advice, path


def _changed_value(one: Any, other: Any, reason: Reason, facts: StaticFacts, name: str) -> Advice:
    """Word two values that are not functions of the same definition, by their name."""
    # `Sampler(0.5)` in each call
    if compares_by_identity(type(other)) and type(one) is type(other) and not is_a(other, Enum):
        changes = changed_parts(one, other, name, facts.reads)
        return recreated_instance(one, other, changes, facts.made)
    if type(one) is type(other) and _hashes_apart(one, other):
        kind = type(other).__qualname__
        words = (
            f"reuse one object, or make {kind} a frozen dataclass without a `__hash__` of its own"
        )
        return Advice(f"an equal {kind} with another hash", Fix(words))
    # `step(0.5)`, then `step(0.25)`, under `equinox.filter_jit`
    if facts.cls is not object and is_a(other, float) and not math.isnan(other):
        name, model = _name_in_code(reason.path), _trained(reason.path)
        # A number that the calls return must not become weakly typed.
        function = f"jnp.{jnp.result_type(float)}" if model else "jnp.asarray"
        words = f"`{function}({{}})`: a Python number is static there{_NOT_TRAINED * len(model)}"
        act, code = (None, ()) if model else (Act.CONVERT, (function, function))
        return Advice("", Fix(words, act, code, (name, *model)))
    return _static_fix(one, other, _trained(reason.path))  # `depth=2`, then `depth=3`


def _hashes_apart(one: Any, other: Any) -> bool:
    """Return whether values are equal, but have two hashes, as with ``__hash__ = id``."""
    try:
        return bool(one == other) and hash(one) != hash(other)
    except Exception:  # noqa: BLE001  # code of user classes
        return False


def _trained(path: str) -> tuple[str, ...]:
    """Return the argument that a number is part of, as it is then trained with the argument."""
    is_part = re.fullmatch(r"\w+|(args|kwargs)\[[^]]*\]", path) is None
    return (re.sub(r"\W.*", "", _name_in_code(path)),) if is_part else ()


_NOT_TRAINED: Final = (
    "; if `{}` is trained, under `jax.lax.stop_gradient` where it is used, and without weight decay"
)


def _recreated_holder(before: Any, after: Any) -> tuple[Any, str]:
    """Return the object, such as an optimizer, recreated with its function, and its path."""
    for path, mine, its in itertools.islice(differences(before, after, BY_IDENTITY), 1):
        way, _, name = path.rpartition(".")
        holder = mine.get(way)
        is_known = is_function(holder) or module_of(type(holder)) in ("builtins", "functools")
        if not is_known and name.isidentifier() and are_recreated(mine[path], its[path]):
            return holder, way
    return None, ""


def _with_names(value: Any, path: str) -> str:
    """Return a path with a name instead of an index into pairs of names and values (flax.nnx)."""
    found = re.match(r"\[(\d+)\]\[1\]", path)
    if found is not None:
        pair = value[int(found[1])]
        if is_a(pair, tuple) and is_a(pair[0], str):
            return f"[{pair[0]!r}]{path[found.end() :]}"
    return path


def _static_fix(one: Any, other: Any, model: tuple[str, ...] = ()) -> Advice:
    if all(is_a(value, float) and math.isnan(value) for value in (one, other)):
        return fix("pass the same NaN object each time, or None: NaN is not equal to itself")
    if type(one) is not type(other):
        names = distinct_names(type(one), type(other))
        change = f"{shorten(one, 40)} ({names[0]}) -> {shorten(other, 40)} ({names[1]})"
        return Advice(change, Fix("pass values of the same type"))
    if is_a(other, int | float | complex) and not is_a(other, bool):
        model = model if is_a(other, float) else ()
        words = "pass the same value each time, or make it dynamic, if only arithmetic uses it"
        words += _NOT_TRAINED * len(model)
        return Advice("", Fix(words, Act.MAKE_DYNAMIC, names=model))
    return fix("pass the same value each time, or a few: each has its own program")


def _shared_data(one: Any, other: Any) -> str:
    """Return the names of up to two variables that both functions share, and that may change."""
    with contextlib.suppress(ValueError, AttributeError):  # wrappers of each other, an empty cell
        one, other = inspect.unwrap(one), inspect.unwrap(other)
        code, names = other.__code__, other.__globals__
        cells = zip(code.co_freevars, one.__closure__ or (), other.__closure__ or (), strict=True)
        shared = {name: cell.cell_contents for name, mine, cell in cells if mine is cell}
        within = [code, *(const for const in code.co_consts if is_a(const, types.CodeType))]
        shared |= {name: names[name] for at in within for name in at.co_names if name in names}
        data = [
            f"`{name}`"
            for name, value in shared.items()
            if not (callable(value) or is_a(value, types.ModuleType))
        ]
        return " and ".join(data[:2])
    return ""


def recreated_object(name: str, changes: Sequence[Change] = (), made: str = "") -> Advice:
    """Word an object that is recreated with its functions, and the captured values that differ."""
    change = f"a new {name} each call" + (f", made at {made}" if made else "")
    if not changes:
        return Advice(change, Fix("create it once"))
    how = f"{_passed(changes)}, and create the rest once"
    return Advice(f"{change}{_with_another(changes)}", Fix(how))


def recreated_instance(one: Any, other: Any, changes: Sequence[Change], made: str) -> Advice:
    """Word a recreated object that compares by identity, and the values in it that differ."""
    name = type(other).__qualname__
    advice = recreated_object(name, changes, made)
    if is_installed_module(module_of(type(other))):  # a class that the user cannot change
        if any("._" not in change.name for change in changes):
            few = "pass the same one each time, or a few: each one compiles its own program"
            return advice._replace(fix=Fix(few))
        words = f"create it once and pass the same one: {name} compares by identity"
        return recreated_object(name, (), made)._replace(fix=Fix(words))
    if changes:
        return advice
    why: list[str] = []
    parts = dict(kind_of(other).parts(other))
    for step, mine in kind_of(one).parts(one):
        if step in parts and (is_same := same_entry(mine, parts[step])) is not True:
            how = "compares by identity" if compares_by_identity(type(parts[step])) else "differs"
            how = "has no hash" if is_same is None else how
            why.append(f"`{step.lstrip('.')}` {how}")
    words = f"reuse one object, or make {name} a frozen dataclass: it compares by identity"
    if why:
        words = f"reuse one object: a frozen dataclass would not help, as {' and '.join(why)}"
    elif "__init__" in vars(type(other)) and not has_generated_init(type(other)):
        words += " (with fields instead of its `__init__`)"
    return advice._replace(fix=Fix(words))


def recreated_function(other: Any, changes: Sequence[Change] = (), shared: str = "") -> Advice:
    """Word a function that is recreated, and the values that it captures or reads that differ."""
    if is_a(other, types.MethodType | BoundMethod):
        how, change = "reuse one object, or pass the object and call its method", ""
        if changes:
            how, change = f"{_passed(changes)}, and reuse one object", _with_another(changes)
        return Advice(f"a method of another object{change}", Fix(how))
    name = getattr(other, "__qualname__", "")
    kind = "partial" if is_a(other, functools.partial) else "function"
    kind = "lambda" if name.endswith("<lambda>") else kind
    change = f"a new {kind} each call"
    if changes:
        how = _passed(changes)
        if any(change.is_function for change in changes):  # it cannot be passed to a jitted one
            how = f"create {named(changes)} once, pass what differs in it as an argument"
        change += _with_another(changes)
        return Advice(change, Fix(f"{how}, and define the {kind} once"))
    ways = "arguments if they change" if " and " in shared else "an argument if that changes"
    rest = f", and pass {shared} as {ways}" if shared else ""
    how = once(is_in_module="<locals>" not in name)
    return Advice(change, Fix(f"define it {how}{rest}", Act.DEFINE_ONCE))


def _wrapped_again(one: Any, other: Any, made: str) -> Advice | None:
    """Word a function that is defined once, but wrapped again in each call, or return None."""
    inner, name = inspect.unwrap(other), read(other, "__qualname__", "")
    if inner is other or jax_equal(inspect.unwrap(one), inner) is not True:
        return None
    maker = dict(zip(JITTED, ("jax.jit", "lw.jit"), strict=True)).get(type(other))
    wrapped = read(inner, "__name__", "a function")
    what = f"`{maker}({wrapped})` is recreated" if maker else f"a new wrapper of `{wrapped}`"
    how = once(is_in_module="<locals>" not in name)
    at = f", at {made}" if made else ""
    return Advice(f"{what} each call{at}", Fix(f"make it {how}", Act.DEFINE_ONCE))


@or_default(Fix())  # code of the values' own classes
def fix_through_package(reason: Reason) -> Fix:
    """Return the fix for a difference in a call that a package makes, from the user's side."""
    before, after = reason.before, reason.after
    if reason.cause is Cause.SHAPE:
        is_batch = len(before) == len(after) and before[1:] == after[1:]
        words = "pad to one size if the call takes a mask, or drop the rest"
        return Fix(words, Act.PAD) if is_batch else Fix()
    if not are_recreated(before, after):  # else a partial would be taken apart
        _, before, after = first_difference(before, after)
    changes = changed_parts(before, after)
    is_static = any(change.how is Passing.STATIC for change in changes)
    if is_static or reason.cause is not Cause.STATIC or not _is_remade_by_user(before, after):
        return Fix()
    if not (changes or is_function(after)):
        return recreated_instance(before, after, (), "").fix
    if changes:
        return function_of(named(changes))
    define, names = recreated_function(after).fix, _shared_data(before, after)
    words = f"{define.words}; if {names} changes, {function_of(names).words}"
    return Fix(words) if names else define


def function_of(names: str) -> Fix:
    """Return the fix that jits a call, and the function in it, with what changes as arguments."""
    how = "if it has no side effects"
    return Fix(f"put it and this call into a function of {names}, and `jax.jit` that once, {how}")


def sharded_first(mapping: Mapping[str, Any], variable: str, sharding: Any) -> Fix:
    """Return the fix for a variable that only later calls of a `jax.pmap` have on its devices."""
    axis = str(mapping["axis_name"])
    facts = [mapping[name] for name in ("in_axes", "devices", "backend")]
    # Then its results are sharded as those of the identity, with the same name of the axis.
    is_alike = tuple(getattr(sharding, "spec", ())) == (axis,) and facts == [0, None, None]
    named = "" if axis == "_internal_pmap_axis_name" else f", axis_name={axis!r}"
    how = f"`{variable} = jax.pmap(lambda x: x{named})({variable})`"
    if not (variable and is_alike and axis.isidentifier()):
        how = "move it to its later sharding: `jax.device_put`"
    return Fix(f"before the first call, {how}")


def _is_remade_by_user(one: Any, other: Any) -> bool:
    if not is_function(other):
        return type(one) is type(other) and not is_installed_module(module_of(type(other)))
    function = inspect.unwrap(getattr(other, "func", other))
    return are_recreated(one, other) and is_users_file(function.__code__.co_filename)


def fix_of_loop(loop: Loop, *, is_alike: bool, library: str, is_inner: bool) -> Fix:
    """Return the fix for a loop that a trace unrolls; false if no fix was measured to help."""
    match loop.kind:
        case "unroll":
            return Fix("leave out `unroll=`, or use a smaller one", Act.ROLL)
        case "for" | "while" | "reduce" | "functools.reduce" if not is_alike:
            return Fix("shapes differ between runs: pad them, or `jax.lax.scan` over equal ones")
        case "for" | "while" if library in LAYER_LOOPS:
            return Fix(f"{LAYER_LOOPS[library]}, as `jax.lax.scan` cannot hold its parameters")
        case "for" if loop.has_parts and not is_inner:
            how = "stacked outside the jitted function"
            return Fix(f"`jax.lax.scan` over the layers, {how}: it pays off from about 30 on")
        case "for" | "while" | "reduce" | "functools.reduce":
            return Fix("`jax.lax.scan` (or `fori_loop`), which traces and compiles the body once")
        case "comprehension" | "map" if is_alike:
            return Fix("`jax.vmap` (or `jax.lax.map`), which traces and compiles the body once")
        case _:
            return Fix()


LAYER_LOOPS: Final = {
    "flax": "`flax.linen.scan`",
    "haiku": "`haiku.scan`, `haiku.dynamic_unroll` or `haiku.layer_stack`",
}
"""The loops of the libraries whose layers get their parameters behind the scenes."""


def fix_of_draws(package: Sequence[str]) -> Fix:
    """Return the fix for random draws of three axes or more, by the files below user code."""
    parts = {part for file in package for part in Path(file).parts}
    if package and "flax" not in parts:
        return Fix()  # whose layers may take no such function
    is_layer = "linear.py" in parts  # or the user passes the function that draws
    how = "pass a `kernel_init=` that draws" if is_layer else "draw"
    same = f"the same numbers, unless `init` scales by fan_out, as {' and '.join(BY_FAN_OUT)} do"
    return Fix(f"{how} 2-D: `{DRAWN_2D}` has {same}")


DRAWN_2D: Final = "init(key, (math.prod(shape[:-1]), shape[-1])).reshape(shape)"
BY_FAN_OUT: Final = ("glorot", "xavier")
"""The initializers of JAX whose numbers depend on more than the last axis, and the size."""


def fix_of_constants(names: Sequence[str]) -> Fix:
    which = " and ".join(f"`{name}`" for name in names[:2]) or "them"
    return Fix(f"pass {which} as {'an argument' if len(names) == 1 else 'arguments'}")


def fix_in_code(kept: tuple[str, Site] | None, needed: tuple[str, Site] | None = None) -> Fix:
    """Return the fix for a call whose result a trace keeps, or for what needs a static's value."""
    if (use := kept or needed) is None:
        return Fix()
    what, where = use[0], f"{short_file(use[1].file)}:{use[1].line}"
    if use is needed:
        return Fix(f"pass the same value each time, or a few: {what} at {where} needs its value")
    return Fix(f"{what} runs once per trace, at {where}: pass what it returns as an argument")


def once(*, is_in_module: bool) -> str:
    """Return "once", with the place: code at module level is repeated only by a loop."""
    return "once, before the loop" if is_in_module else "once"


def named(changes: Sequence[Change]) -> str:
    return " and ".join(change.place for change in changes)


def _with_another(changes: Sequence[Change]) -> str:
    return f", with a different {' and '.join(map(str, changes))}"


def _passed(changes: Sequence[Change]) -> str:
    """Return how to pass the values that differ: "pass `a` and `b` as arguments"."""
    groups: dict[Passing, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.how, []).append(change)
    ways = (f"{named(several)} as {how.words(len(several))}" for how, several in groups.items())
    return f"pass {' and '.join(ways)}"


def _cleared_by_call(reason: Reason) -> Advice:
    where = f" at {reason.details}" if reason.details else ""
    leave_out = Fix("leave it out if the same functions are called again")
    return Advice(f"`jax.clear_caches()`{where} clears the compiled programs", leave_out)


def _unread(reason: Reason) -> Advice:
    return Advice(f"the arguments could not be read: {reason.after}")


_VARY: Final = "pcast" if hasattr(jax.lax, "pcast") else "pvary"  # before JAX 0.9


class Cause(Enum):
    """Why two calls differ, in more detail than `ReasonKind`; its value words the fix."""

    # Leaves and statics that a jitted function rejects, or that only JAX can judge.
    INVALID = fix("pass an array or a number, or mark it static")
    DELETED = fix("use what the call that donated it returned")
    ABSTRACT = fix("call with an array; `.lower` and `.eval_shape` take a ShapeDtypeStruct")
    NOT_CALLED = Advice("the earlier call cannot have been made with this")
    OTHER_TYPE = Advice("only JAX knows whether it accepts a value of this type")
    UNHASHABLE = member(_unhashable)
    FAILING_COMPARISON = member(_failing_comparison)
    # The arguments that are passed.
    ARGUMENT = member(_argument)
    MOVED_ARGUMENT = fix("always pass it the same way: each way compiles its own program")
    # Nodes.
    REDEFINED = fix("recreate the instances from the new class")
    STRUCTURE = member(_structure)
    ORDER = fix("insert in the same order: an OrderedDict's order is part of the structure")
    LENGTH = fix(
        "stack the elements in one array, or pad and mask: the length is part of the structure"
    )
    KEYS = fix("use the same keys each time")
    CHILDREN = fix("use the same children each time")
    # Statics and captures.
    STATIC = member(_static)
    UNSOUND = member(_unsound)
    OWN_EQUALITY = member(_own_equality)
    AUX_DATA = member(_aux_data)
    FILTERED = fix("always pass the same kind: filter_jit traces arrays, and all else is static")
    CAPTURE = fix("pass it as an argument, or make it a field of a pytree class")
    # Leaves.
    SHAPE = member(_shape)
    BATCH = fix("pad to one size, and mask what is added", Act.PAD)
    AXES = fix("use the same axes each time")
    RESIZED = fix(
        "preallocate or pad to one size, mask what is added, and `jax.jit` the function around it",
        Act.PAD,
    )
    DTYPE = member(_dtype)
    RAW_KEY = fix(
        "create keys the same way: `jax.random.key` in every call, or `PRNGKey` in every call"
    )
    OTHER_RESULTS = fix("use the same type in every call: the calls return different types, too")
    OTHER_VALUES = fix("use the same type in every call, if the function computes the same with it")
    VARYING = fix(f"make it vary along the same axes in every call, with `jax.lax.{_VARY}`")
    SHARDING = fix(
        "use one sharding: move both to it by `lw.shard` or `jax.device_put`, or set `in_shardings`"
    )
    ABSTRACT_SHARDING = fix(
        "give the ShapeDtypeStruct the sharding of the array: "
        "`jax.ShapeDtypeStruct(..., sharding=...)`"
    )
    COMMITTED = fix("commit it in every call, with `jax.device_put`, or in none")
    DEVICES = fix("put all arguments on the same devices with `jax.device_put`")
    TRACED = Advice("only traced so far, inside another function: compiled once on its own")
    SLOWER_CALL = fix("none needed: one slower call, the program is shared")
    DATA_MOVES = fix("none needed: one slower call, the data moves")
    # Not in the arguments.
    CONFIG = member(_config)
    JIT_IS_OFF = Advice("jit is off (`jax_disable_jit`): the function runs as plain Python")
    NO_DIFFERENCE = Advice(
        "the arguments are those of an earlier call: another `jit` of the function has other "
        "options, a cache was cleared or is full, or the earlier call failed"
    )
    AHEAD_OF_TIME = Advice("lowered ahead of time; if it is compiled already, nothing is done")
    SHARDED = Advice(
        "the function has `in_shardings` or `out_shardings`: they decide whether JAX moves the "
        "argument, recompiles, or refuses it"
    )
    UNKNOWN_ENTRY = Advice(
        "JAX does not say which dispatch entries it has: this costs one slower call, or nothing"
    )
    CLEARED = Advice("there are no dispatch entries: the caches were cleared, or cannot be used")
    CLEARED_BY_CALL = member(_cleared_by_call)
    UNSEEN_CALLS = Advice("this version of JAX does not show what it does for a call")
    UNSEEN_CONTEXT = Advice("this version of JAX does not show all that a trace depends on")
    UNREAD = member(_unread)

    def word(self, reason: Reason) -> Advice:
        wording: Advice | Callable[[Reason], Advice] = self.value
        if isinstance(wording, Advice):
            return wording
        return or_default(Advice("values whose own code raised"))(wording)(reason)

    @or_default(None)  # code of the values' own classes
    def values(self, reason: Reason) -> tuple[str, str] | None:
        """Return the class of a recreated object, or None."""
        if self is not Cause.STATIC:
            return None
        holder, way = _recreated_holder(reason.before, reason.after)
        if reason.details.by != "content" and holder is not None and not way:
            return public_name(type(holder)), "a new one"
        return None

    def merge(self, reasons: list[Reason]) -> list[Reason]:
        """Return the reasons of one object, merged into one if all its functions are recreated."""
        first, pairs = reasons[0], [(reason.before, reason.after) for reason in reasons]
        if self is not Cause.STATIC or not 1 < len(reasons) == first.details.leaves:
            return reasons
        cls = first.details.cls
        if module_of(cls) == "builtins" or not all(are_recreated(*pair) for pair in pairs):
            return reasons
        changes = {str(change): change for pair in pairs for change in changed_parts(*pair)}
        name = public_name(cls)
        words = Verbatim(name), Verbatim("a new one")
        advice = recreated_object(name, [*changes.values()])
        return [Reason(first.holder or "", first.kind, first.outcome, *words, advice)]
