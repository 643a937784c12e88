"""The table of all planted faults, and of the correct classes."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar

from jax.tree_util import register_pytree_with_keys_class

from leafwise.testing import Law

T = TypeVar("T", bound=type)


@dataclasses.dataclass(frozen=True)
class Planted:
    """One planted fault.

    Attributes:
        cls: The faulty class; the first line of its docstring says what the fault is.
        law: The law that must find it.
        fields: Any one of these must be named by the violation, "" being the class as a whole;
            no field if that is all that can be said.
        like: A library or an issue that had it.
    """

    cls: Any
    law: Law
    fields: tuple[str, ...]
    like: str

    @property
    def name(self) -> str:
        """The faulty class's name."""
        name: str = self.cls.__name__
        return name


FAULTS: Final[list[Planted]] = []
TWINS: Final[list[Any]] = []
"""The classes without the faults."""


def correct(cls: T) -> T:
    """Register a class without a fault."""
    TWINS.append(cls)
    return register_pytree_with_keys_class(cls)


def planted(law: Law, *fields: str, like: str) -> Callable[[T], T]:
    """Register a class with a fault, unless JAX's own dataclasses do so."""

    def plant(cls: T) -> T:
        FAULTS.append(Planted(cls, law, fields, like))
        return register_pytree_with_keys_class(cls) if hasattr(cls, "tree_flatten") else cls

    return plant
