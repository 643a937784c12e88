"""Why a value cannot be static: the checks, and the message for each."""

import enum
import re
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._objects.classes import is_a, is_tree_node, read
from leafwise._objects.frozen import freeze
from leafwise._objects.interrupts import reraise_interrupt
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got, shorten
from leafwise.errors import StaticFinding, StaticFix, message_of


def refused(path: str, value: Any) -> StaticFinding | None:
    """Return why a value whose type is not in the table cannot be static, without hashing it."""
    kind = type(value)
    if is_a(value, np.void):  # writable through its items
        return _freezable(path, value, "it can change in place")
    if is_a(value, type | enum.Enum | np.generic | np.dtype):
        return None
    if is_array(value):
        return traced(path, value) if is_tracer(value) else array(path, value)
    if code := _frozen_code(kind):
        fix = StaticFix(f"freeze its class:\n{code.format(kind.__name__)}")
        return _unhashable(path, value, "its class is not frozen: it can change in place", fix)
    if kind.__hash__ is None:
        return _hashless(path, value)
    is_tree = is_tree_node(kind) and not is_a(value, tuple)
    for key_path, leaf in jax.tree_util.tree_leaves_with_path(value) if is_tree else ():
        if leaf is not value and is_array(leaf):
            where = path + jax.tree_util.keystr(key_path)
            return traced(where, leaf) if is_tracer(leaf) else array(where, leaf)
    return None


def is_tracer(value: Any) -> bool:
    return is_a(value, Tracer)


def is_array(value: Any) -> bool:
    """Return whether `value` is an array of any library, or a tracer."""
    if is_a(value, jax.Array | np.ndarray | Tracer):
        return True
    kind = type(value)
    converts = any(read(kind, name) is not MISSING for name in ("__array__", "__jax_array__"))
    return converts and all(read(value, name) is not MISSING for name in ("shape", "dtype"))


def bad_hash(path: str, value: Any) -> StaticFinding | None:
    """Return why the hash or ``==`` of an object is not reliable, or None."""
    kind = type(value)
    name = kind.__qualname__.rpartition(".")[2]
    try:
        first, second = hash(value), hash(value)
    except Exception as error:  # noqa: BLE001  # a user's `__hash__`
        raised = _words_of(error)
        if finding := _bad_item(path, value):
            return finding
        if isinstance(kind.__hash__, types.FunctionType):
            fix = StaticFix(f"make {name}.__hash__ return one int, from values that never change")
            return _inconsistent(path, value, f"its __hash__ raises {raised}", fix)
        return _freezable(path, value, f"it cannot be hashed ({raised})")
    if first != second:
        fix = StaticFix(f"make {name}.__hash__ depend on nothing but values that never change")
        return _inconsistent(path, value, f"its hash was {first}, then {second}", fix)
    fix = StaticFix(f"make {name}.__eq__ return one bool, True for the object itself")
    try:
        reflexive = bool(value == value)  # noqa: PLR0124  # this is the check
    except Exception as error:  # noqa: BLE001  # a user's `==`
        reason = f"comparing it with itself raises {_words_of(error)}"
        return _inconsistent(path, value, reason, fix)
    return None if reflexive else _inconsistent(path, value, "it is not equal to itself", fix)


def _words_of(error: Exception) -> str:
    reraise_interrupt(error)
    return f"{type(error).__name__}: {message_of(error)}"


def _bad_item(path: str, value: Any) -> StaticFinding | None:
    items = value.items() if is_a(value, Mapping) else ()
    named = ((f"{path}[{key!r}]", item) for key, item in items)
    problems = (refused(where, item) or bad_hash(where, item) for where, item in named)
    return next(filter(None, problems), None)


def unreadable(path: str, value: Any, error: Exception) -> StaticFinding:
    """Return the finding for a value that cannot be read: its code raises, or it is too deep."""
    fix = StaticFix("give its class attributes, __hash__ and __eq__ that do not raise")
    return _unhashable(path, value, f"reading it raises {_words_of(error)}", fix)


def cyclic(path: str, value: Any) -> StaticFinding:
    return _unhashable(path, value, "it contains itself", StaticFix("break the cycle"))


def mutated(path: str, value: Any, detail: str = "") -> str:
    changed = f" ({detail})" if detail else ""
    return (
        f"{path}: a static value was changed in place after a jit cache key was made "
        f"from it{changed}\n"
        f"  got: {got(value)}\n"
        f"  fix: build a new value instead of changing this one; programs compiled for "
        f"the old content would be used for the new"
    )


def of_argument(finding: StaticFinding, kind: str) -> StaticFinding:
    """Return a finding for a static argument, without the fixes that change a declaration."""
    name = field_of(finding.path)
    fixes = tuple(_in_type(fix, name, kind) for fix in finding.fixes if not fix.of_field)
    if any(fix.of_field for fix in finding.fixes[:1]):
        fixes = (StaticFix(f"remove lw.Static, so that {name} is traced"), *fixes)
    return finding._replace(fixes=fixes)


def with_declaration(
    finding: StaticFinding, declaration: Callable[[str, str], str] | None
) -> StaticFinding:
    """Return a finding whose fixes show the new declaration, without those that have none."""
    name = field_of(finding.path)
    kind = declaration(name, "").partition(" = ")[0] if declaration is not None else ""

    def written(fix: StaticFix) -> StaticFix | None:
        if fix.option is None:
            return _in_type(fix, name, kind)
        code = f"{name}: Any = lw.static_field({fix.option})"
        if declaration is not None:
            code = declaration(name, fix.option)
        return StaticFix(f"{fix.text}: `{code}`", of_field=True) if code else None

    return finding._replace(fixes=tuple(filter(None, map(written, finding.fixes))))


