"""The options of a field, and converting, freezing and checking its value by them.

Leafwise classes apply the options in their constructor, through `FieldSpec.prepare`. Equinox
applies them through the `Converter` in the field's metadata.
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
"""The metadata entry that equinox calls with a field's value."""

By: TypeAlias = Literal["identity", "content"]
"""How the functions in a static field are compared."""


class FieldOptions(NamedTuple):
    """The options of `field` and `static_field` beyond `dataclasses.field`."""

    converter: Callable[[Any], Any] | None = None
    validator: Callable[[Any], object] | None = None
    freeze: bool = False
    compare_by: By = "identity"

    @property
    def prepares(self) -> bool:
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
            # `chex_check` is passed the name, which an error of `chexify` could not get later.
            check: Any = getattr(self.validator, "check_named", self.validator)
            names = () if check is self.validator else (where,)
            verdict = None if check is None else check(value, *names)
            refused = _is_false(verdict)
        except Exception as error:  # a user's converter or validator
            __tracebackhide__ = True
            error.add_note(f"in the {doing} of field {where}, given {got(value)}")
            raise
        if refused:
            reason = f": {verdict}" if isinstance(verdict, str) else ""
            name = getattr(self.validator, "__name__", repr(self.validator))
            raise FieldCheckError(f"{where}: its validator {name} refused {got(value)}{reason}")
        return value


def _is_false(verdict: object) -> bool:
    """Return whether a validator's result, a bool, a scalar or a reason, rejects the value."""
    if verdict is None or isinstance(verdict, bool):
        return verdict is False
    if isinstance(verdict, str):
        return verdict != ""
    shape = getattr(verdict, "shape", None)
    if shape not in (None, ()):
        raise FieldCheckError(
            f"the validator returned an array of shape {shape}, not one bool: add .all()"
        )
    return shape == () and not is_tracer(verdict) and not verdict


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Boxed:
    """A static value on its way to the key, boxed as equinox would warn about its type."""

    value: object


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Converter:
    """The converter that equinox finds in a field's metadata and calls with its value.

    It applies the field's options and validates a static. Leafwise classes do this in
    their constructor, and never call it.
    """

    definition: dataclasses.Field[Any]
    options: FieldOptions
    static: bool
    owner: str = "field"  # the name of its class, once that exists
    keyed: bool = False  # whether instances of the class have a key, which holds their statics

    def __call__(self, value: Any) -> Any:
        """Return the value to store: prepared and, for a static field, validated."""
        where = f"{self.owner}.{self.definition.name}"
        if self.options.prepares:
            value = self.options.prepare(where, value)
        if self.options.compare_by == "content":
            if not self.keyed:
                raise DefinitionError(
                    f"{where}: compare_by='content' applies to the key of an "
                    f"instance, but equinox compares the values themselves\n"
                    f"  fix: derive {self.owner} from leafwise.interop.equinox.Module"
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
        # equinox treats NumPy arrays and scalars as JAX arrays, and warns about them.
        leaves = jax.tree_util.tree_leaves(value)
        warns = any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)
        return Boxed(value) if warns else value

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature whose parameter type equinox puts into the constructor's annotations."""
        if self.options.converter is not None:
            return inspect.signature(self.options.converter)
        kind = Any if self.options.freeze else self.definition.type
        parameter = inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY, annotation=kind)
        return inspect.Signature([parameter])
