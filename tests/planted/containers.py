"""Faults in statics that hold something: lists, dicts, arrays, objects."""

from typing import Any

import jax
import numpy as np

from leafwise.testing import Law

from .exact import ByIdentity, Node, Statics
from .table import correct, planted

NAMES = ("shape", "options", "window")


@correct
class Filter(Node):
    """A correct class: statics that are containers, one of them an array."""

    CHILDREN = ("x",)
    STATICS = NAMES

    def __init__(
        self,
        x: jax.Array,
        shape: tuple[int, ...],
        options: tuple[tuple[str, int], ...],
        window: np.ndarray,
    ) -> None:
        self.x = x
        self.shape = shape
        self.options = options
        self.window = window


class InOrder(Filter):
    """Not registered: a filter whose aux_data is its statics in order."""

    def key(self) -> Any:
        return self.shape, self.options, self.window

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return dict(zip(NAMES, aux, strict=True))


class ArrayByValue:
    """An array in aux_data, as it should be."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.form = (array.dtype.str, array.shape, array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayByValue) and self.form == other.form

    def __hash__(self) -> int:
        return hash(self.form)


@planted(Law.TREEDEF_EQUALITY, "window", like="jax#28659")
class AuxHasArray(InOrder):
    """aux_data has a NumPy array, whose == has no truth value."""


@planted(Law.TREEDEF_EQUALITY, "window", like="jax#19547, jax#24204")
class AuxHasJaxArray(InOrder):
    """aux_data has a JAX array, whose == has no truth value."""

    def __init__(
        self,
        x: jax.Array,
        shape: tuple[int, ...],
        options: tuple[tuple[str, int], ...],
        window: jax.Array,
    ) -> None:
        super().__init__(x, shape, options, window)


@planted(Law.AUX_DATA_HASH, like="flax#4870, jax#28418")
class AuxIsList(Filter):
    """aux_data is a list: no hash, and anybody may change it."""

    def key(self) -> Any:
        return [self.shape, self.options, ArrayByValue(self.window)]

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {"shape": aux[0], "options": aux[1], "window": aux[2].array}


@planted(Law.TREEDEF_EQUALITY, like="jax#13027")
class AuxIsArray(AuxIsList):
    """aux_data is an object array of the statics."""

    def key(self) -> Any:
        aux = np.empty(3, object)
        aux[:] = super().key()
        return aux


@planted(Law.AUX_DATA_HASH, like="jax#15338: `return (), {}`")
class AuxIsDict(Filter):
    """aux_data is a dict of the statics: no hash."""

    def key(self) -> Any:
        return {
            "shape": self.shape,
            "options": self.options,
            "window": ArrayByValue(self.window),
        }

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {**aux, "window": aux["window"].array}


def form_with_list(key: Statics) -> Any:
    shape, options, window = key.values.values()
    return shape, list(options), window.tobytes()


@planted(Law.AUX_DATA_HASH, "options", "", like="jax#13992")
class ListInAux(Filter, form=form_with_list):
    """aux_data has a list inside a tuple: no hash."""


@planted(Law.STATIC_VALUES, "shape", like="jax#4712")
class IdOfStatic(Filter, form=lambda key: (id(key.values["shape"]), Statics.form(key))):
    """A static is compared by its address: an equal tuple retraces."""


def equal_so_far(key: Statics, other: Any) -> bool:
    pairs = zip(key.values["shape"], other.values["shape"], strict=False)
    return all(a == b for a, b in pairs) and key.form()[1:] == other.form()[1:]


@planted(Law.STATIC_VALUES, "shape", like="zip without strict")
class ZipStopsEarly(Filter, eq=equal_so_far, hash=lambda key: hash(key.form()[1:])):
    """The aux_data's == zips two tuples: (2,) is equal to (2, 3)."""


def form_without_order(key: Statics) -> Any:
    return Statics(**{**key.values, "shape": tuple(sorted(key.values["shape"]))}).form()


@planted(Law.STATIC_VALUES, "shape", like="axes compared as a set")
class OrderIgnored(Filter, form=form_without_order):
    """A static tuple is sorted before it is compared: (2, 3) is equal to (3, 2)."""


def form_by_bytes(key: Statics) -> Any:
    return Statics.form(key)[:2], key.values["window"].tobytes()


@planted(Law.STATIC_VALUES, "window", like="keys made with tobytes()")
class BytesCompared(Filter, form=form_by_bytes):
    """A static array is compared by its bytes: dtype and shape stay out."""


def form_without_elements(key: Statics) -> Any:
    window = key.values["window"]
    return Statics.form(key)[:2], window.shape, str(window.dtype)


@planted(Law.STATIC_VALUES, "window", like="static arrays described by shape and dtype")
class ArrayValuesIgnored(Filter, form=form_without_elements):
    """A static array is compared by shape and dtype: its values stay out."""


@planted(Law.STATIC_VALUES, "window", like="jax#4572")
class ArrayByIdentity(Filter):
    """A static array is compared by identity: an equal one retraces."""

    def key(self) -> Any:
        return Statics(shape=self.shape, options=self.options, window=ByIdentity(self.window))

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {**aux.values, "window": aux.values["window"].value}
