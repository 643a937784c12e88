"""What to do about each difference, in one sentence: worded when a reason is shown.

A `Cause` is a sentence, or a function that words one from the facts of a reason, in the user's own
names and values.
"""

import contextlib
import functools
import inspect
import math
import re
import types
from enum import Enum, member
from typing import TYPE_CHECKING, Any, Final

import jax.numpy as jnp

from leafwise._objects.attributes import compares_by_identity
from leafwise._objects.classes import is_a, is_alias, module_of, public_name
from leafwise._objects.code import is_installed_module
from leafwise._objects.describe import describe
from leafwise._objects.methods import BoundMethod
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import shorten
from leafwise._trees.equality import first_difference
from leafwise._trees.leaves import LeafKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leafwise._compare.reasons import Reason
    from leafwise._trees.leaves import Leaf


def _unhashable(reason: "Reason") -> str:
    kind = type(reason.after)
    if kind in {list, dict, set}:
        return "A static argument needs a hash: pass a tuple, or use `leafwise.freeze`."
    return f"A static argument needs a hash: give {kind.__qualname__} `__eq__` and `__hash__`."


def _failing_comparison(reason: "Reason") -> str:
    value = reason.after
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return "An array cannot be compared as a static: make it dynamic, or a StaticArray."
    return f"Comparing it raises: fix `{_type_name(value)}.__eq__`, or make it dynamic."


def _argument(reason: "Reason") -> str:
    path = reason.path
    if path.endswith("]") and not path.startswith(("args[", "kwargs[")):  # one of `*args`
        return "Each number of arguments has a program of its own."
    if reason.before is MISSING:
        return "Not given before: a default and an argument are two programs."
    if reason.after is MISSING:
        return "Given before: a default and an argument are two programs."
    return f"It was {reason.before} before and is {reason.after} now."


def _another_class(reason: "Reason") -> str:
    classes = reason.before, reason.after
    return " is not ".join(f"{each.__module__}.{each.__qualname__}" for each in classes) + "."


def _structure(reason: "Reason") -> str:
    before, after = reason.before, reason.after
    if before == "None":
        what = "an array" if after.endswith(")") else after
        return f"None became {what}: None is structure; keep an array there."
    if after == "None":
        what = "an array" if before.endswith(")") else before
        return f"{what} became None: None is structure; keep an array there."
    return "Keep one structure: the types of all nodes are part of the key."


def _dtype(reason: "Reason") -> str:
    """Word the fix for two dtypes: convert to the one that holds both, and never to a narrower."""
    before, after, *numbers = reason.details
    one_number, other_number = numbers or (None, None)
    name = _name_in_code(reason.path)
    kinds = [each.stored for each in (before, after)]
    # JAX's own Python scalars, which it makes of those in operations outside `jit`, have a dtype.
    if {before.kind, after.kind} == {LeafKind.PYTHON_SCALAR} and all(
        isinstance(kind, type) for kind in kinds
    ):
        one, other = (each.__name__ for each in kinds)
        is_wider = _common_dtype(before, after) == after.dtype
        wide, which = (kinds[1], "the earlier call") if is_wider else (kinds[0], "this call")
        number = one_number if is_wider else other_number
        code = f"{wide.__name__}({name})" if number is None else repr(wide(number))
        return f"`{one}` and `{other}` are two dtypes: pass `{code}` in {which}."
    try:
        dtype = _common_dtype(before, after)
        calls = [
            f"`{_converted(each, dtype, name, number)}` in {which}"
            for each, number, which in (
                (before, one_number, "the earlier call"),
                (after, other_number, "this call"),
            )
            if each.dtype != dtype or each.weak_type
        ]
    except (AttributeError, TypeError):  # such as that of keys
        return "Keep one dtype: each has a program of its own."
    return f"Convert to one dtype: {', and '.join(calls)}."


def _common_dtype(before: "Leaf", after: "Leaf") -> Any:
    """Return the dtype that both calls can have; a weak one gives way."""
    weak, other = (before, after) if before.weak_type else (after, before)
    if weak.weak_type and not other.weak_type and _category(weak) <= _category(other):
        return other.dtype
    return jnp.promote_types(before.dtype, after.dtype)


