"""What a field's declaration asks for, and what that makes of a value.

Classes of leafwise apply the options in their constructor, through `FieldSpec.prepare`. Equinox
applies them through the `Converter` that it finds in the field's metadata.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import jax
import numpy as np

from leafwise._objects.frozen import freeze_but_tracers
from leafwise._objects.text import got
from leafwise._statics.findings import is_tracer
from leafwise._statics.fold import Fold
from leafwise._statics.form import AS_KEY, plain_form
from leafwise._statics.reached import reached
from leafwise.errors import DefinitionError, FieldCheckError

OPTIONS: Final = "leafwise"
"""The metadata entry with a field's `FieldOptions`."""

CONVERTER: Final = "converter"
"""The metadata entry in which equinox looks for what to call with a field's value."""

By: TypeAlias = Literal["identity", "content"]
"""How the functions in a static field are compared."""


class NamedCheck:
    """A check that is given the field's name: no exception can add it where it warns."""

    __slots__ = ()

    def check_named(self, value: Any, where: str) -> object:
        """Check the value of the field `where`, which is ``Class.field``."""
        raise NotImplementedError  # only what derives from this is called


class FieldOptions(NamedTuple):
    """What `field` and `static_field` take beyond `dataclasses.field`."""

    converter: Callable[[Any], Any] | None = None
    validator: Callable[[Any], object] | None = None
    freeze: bool = False
    compare_by: By = "identity"

    @property
    def prepares(self) -> bool:
        """Whether a value is converted, frozen or checked."""
        return self.converter is not None or self.validator is not None or self.freeze

    def prepare(self, where: str, value: Any) -> Any:
        """Return the value to store in the field `where`: converted, frozen and checked."""
        doing = "converter"
        try:
            if self.converter is not None:
                value = self.converter(value)
            if self.freeze:
                doing = "freezing"
                value = freeze_but_tracers(value)
            doing = "validator"
            if isinstance(self.validator, NamedCheck):
                verdict = self.validator.check_named(value, where)
            else:
                verdict = self.validator(value) if self.validator is not None else None
            refused = _is_false(verdict)
        except Exception as error:
            __tracebackhide__ = True
            error.add_note(f"in the {doing} of field {where}, given {got(value)}")
            raise
        if refused:
            reason = f": {verdict}" if isinstance(verdict, str) else ""
            name = getattr(self.validator, "__name__", repr(self.validator))
            raise FieldCheckError(f"{where}: its validator {name} refused {got(value)}{reason}")
        return value


def _is_false(verdict: object) -> bool:
    """Return whether a validator returned False, an untraced array or scalar of it, or why."""
    if verdict is None or isinstance(verdict, bool):
        return verdict is False
    if isinstance(verdict, str):
        return verdict != ""
    shape = getattr(verdict, "shape", None)
    if shape not in (None, ()):
        raise FieldCheckError(
            f"the validator answers with an array of shape {shape}, not with one bool: add .all()"
        )
    return shape == () and not is_tracer(verdict) and not verdict


class Boxed:
    """A static on its way to the key, hidden from equinox, which would warn of its type."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Converter:
    """What equinox finds in the metadata of a field, and calls with its value.

    It applies the field's options and validates a static. Classes of leafwise do this in
    their constructor, and never call it.

    Attributes:
        owner: The name of the class that declares the field.
        keyed: Whether instances of the class have a key, behind which a static stands.
    """

    __slots__ = ("definition", "keyed", "options", "owner", "static")

    def __init__(
        self, definition: dataclasses.Field[Any], options: FieldOptions, *, static: bool
    ) -> None:
        self.owner = "field"  # until the class is made
        self.definition = definition
        self.options = options
        self.static = static
        self.keyed = False

    def __call__(self, value: Any) -> Any:
        """Return the value to store: prepared, and for a static field validated."""
        where = f"{self.owner}.{self.definition.name}"
        if self.options.prepares:
            value = self.options.prepare(where, value)
        if self.options.compare_by == "content":
            if not self.keyed:
                raise DefinitionError(
                    f"{where}: compare_by='content' is about the key of an "
                    f"instance, and equinox compares the values themselves\n"
                    f"  fix: let {self.owner} derive from leafwise.interop.equinox.Module"
                )
            # Such a value is validated when the key is made.
        elif not self.static or plain_form(0, (value,)) is not None:
            return value
        else:
            reading = Fold(AS_KEY).add(value, where)
            reading.raise_findings()
            if reading.reaches:
                reached([(where, value)])
        if not self.keyed:
            return value
        # equinox takes a table or a scalar of numpy for a JAX array, and warns of it.
        leaves = jax.tree_util.tree_leaves(value)
        warns = any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)
        return Boxed(value) if warns else value

    @property
    def __signature__(self) -> inspect.Signature:
        """What the constructor takes for this field: equinox writes it into annotations."""
        if self.options.converter is not None:
            return inspect.signature(self.options.converter)
        kind = Any if self.options.freeze else self.definition.type
        parameter = inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY, annotation=kind)
        return inspect.Signature([parameter])
