"""Pytree dataclasses whose jit cache keys you can trust."""

from leafwise import debug
from leafwise._fields import Static, field, static_field
from leafwise._freeze import FrozenMapping, StaticArray, freeze
from leafwise._instance import pformat, replace
from leafwise._pytree import pytree, register
from leafwise.errors import (
    ArrayInStaticError,
    DefinitionError,
    FieldCheckError,
    FieldNotSetError,
    Finding,
    FrozenInstanceError,
    InconsistentHashError,
    LeafwiseError,
    StaticFieldError,
    StaticMutatedError,
    TracerComparisonError,
    TracerInStaticError,
    UndecoratedSubclassError,
    UnhashableStaticError,
)

__version__ = "0.1.0"

__all__ = [
    "ArrayInStaticError",
    "DefinitionError",
    "FieldCheckError",
    "FieldNotSetError",
    "Finding",
    "FrozenInstanceError",
    "FrozenMapping",
    "InconsistentHashError",
    "LeafwiseError",
    "Static",
    "StaticArray",
    "StaticFieldError",
    "StaticMutatedError",
    "TracerComparisonError",
    "TracerInStaticError",
    "UndecoratedSubclassError",
    "UnhashableStaticError",
    "debug",
    "field",
    "freeze",
    "pformat",
    "pytree",
    "register",
    "replace",
    "static_field",
]
