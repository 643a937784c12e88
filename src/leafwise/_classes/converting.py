"""Fields of leafwise inside the classes of other libraries: converted, checked, validated."""

from typing import Any

import jax
import numpy as np

from leafwise._classes.fields import Converter
from leafwise._classes.foreign import Held
from leafwise._classes.spec import FieldSpec
from leafwise._statics.form import plain_form
from leafwise._statics.owner import refuse_tracers
from leafwise._statics.reading import Reading, read
from leafwise._statics.snapshot import Snapshot
from leafwise.errors import DefinitionError


def convert(field: Converter, value: Any) -> Any:
    """Return what a class of another library stores for a value.

    Raises:
        FieldCheckError: The field's check answered False.
        StaticFieldError: The field is static, and the value can be no part of a cache key.
        DefinitionError: The field is compared by content, which its class cannot.
        Exception: Whatever converter or check raise, with a note naming the field.
    """
    definition, options = field.definition, field.options
    if options.converter is not None or options.check is not None or options.freeze:
        spec = FieldSpec(field.owner, definition.name, field.static, options, definition)
        value = spec.prepare(value)
    if options.by == "content":
        _check_keyed(field)  # it is read, and refused, when the key is made
    elif not field.static or plain_form(0, (value,)) is not None:
        return value
    else:
        _validate(value, f"{field.owner}.{definition.name}")
    return Held(value) if field.keyed and _holds_numpy(value) else value


def _holds_numpy(value: Any) -> bool:
    """Return whether equinox would warn of a JAX array, where a table or scalar of numpy is."""
    leaves = jax.tree_util.tree_leaves(value)
    return any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)


def _check_keyed(field: Converter) -> None:
    if not field.keyed:
        msg = (
            f"{field.owner}.{field.definition.name}: by='content' is about the key of an "
            f"instance, and equinox compares the values themselves\n"
            f"  fix: let {field.owner} derive from leafwise.interop.equinox.Module"
        )
        raise DefinitionError(msg)


def _validate(value: Any, path: str) -> None:
    reading = Reading()
    read(reading, value, path)
    reading.raise_findings()
    if reading.reaches:
        snapshot = Snapshot()
        snapshot.look(value, path)
        refuse_tracers(snapshot)