def _category(leaf: "Leaf") -> int:
    kinds: tuple[Any, ...] = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    found = [place for place, kind in enumerate(kinds) if jnp.issubdtype(leaf.dtype, kind)]
    return found[0] if found else len(kinds)


def _converted(leaf: "Leaf", dtype: Any, name: str, number: object) -> str:
    """Return code that makes a strongly typed array of a leaf, from its value or its name."""
    kind = "bool_" if str(dtype) == "bool" else str(dtype)
    getattr(jnp, kind)  # raises where there is none
    if leaf.shape:
        return f"{name}.astype(jnp.{kind})"
    text = repr(number)
    is_code = number is not None and len(text) < _LONGEST_NUMBER and text[-1] not in "nf"
    return f"jnp.{kind}({text if is_code else name})"


_LONGEST_NUMBER: Final = 30
"""Longer ones, NaN and infinity are not written into code."""


def _name_in_code(path: str) -> str:
    """Return the name of an argument, or the way into it: ``x`` where no name is known."""
    path = re.sub(r"^kwargs\['(\w+)'\]", r"\1", path)
    path = re.sub(r"^(args|kwargs)\[[^]]*\]", "x", path)
    return "x" if "[<" in path else path or "x"  # JAX numbers the children of some classes


def _weak_type(reason: "Reason") -> str:
    before, after, *numbers = reason.details
    weak = before if before.weak_type else after
    which = "the earlier call" if weak is before else "this call"
    number = (numbers or (None, None))[weak is not before]
    code = _converted(weak, weak.dtype, _name_in_code(reason.path), number)
    return f"pass `{code}` in {which}."


def _config(reason: "Reason") -> str:
    name = reason.path.removeprefix("config.")
    if name == "jax_enable_x64":
        return "x64 differs: set `jax_enable_x64` once, at the start."
    if name == "mesh":
        return "The mesh differs: make all calls under one `jax.set_mesh`."
    if name == "eager_constant_folding":
        return "Make all calls under `jax.ensure_compile_time_eval`, or none."
    return f"`{name}` differs: make all calls under one setting."


def _unsound(reason: "Reason") -> str:
    _, one, other = first_difference(reason.before, reason.after)
    change = f"`{_short(other)}` is not `{_short(one)}`"
    if type(one) is not type(other):
        names = distinct_names(type(one), type(other))
        change += f" ({names[1]}, {names[0]})"
    return f"Shared, but unsound: {change}; the first one's program answers."


def _static(reason: "Reason") -> str:
    """Word the fix for a static; the details say how its field compares functions, and where."""
    one, other, (by, path, *_) = reason.before, reason.after, reason.details
    if not path and (one is MISSING or other is MISSING):
        return "Only one of the two calls has this static."
    if (holder := rebuilt(reason)) is not None:
        change = changed_part(one, other)
        content = _BY_CONTENT if by == "identity" and not change else ""
        return f"{fresh_object(holder, change)}{content}."
    if by != "content":  # else these are the first parts that differ
        path, one, other = first_difference(one, other)
    if by == "content" and _is_function(one) and _is_function(other):
        fix: str | None = ANOTHER_FUNCTION  # a rebuilt one of the same content is equal
    else:
        fix = _static_fix(one, other)
    is_fresh = fix is not None and fix.startswith("fresh ") and _WITH_ANOTHER not in fix
    if by == "identity" and is_fresh:
        fix = f"{fix}{_BY_CONTENT}"
    path = _with_names(reason.before, path)
    where = f" (at {path})" if path else ""
    if path and "..." in describe(reason.before):  # else the two texts may be one
        where = f" (at {path}: `{_short(one)}` -> `{_short(other)}`)"
    return f"{fix or 'each new value is traced and compiled'}{where}."


_WITH_ANOTHER: Final = "each call, with another value in it"
_BY_CONTENT: Final = ', or declare the field `lw.static_field(by="content")`'


