"""What counts as captured, and where it was found."""

import dataclasses
import enum
import types
from typing import Any, Final

import jax
import numpy as np

from leafwise._objects.classes import is_a
from leafwise._objects.code import is_installed_module


@dataclasses.dataclass(frozen=True, slots=True)
class Path:
    """Where something is: as the code spells it, and in which function."""

    text: str
    function: str

    def of(self, text: str) -> "Path":
        return Path(text, self.function)

    def inside_of(self, function: str) -> "Path":
        return Path(self.text, function)

    def with_function(self) -> str:
        return f"{self.function}: {self.text}"

    def __str__(self) -> str:
        return self.text


def is_array(value: Any) -> bool:
    """Return whether a value is an array that JAX takes as an argument."""
    if not is_a(value, np.ndarray):
        return is_a(value, jax.Array) and not is_a(value, _REF)
    try:
        jax.typeof(value)
    except Exception:  # noqa: BLE001  # text, objects, masked arrays: each is refused in its way
        return False
    return True


def is_number(value: Any) -> bool:
    """Return whether a value is a number that Python code seldom branches on."""
    return is_a(value, float | complex | np.inexact)


def is_open(value: Any) -> bool:
    """Return whether all code that knows an object's attributes is the user's own."""
    kinds: Any = () if is_a(value, types.ModuleType) else type(value).__mro__[:-1]
    return not any(is_installed_module(kind.__module__) for kind in kinds)


_REF: Final[Any] = getattr(jax, "Ref", ())
CUSTOM_RULES: Final[Any] = (jax.custom_jvp, jax.custom_vjp)
PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None), type(...)})
CLOSED: Final = frozenset({"builtins", "jax", "jaxlib", "numpy", "leafwise", "weakref", "_thread"})
CLOSED_TYPES: Final = (enum.Enum, np.dtype, np.generic, types.BuiltinFunctionType, types.CodeType)
SEE_GLOBALS: Final = frozenset({"eval", "exec", "globals"})
IMPLIED: Final = frozenset(
    {
        *("__call__", "__getitem__", "__iter__", "__getattr__", "__get__", "__neg__"),
        *("__getattribute__", "__bool__", "__len__", "__enter__", "__next__", "__contains__"),
        *("__add__", "__sub__", "__mul__", "__matmul__", "__truediv__", "__pow__"),
        *("__radd__", "__rsub__", "__rmul__", "__rmatmul__", "__rtruediv__", "__rpow__"),
    }
)
"""Methods that code calls without naming them."""
