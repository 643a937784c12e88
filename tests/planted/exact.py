"""aux_data as it should be: statics that are distinguished by value and by type."""

import struct
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from jax.tree_util import GetAttrKey


def exact(value: Any) -> Any:
    """Return a hashable form that is equal only for values that cannot be distinguished."""
    if isinstance(value, float | np.floating):  # by bits: -0.0 is not 0.0, and NaN is itself
        return type(value), struct.pack("<d", value)
    if isinstance(value, tuple | list):
        return type(value), tuple(exact(item) for item in value)
    if isinstance(value, np.ndarray):
        return type(value), value.dtype.str, value.shape, value.tobytes()
    return type(value), value


class Statics:
    """aux_data of a correct class. A fault in a subclass is the one method it overrides."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def form(self) -> Any:
        """Return what is compared and hashed."""
        return tuple((name, exact(value)) for name, value in self.values.items())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.form() == other.form()

    def __hash__(self) -> int:
        return hash(self.form())

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"{type(self).__name__}({inside})"


class Node:
    """Flatten and unflatten as they should be. A fault in a subclass is what it overrides."""

    CHILDREN: ClassVar[tuple[str, ...]]
    STATICS: ClassVar[tuple[str, ...]]
    _Key: ClassVar[type[Statics]] = Statics

    def __init_subclass__(cls, **methods: Any) -> None:
        """Plant faults in the aux_data: another `form`, `eq` or `hash`."""
        super().__init_subclass__()
        if methods:
            body = {{"eq": "__eq__", "hash": "__hash__"}.get(k, k): v for k, v in methods.items()}
            names = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}._Key"}
            cls._Key = type("_Key", (cls._Key,), {"__hash__": cls._Key.__hash__} | body | names)

    def key(self) -> Any:
        """Return the aux_data."""
        return self._Key(**{name: getattr(self, name) for name in self.STATICS})

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        """Return the statics that aux_data stands for."""
        return dict(aux.values)

    def children(self) -> tuple[Any, ...]:
        """Return the children in order."""
        return tuple(getattr(self, name) for name in self.CHILDREN)

    def keys(self) -> tuple[Any, ...]:
        """Return the children's key paths."""
        return tuple(GetAttrKey(name) for name in self.CHILDREN)

    def tree_flatten(self) -> tuple[Any, Any]:
        return self.children(), self.key()

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        return tuple(zip(self.keys(), self.children(), strict=True)), self.key()

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        vars(self).update(zip(cls.CHILDREN, children, strict=True), **cls.read(aux))
        self.after_unflatten()
        return self

    def after_unflatten(self) -> None:
        """Do nothing; a fault changes or keeps what has come back."""


class ByIdentity:
    """What is compared by identity, as a function or a module is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