def rebuilt(reason: "Reason") -> str | None:
    """Return the class of a static that is built again, with functions in it that are recreated.

    An optimizer, for example. None where a static differs in another way, or has no class of its
    own.
    """
    if reason.cause is not Cause.STATIC or reason.details[0] == "content":
        return None
    cls = type(reason.before)
    if module_of(cls) in ("builtins", "functools"):
        return None
    with contextlib.suppress(Exception):  # code of the values' own classes
        path, one, other = first_difference(reason.before, reason.after)
        if re.fullmatch(r"\.\w+", path) and are_recreated(one, other):
            return class_name(cls)
    return None


def class_name(cls: type) -> str:
    return public_name(cls).removeprefix("__main__.")


def are_recreated(one: Any, other: Any) -> bool:
    """Return whether both are functions of one definition, or of a function that returns them."""
    if not (_is_function(one) and _is_function(other)):
        return False
    return _same_definition(one, other) or "<locals>" in getattr(other, "__qualname__", "")


def _with_names(value: Any, path: str) -> str:
    """Return a path into pairs of names and values, as flax.nnx keeps attributes, by the name."""
    found = re.match(r"\[(\d+)\]\[1\]", path)
    if found is None:
        return path
    with contextlib.suppress(Exception):  # code of the values' own classes
        pair = value[int(found[1])]
        if is_a(pair, tuple) and len(pair) == _PAIR and is_a(pair[0], str):
            return f"[{pair[0]!r}]{path[found.end() :]}"
    return path


_PAIR: Final = 2


ANOTHER_FUNCTION: Final = "another function: each has a program of its own"


def _static_fix(one: Any, other: Any) -> str | None:
    if _is_function(one) and _is_function(other):
        if are_recreated(one, other):
            return fresh_function(other, changed_part(one, other), _shared_data(one, other))
        return ANOTHER_FUNCTION
    if all(is_a(each, float) and math.isnan(each) for each in (one, other)):
        return "NaN is not equal to itself: keep one NaN object, or use None"
    if type(one) is not type(other):
        names = distinct_names(type(one), type(other))
        pairs = ((other, names[1]), (one, names[0]))
        got, was = (f"`{_short(each)}` ({name})" for each, name in pairs)
        return f"differs by type: {got} is not {was}"
    if compares_by_identity(type(one)) and not is_a(other, Enum):
        name = _type_name(other)
        if is_installed_module(module_of(type(other))):  # which the user cannot change
            return f"{name} compares by identity: make it once, and pass the same one"
        return f"{name} compares by identity: keep one object, or make it a frozen dataclass"
    if is_a(other, int | float | complex) and not is_a(other, bool):
        return "each number has a program: make it dynamic if it keeps changing"
    return None


def cause_of(before: Any, after: Any) -> str:
    """Return in two words why a static differs, such as ``fresh function``."""
    with contextlib.suppress(Exception):  # code of the values' own classes
        _, one, other = first_difference(before, after)
        if _is_function(one) and _is_function(other):
            return "fresh function" if _same_definition(one, other) else "another function"
        if is_a(one, int | float | complex) and is_a(other, int | float | complex):
            return "changing number"
        is_one = compares_by_identity(type(one)) and not is_a(one, Enum)
        if type(one) is type(other) and is_one:
            return "identity object"
    return "changing value"


def _is_function(value: Any) -> bool:
    """Return whether a value is a function, or wraps one: a jitted function, for example."""
    if is_a(value, types.FunctionType | types.MethodType | functools.partial):
        return True
    is_class = is_a(value, type) or is_alias(value)
    return callable(value) and not is_class and hasattr(value, "__name__")


def _same_definition(one: Any, other: Any) -> bool:
    return definition_of(one) is not None and definition_of(one) == definition_of(other)