def _in_type(fix: StaticFix, name: str, annotation: str) -> StaticFix:
    """Return a fix that passes an int for ``n: int``, whatever the dtype of the array."""
    wanted = re.findall(r"\b(?:bool|int|float|complex)\b", annotation)
    is_other = wanted and fix.number not in (None, *wanted)
    return _as_number(name, wanted[0]) if is_other else fix


def _as_number(name: str, number: str) -> StaticFix:
    return StaticFix(f"pass a Python number: `{name}={number}({name})`", number=number)


def field_of(path: str) -> str:
    match = re.match(r"[^.]*\.(\w+)", path)
    return match[1] if match else "field"


def _is_in_containers(path: str) -> bool:
    """Return whether a path goes only through tuples and mappings, which `freeze` enters."""
    return re.fullmatch(r"[^.]*\.\w+(\[.*\])?", path) is not None


def _make_dynamic(path: str) -> tuple[StaticFix, ...]:
    """Return the fixes that make a value dynamic, which may be deep inside a static one."""
    name = field_of(path)
    if _is_in_containers(path):
        return (StaticFix(f"make the field dynamic: `{name}: jax.Array`", of_field=True),)
    owner = path.partition(".")[0]
    return (
        StaticFix(f"make the field dynamic, if {name} is a pytree", of_field=True),
        StaticFix(f"move the value out of it, into a dynamic field of {owner}", of_field=True),
    )


def traced(path: str, value: Any) -> StaticFinding:
    fixes = *_make_dynamic(path), StaticFix("compute the value outside the traced function")
    reason = "a traced value exists only while JAX traces, so it cannot be part of a cache key"
    return StaticFinding("tracer", path, got(value), reason, fixes)


def array(path: str, value: Any) -> StaticFinding:
    fixes = _make_dynamic(path)
    if is_a(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        fixes += (StaticFix("keep the seed, an int, and make the key where it is used"),)
    elif _is_in_containers(path):
        name = field_of(path)
        wrapped = f"wrap it, as a constant table: `{name}=lw.StaticArray(value)`"
        fixes += StaticFix(wrapped), _CONVERT
        number = _NUMBERS.get(getattr(getattr(value, "dtype", None), "kind", ""))
        if number is not None and not getattr(value, "shape", ()):
            fixes = _as_number(name, number), *fixes
    return StaticFinding("array", path, got(value), "an array has no hash", fixes)


_NUMBERS: Final = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}


_FROZEN: Final = {
    "__attrs_attrs__": "@attrs.frozen\nclass {}: ...",
    "__pydantic_fields__": "class {}(pydantic.BaseModel, frozen=True): ...",
    "__struct_config__": "class {}(msgspec.Struct, frozen=True): ...",
}
"""The code that freezes a class, by the attribute that marks its library."""


def _frozen_code(kind: Any) -> str:
    """Return the code that freezes a library's class that is not frozen; "" for other classes."""
    # A class that guards its own attributes (flax.linen's modules) counts as frozen.
    guards = kind.__setattr__ is not object.__setattr__
    params: Any = read(kind, "__dataclass_params__", None)
    if params is not None and not (guards or params.frozen):
        return "@dataclass(frozen=True)\nclass {}: ..."
    struct: Any = read(kind, "__struct_config__", None)
    is_open = kind.__hash__ is None if struct is None else struct.eq and not struct.frozen
    codes = [code for mark, code in _FROZEN.items() if read(kind, mark, None) is not None]
    return codes[0] if is_open and codes else ""


def _hashless(path: str, value: Any) -> StaticFinding:
    owner = next(base for base in type(value).__mro__ if "__hash__" in base.__dict__)
    compares = isinstance(owner.__dict__.get("__eq__"), types.FunctionType)
    immutable = is_a(value, str | bytes | tuple | frozenset)
    if compares and (immutable or not is_a(value, Collection)):
        fix = StaticFix(f"give {owner.__name__} a __hash__ that agrees with its __eq__")
        reason = f"{owner.__name__} defines __eq__ without __hash__"
        return _inconsistent(path, value, reason, fix)
    reason = f"a {type(value).__name__} can change in place and has no hash"
    return _freezable(path, value, reason)


_CONVERT: Final = StaticFix("let the field convert it", of_field=True, option="freeze=True")


def _freezable(path: str, value: Any, reason: str) -> StaticFinding:
    try:
        frozen = freeze(value)
    except (TypeError, ValueError, RecursionError):  # it has no immutable equivalent
        frozen = value
    if frozen is value:
        kinds = "a tuple, a frozenset, a frozen dataclass or an object with __eq__ and __hash__"
        return _unhashable(path, value, reason, StaticFix(f"use {kinds}"))
    code = re.sub(r"\b(FrozenMapping|StaticArray)\(", r"lw.\1(", shorten(frozen, 60))
    fix = StaticFix(f"pass a {type(frozen).__name__}: `{code}`")
    return _unhashable(path, value, reason, fix, *[_CONVERT][: _is_in_containers(path)])


def _unhashable(path: str, value: Any, reason: str, *fixes: StaticFix) -> StaticFinding:
    return StaticFinding("unhashable", path, got(value), reason, fixes)


def uncomparable(path: str, value: Any, reason: str) -> StaticFinding:
    keep = StaticFix("build it once and keep it, compared by identity", of_field=True, option="")
    leave_out = StaticFix("do not close over it in the function")
    reason = f"it cannot be compared by content: {reason}"
    return _unhashable(path, value, reason, keep, leave_out)


def _inconsistent(path: str, value: Any, reason: str, fix: StaticFix) -> StaticFinding:
    return StaticFinding("inconsistent", path, got(value), reason, (fix,))
