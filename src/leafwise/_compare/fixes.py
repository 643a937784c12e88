"""What to do about each kind of difference, in one sentence: constants, and ``for_...`` functions.

Each function returns the sentence that stands behind a `Reason`, made of the user's own names
and values.
"""

import functools
import inspect
import math
import types
from collections.abc import Mapping
from typing import Any, Final

from leafwise._classes.options import By
from leafwise._compare.reasons import ReasonKind
from leafwise._objects.attributes import compares_by_identity
from leafwise._objects.methods import BoundMethod
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import shorten
from leafwise._trees.equality import first_difference
from leafwise._trees.leaves import Leaf, LeafKind

INVALID: Final = "Pass an array or a number, or mark it static."
ABSTRACT: Final = "Call with an array; `.lower` and `.eval_shape` take a ShapeDtypeStruct."
DEVICES: Final = "Put all arguments on the same devices with `jax.device_put`."
MOVED: Final = "Pass it the same way in every call: each way has a program of its own."
REDEFINED: Final = "class redefined: recreate the instances from the new class."
ORDER: Final = "The order of an OrderedDict is part of its structure: insert in one order."
LENGTH: Final = "Each length is a structure of its own: stack the elements in one array, or pad."
OWN_EQUALITY: Final = (
    "Equal by its own `==`, though attributes differ: the first one's program answers."
)
AUX_DATA: Final = "The node's aux_data differs."
FILTERED: Final = (
    "Under filter_jit an array is traced and anything else is static: pass one of them."
)
NOT_CALLED: Final = "The earlier call cannot have been made with this."
OTHER: Final = "Only JAX knows whether it takes a value of this type."
JIT_IS_OFF: Final = "jit is off (`jax_disable_jit`): the function runs as plain Python."
UNKNOWN_ENTRY: Final = (
    "JAX does not say which dispatch entries it has: this costs one slower call, or nothing."
)
CLEARED: Final = "There are no dispatch entries: the caches were cleared, or cannot be used."
UNSEEN_CALLS: Final = "This version of JAX does not show the arguments of a call that it makes."
UNREAD: Final = "The arguments could not be read: code of their own classes raised."
SIGNATURE: Final = "The function does not take these arguments."
NO_DIFFERENCE: Final = (
    "The arguments are those of an earlier call: a cache was cleared or is full, or the earlier "
    "call failed."
)
TRANSFORMED: Final = (
    "Compiled for a transformation of the function, such as `jax.grad` or `jax.vmap`: each has a "
    "program of its own."
)
TRACED: Final = "Only traced so far, inside another function: compiled once on its own."
AHEAD_OF_TIME: Final = (
    "Lowered ahead of time (`lower`); if it is compiled already, nothing is done."
)
SHARDED: Final = (
    "The function has `in_shardings` or `out_shardings`: they decide whether JAX moves the "
    "argument, compiles again, or refuses it."
)
SHAPE: Final = "Each shape has a program of its own: pad to a few shapes, or keep one."
SHARDING: Final = "Keep one sharding: `jax.device_put` both to it, or set `in_shardings`."


def for_config(name: str) -> str:
    if name == "jax_enable_x64":
        return "x64 differs: set `jax_enable_x64` once, at the start."
    if name == "mesh":
        return "The mesh differs: make all calls under one `jax.set_mesh`."
    return f"`{name}` differs: make all calls under one setting."


def for_argument(path: str, before: str | None, after: str | None) -> str:
    """Return the fix for an argument that is given in two ways, or in one call only."""
    if path.endswith("]") and not path.startswith(("args[", "kwargs[")):  # one of `*args`
        return "Each number of arguments has a program of its own."
    if before is None:
        return "Not given before: a default and an argument are two programs."
    if after is None:
        return "Given before: a default and an argument are two programs."
    return f"It was {before} before and is {after} now."


def for_unhashable_argument(value: Any) -> str:
    kind = type(value)
    if kind in (list, dict, set):
        return "A static argument needs a hash: pass a tuple, or use `leafwise.freeze`."
    return f"A static argument needs a hash: give {kind.__qualname__} `__eq__` and `__hash__`."


