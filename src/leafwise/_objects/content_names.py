"""What code finds under a name: in its module, in its cells, and through modules and classes."""

import builtins
import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any, Final, cast

from leafwise._objects.code import Chain, is_installed_module

ABSENT: Final = object()
"""Stands for what is under no name, or in a cell that is not assigned yet."""


def contents(cell: types.CellType) -> Any:
    """Return what a cell holds."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return ABSENT


def find_all(chains: tuple[Chain, ...], names: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what code finds under each of these names."""
    return tuple([resolve(names, chain) for chain in chains])


def resolve(names: Mapping[str, Any], chain: Chain) -> Any:
    """Follow a name, and its attributes as far as they lead through modules and classes."""
    value = names.get(chain[0], ABSENT)
    if value is ABSENT:
        value = vars(builtins).get(chain[0], ABSENT)
    for name in chain[1:]:
        if isinstance(value, types.ModuleType) and not is_installed_module(value.__name__):
            value = vars(value).get(name, ABSENT)
        elif isinstance(value, type) and not is_installed_module(value.__module__):
            member = inspect.getattr_static(value, name, ABSENT)
            if isinstance(member, classmethod):  # it sees all of the class
                break
            value = function_in(member)
        else:
            break
    return value


def function_in(member: Any) -> Any:
    """Return the function of a property or a method that is not bound."""
    if isinstance(member, staticmethod | classmethod):
        return cast("Any", member).__func__
    if isinstance(member, functools.cached_property):
        return cast("Any", member).func
    return member.fget if isinstance(member, property) else member


def own_bases(cls: type) -> list[type]:
    """Return a class and its bases, also those of its metaclass, but not those of packages."""
    bases = dict.fromkeys((*cls.__mro__, *cast("type", type(cls)).__mro__))
    return [base for base in bases if not is_installed_module(base.__module__)]
