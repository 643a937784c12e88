"""Pytree dataclasses whose jit cache keys you can trust."""

import os

from leafwise import debug
from leafwise._fields import Static, field, static_field
from leafwise._freeze import FrozenMapping, StaticArray, freeze
from leafwise._instance import pformat
from leafwise._pytree import pytree, register, replace
from leafwise._registry import set_checking
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

if os.environ.get("LEAFWISE_CHECK_STATICS", "") not in ("", "0"):
    set_checking(on=True)