def definition_of(value: Any) -> Any:
    """Return what all functions of one definition have in common; None if nothing is known."""
    if is_a(value, functools.partial):
        return definition_of(value.func)
    with contextlib.suppress(ValueError):  # wrappers of each other
        value = inspect.unwrap(value)
    code = getattr(value, "__code__", None)
    if code is None:
        return value if hasattr(value, "__name__") else None
    return code.co_filename, code


def changed_part(one: Any, other: Any) -> str:
    """Return what two recreated functions hold that differs, as "`rate`, 0.1 -> 0.2"."""
    if _holds_nothing(one) and _holds_nothing(other) and one.__code__ == other.__code__:
        return ""
    with contextlib.suppress(Exception):  # code of the values' own classes
        if all(hasattr(each, "__wrapped__") for each in (one, other)):
            one, other = inspect.unwrap(one), inspect.unwrap(other)
        path, mine, its = first_difference(one, other, by="content")
        name = re.sub(r".*__(closure|kwdefaults)__\['(\w+)'\]", r"\2", path).lstrip(".")
        before, after = _short(mine), _short(its)
        if before == after and hasattr(its, "shape"):
            after = f"another {after}"
        if name and before != after and " at 0x" not in after:
            return f"`{name}`, {before} -> {after}"
    return ""


def _holds_nothing(value: Any) -> bool:
    return is_a(value, types.FunctionType) and not any(
        (value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__)
    )


def _shared_data(one: Any, other: Any) -> list[str]:
    """Return the variables that two functions read in one place, which may have changed between."""
    with contextlib.suppress(Exception):  # wrappers of each other, or an empty cell
        one, other = inspect.unwrap(one), inspect.unwrap(other)
        code, names = other.__code__, other.__globals__
        cells = zip(code.co_freevars, one.__closure__ or (), other.__closure__ or (), strict=True)
        found = {name: cell.cell_contents for name, mine, cell in cells if mine is cell}
        within = [code, *(each for each in code.co_consts if is_a(each, types.CodeType))]
        found |= {name: names[name] for each in within for name in each.co_names if name in names}
        return [
            name
            for name, value in found.items()
            if not (callable(value) or is_a(value, types.ModuleType))
        ]
    return []


def fresh_object(name: str, change: str = "") -> str:
    if not change:
        return f"fresh {name} each call: create it once"
    how = " (`optax.inject_hyperparams`)" if name.startswith("optax.") else ""
    return (
        f"fresh {name} {_WITH_ANOTHER}: {change}. "
        f"Pass that as an argument{how}, and create the rest once"
    )


def fresh_function(other: Any, change: str = "", shared: "Sequence[str]" = ()) -> str:
    """Word the fix for a function that is recreated.

    Args:
        other: The new one.
        change: What it captures that differs, as text.
        shared: The variables that it reads and that may have changed.
    """
    if is_a(other, types.MethodType | BoundMethod):
        return "a method of another object: keep one object, or pass that and call its method"
    name = getattr(other, "__qualname__", "")
    if is_a(other, functools.partial):
        kind, make = "partial", "create it once"
    elif name.endswith("<lambda>"):
        kind, make = "lambda", "define it once"
    else:
        kind, make = "function", f"`{name}` is recreated; create it once"
    if change:
        return (
            f"fresh {kind} {_WITH_ANOTHER}: {change}. "
            f"Pass that as an argument, and create the {kind} once"
        )
    names = " and ".join(f"`{each}`" for each in shared[:2])
    rest = f", and pass {names} as an argument if that changes" if names else ""
    return f"fresh {kind} each call: {make}{rest}"


def distinct_names(one: type, other: type) -> tuple[str, str]:
    """Return the names of two classes; those of one name with their modules."""
    if one.__qualname__ != other.__qualname__:
        return one.__qualname__, other.__qualname__
    mine, its = (f"{module_of(each)}.{each.__qualname__}" for each in (one, other))
    return (mine, f"another {its}") if mine == its else (mine, its)


def _short(value: Any) -> str:
    return shorten(value, 40)


def _type_name(value: Any) -> str:
    return type(value).__qualname__