def for_failing_comparison(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return "An array cannot be compared as a static: make it dynamic, or a StaticArray."
    return f"Comparing it raises: fix `{type(value).__qualname__}.__eq__`, or make it dynamic."


def for_structure(before: str, after: str) -> str:
    if before == "None":
        what = "an array" if after.endswith(")") else after
        return f"None became {what}: None is structure; keep an array there."
    if after == "None":
        what = "an array" if before.endswith(")") else before
        return f"{what} became None: None is structure; keep an array there."
    return "Keep one structure: the types of all nodes are part of the key."


def for_missing_child(cls: type) -> str:
    if issubclass(cls, Mapping):
        return "dict key missing on one side: keep one set of keys."
    return "Keep one set of children."


def for_weak_type(before: Leaf, after: Leaf) -> str:
    weak = before if before.weak_type else after
    python = weak.kind is LeafKind.PYTHON_SCALAR
    value = "0.1" if python else "x"
    array = f"`jnp.{weak.dtype}({value})`" if not weak.shape else f"`x.astype({weak.dtype})`"
    which = "the earlier call" if weak is before else "this call"
    return f"weak type: pass {array} in {which}."


def for_dtype(before: Leaf, after: Leaf) -> str:
    if {before.kind, after.kind} == {LeafKind.PYTHON_SCALAR}:
        one, other = (getattr(each.stored, "__name__", each.stored) for each in (before, after))
        return f"`{one}` and `{other}` are two dtypes: pass one type of number."
    if after.kind is LeafKind.PYTHON_SCALAR:
        return f"Convert to one dtype: `jnp.asarray(x, dtype='{before.dtype}')`."
    return f"Convert to one dtype: `x.astype('{before.dtype}')`."


def for_commitment(after: Leaf) -> str:
    """Return the fix for a leaf that is committed to its device in one call only."""
    if after.committed:
        return "committed: `device_put` the first one too; nothing is traced, all is compiled."
    return "not committed: `device_put` this one too; nothing is traced, all is compiled."


def for_dispatch(kind: ReasonKind) -> str:
    if kind is ReasonKind.LEAF_KIND:
        return "One slower call; the program is shared."
    return "One slower call; the program is shared, the data moves."


def for_unsound(before: Any, after: Any) -> str:
    """Return what is wrong with two statics that share a program though they are distinct."""
    _, one, other = first_difference(before, after)
    change = f"`{_short(other)}` is not `{_short(one)}`"
    if type(one) is not type(other):
        change += f" ({_type_name(other)}, {_type_name(one)})"
    return f"Shared, but unsound: {change}; the first one's program answers."


def for_static(before: Any, after: Any, by: By | None = None) -> str:
    """Return the fix for a static value that differs.

    Args:
        before: The earlier value.
        after: The later value.
        by: How functions are compared, if they stand in a field of leafwise.
    """
    if before is MISSING or after is MISSING:
        return "Only one of the two calls has this static."
    path, one, other = first_difference(before, after, by=by or "identity")
    if by == "content" and _is_function(one) and _is_function(other):
        fix: str | None = _ANOTHER_FUNCTION  # a rebuilt one of the same content is equal
    else:
        fix = _static_fix(one, other)
    if by == "identity" and fix is not None and fix.startswith("fresh "):
        fix += ', or declare the field `lw.static_field(by="content")`'
    where = f" (at {path})" if path else ""
    return f"{fix or 'each new value is traced and compiled'}{where}."


_ANOTHER_FUNCTION: Final = "another function: each has a program of its own"


def _static_fix(one: Any, other: Any) -> str | None:
    if _is_function(one) and _is_function(other):
        if _same_definition(one, other) or "<locals>" in getattr(other, "__qualname__", ""):
            return _fresh_function(other)
        return _ANOTHER_FUNCTION
    if all(isinstance(each, float) and math.isnan(each) for each in (one, other)):
        return "NaN is not equal to itself: keep one NaN object, or use None"
    if type(one) is not type(other):
        got, was = (f"`{_short(each)}` ({_type_name(each)})" for each in (other, one))
        return f"differs by type: {got} is not {was}"
    if compares_by_identity(type(one)):
        name = _type_name(other)
        return f"{name} compares by identity: keep one object, or make it a frozen dataclass"
    if isinstance(other, int | float | complex) and not isinstance(other, bool):
        return "each number has a program: make it dynamic if it keeps changing"
    return None


def cause_of(before: Any, after: Any) -> str:
    """Return in two words why a static differs, such as ``fresh function``."""
    _, one, other = first_difference(before, after)
    if _is_function(one) and _is_function(other):
        return "fresh function" if _same_definition(one, other) else "another function"
    if isinstance(one, int | float | complex) and isinstance(other, int | float | complex):
        return "changing number"
    if type(one) is type(other) and compares_by_identity(type(one)):
        return "identity object"
    return "changing value"


def _is_function(value: Any) -> bool:
    """Return whether a value is a function, or wraps one: a jitted function, for example."""
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        return True
    return callable(value) and not isinstance(value, type) and hasattr(value, "__name__")


def _same_definition(one: Any, other: Any) -> bool:
    return _code(one) is not None and _code(one) == _code(other)


def _code(value: Any) -> Any:
    """Return what all functions of one definition have in common; None if nothing is known."""
    if isinstance(value, functools.partial):
        return _code(value.func)
    code = getattr(inspect.unwrap(value), "__code__", None)
    if code is None:
        return value if hasattr(value, "__name__") else None
    return code.co_filename, code.co_firstlineno, code.co_qualname, code.co_code


def _fresh_function(other: Any) -> str:
    if isinstance(other, types.MethodType | BoundMethod):
        return "a method of another object: keep one object, or give its class an `__eq__`"
    if isinstance(other, functools.partial):
        return "fresh partial each call: create it once"
    name = getattr(other, "__name__", "")
    if name == "<lambda>":
        return "fresh lambda each call: define it once"
    name = getattr(other, "__qualname__", name)
    return f"fresh function each call: `{name}` is recreated; create it once"


def _short(value: Any) -> str:
    return shorten(value, 40)


def _type_name(value: Any) -> str:
    return type(value).__qualname__