class Cause(Enum):
    """What makes two calls differ, finer than `ReasonKind`; its value words the fix."""

    # Leaves and statics that no jitted function takes, or that only JAX can judge.
    INVALID = "Pass an array or a number, or mark it static."
    ABSTRACT = "Call with an array; `.lower` and `.eval_shape` take a ShapeDtypeStruct."
    NOT_CALLED = "The earlier call cannot have been made with this."
    OTHER_TYPE = "Only JAX knows whether it takes a value of this type."
    UNHASHABLE = member(_unhashable)
    FAILING_COMPARISON = member(_failing_comparison)
    # Which arguments there are.
    ARGUMENT = member(_argument)
    MOVED_ARGUMENT = "Pass it the same way in every call: each way has a program of its own."
    NO_SUCH_ARGUMENTS = "The function does not take these arguments."
    # Nodes.
    REDEFINED = "class redefined: recreate the instances from the new class."
    ANOTHER_CLASS = member(_another_class)
    STRUCTURE = member(_structure)
    ORDER = "The order of an OrderedDict is part of its structure: insert in one order."
    LENGTH = "Each length is a structure of its own: stack the elements in one array, or pad."
    KEYS = "dict key missing on one side: keep one set of keys."
    CHILDREN = "Keep one set of children."
    # Statics and captures.
    STATIC = member(_static)
    UNSOUND = member(_unsound)
    OWN_EQUALITY = (
        "Equal by its own `==`, though attributes differ: the first one's program answers."
    )
    AUX_DATA = "The node's aux_data differs."
    FILTERED = "Under filter_jit an array is traced and anything else is static: pass one of them."
    CAPTURE = "Pass it as an argument, or make it a field of a pytree class."
    # Leaves.
    SHAPE = "Each shape has a program of its own: pad to a few shapes, or keep one."
    DTYPE = member(_dtype)
    RAW_KEY = "Make keys in one way: `jax.random.key` in every call, or `PRNGKey` in every call."
    WEAK_TYPE = member(_weak_type)
    SHARDING = (
        "Keep one sharding: `lw.shard` or `jax.device_put` both to it, or set `in_shardings`."
    )
    COMMITTED = "committed: `device_put` the first one too; nothing is traced, all is compiled."
    UNCOMMITTED = "not committed: `device_put` this one too; nothing is traced, all is compiled."
    DEVICES = "Put all arguments on the same devices with `jax.device_put`."
    TRACED = "Only traced so far, inside another function: compiled once on its own."
    SLOWER_CALL = "One slower call; the program is shared."
    DATA_MOVES = "One slower call; the program is shared, the data moves."
    # What is not among the arguments.
    CONFIG = member(_config)
    JIT_IS_OFF = "jit is off (`jax_disable_jit`): the function runs as plain Python."
    NO_DIFFERENCE = (
        "The arguments are those of an earlier call: another `jit` of the function has other "
        "options, a cache was cleared or is full, or the earlier call failed."
    )
    TRANSFORMED = (
        "Compiled for a transformation of the function, such as `jax.grad` or `jax.vmap`: each "
        "has a program of its own."
    )
    AHEAD_OF_TIME = "Lowered ahead of time (`lower`); if it is compiled already, nothing is done."
    SHARDED = (
        "The function has `in_shardings` or `out_shardings`: they decide whether JAX moves the "
        "argument, compiles again, or refuses it."
    )
    UNKNOWN_ENTRY = (
        "JAX does not say which dispatch entries it has: this costs one slower call, or nothing."
    )
    CLEARED = "There are no dispatch entries: the caches were cleared, or cannot be used."
    UNSEEN_CALLS = "This version of JAX does not show the arguments of a call that it makes."
    UNREAD = "The arguments could not be read: code of their own classes raised."

    def word(self, reason: "Reason") -> str:
        """Return the sentence for one reason."""
        wording: str | Callable[[Reason], str] = self.value
        if isinstance(wording, str):
            return wording
        try:
            return wording(reason)
        except Exception:  # noqa: BLE001  # code of the values' own classes; a text must come out
            return str(Cause.UNREAD.value)
