"""Faults in what becomes of plain statics: lost, mixed up, or not distinguished."""

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import jax

from leafwise.testing import Law

from .exact import Node, Statics
from .table import correct, planted


@correct
class Layer(Node):
    """A correct class: one child, three statics."""

    CHILDREN = ("w",)
    STATICS = ("rate", "width", "act")

    def __init__(self, w: jax.Array, rate: float, width: int, act: str) -> None:
        self.w = w
        self.rate = rate
        self.width = width
        self.act = act


@planted(Law.ROUND_TRIP, "act", like="a static restored from the class's default")
class StaticLost(Layer):
    """A static comes back as its default."""

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {**aux.values, "act": "relu"}


@planted(Law.ROUND_TRIP, "rate", "width", like="jax#19547")
class StaticsSwapped(Layer):
    """Two statics come back in each other's place."""

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        rate, width, act = aux.values.values()
        return {"rate": width, "width": rate, "act": act}


@planted(Law.ROUND_TRIP, "w", "width", like="jax#19547")
class StaticInChildsPlace(Layer):
    """The child and a static come back in each other's place."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        vars(self).update(cls.read(aux))
        self.w = self.width
        (self.width,) = children
        return self


@planted(Law.ROUND_TRIP, "rate", like="a converter that runs at unflatten")
class StaticRounded(Layer):
    """A static comes back cut to an int."""

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {**aux.values, "rate": int(aux.values["rate"])}


@planted(Law.ROUND_TRIP, "rate", "width", like="jax#9283")
class FirstOneKept(Layer):
    """Statics come back from a cache whose key leaves one of them out."""

    CACHE: ClassVar[dict[Any, dict[str, Any]]] = {}

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return dict(cls.CACHE.setdefault(aux.values["act"], aux.values))


@planted(Law.STATIC_VALUES, "width", like="jax_dataclasses, tjax: statics with init=False")
class StaticNotInKey(Layer):
    """A static stays out of the aux_data and comes back as its default."""

    def key(self) -> Any:
        return Statics(rate=self.rate, act=self.act)

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {**aux.values, "width": 2}


@planted(Law.STATIC_TYPES, "rate", "width", "act", like="jax#9273; every library with raw statics")
class TypesShared(Layer, form=lambda key: tuple(key.values.values())):
    """Statics are compared by value alone: 1, True and 1.0 share a program."""


@planted(Law.STATIC_TYPES, "rate", "width", "act", like="keys made with str()")
class TextCompared(Layer, form=lambda key: str(list(map(str, key.values.values())))):
    """Statics are compared as text: 2, "2" and a NumPy 2 share a program."""


@planted(Law.STATIC_TYPES, "rate", "width", "act", like="keys made with hash()")
class HashCompared(Layer, form=lambda key: hash(tuple(key.values.values()))):
    """Only the hash of the statics is compared, and hash(1) is hash(True)."""


def form_without_bits(key: Statics) -> Any:
    return tuple((name, type(value), value) for name, value in key.values.items())


@planted(Law.STATIC_TYPES, "rate", like="every library with raw statics")
class ZerosShared(Layer, form=form_without_bits):
    """A float static is compared with ==: 0.0 and -0.0 share a program."""


@correct
class Filled(Node):
    """A correct class: a static whose default is no number."""

    CHILDREN = ("data",)
    STATICS = ("fill",)

    def __init__(self, data: jax.Array, fill: float = math.nan) -> None:
        self.data = data
        self.fill = fill


@planted(Law.STATIC_TYPES, "fill", like="every library with raw statics")
class NanNeverEqual(Filled, form=form_without_bits):
    """A float static is compared with ==: a fresh NaN retraces each time."""


def form_with_rounded_rate(key: Statics) -> Any:
    rate = key.values["rate"]
    return Statics.form(key)[1:], type(rate), math.floor(rate)


@planted(Law.STATIC_VALUES, "rate", like="tolerance in ==")
class RateRounded(Layer, form=form_with_rounded_rate):
    """A float static is rounded before it is compared: 0.25 and 0.5 share a program."""


def form_without_act(key: Statics) -> Any:
    return Statics.form(key)[:2]


def equal_without_act(key: Statics, other: object) -> bool:
    return isinstance(other, Statics) and form_without_act(key) == form_without_act(other)


def hash_without_act(key: Statics) -> int:
    return hash(form_without_act(key))


@planted(Law.STATIC_VALUES, "act", like="compare=False in a static config")
class EqIgnoresField(Layer, form=form_without_act):
    """The aux_data's == leaves a static out."""


@planted(Law.STATIC_VALUES, "rate", "width", "act", like="jax#1984")
class AllEqual(Layer, form=lambda _: ()):
    """aux_data is always equal, to be rid of retraces."""


def is_covered(key: Statics, other: object) -> bool:
    same = isinstance(other, Statics) and key.form()[1:] == other.form()[1:]
    return same and key.values["rate"] <= other.values["rate"]


@planted(Law.STATIC_VALUES, "rate", like="== that asks for a subset")
class EqOneSided(Layer, eq=is_covered, hash=lambda key: hash(key.form()[1:])):
    """The aux_data's == asks whether one covers the other: a == b, and b != a."""


def equal_or_raise(key: Statics, other: object) -> bool:
    if not isinstance(other, Statics) or key.form() != other.form():
        raise TypeError(f"cannot compare {key} with {other}")
    return True


@planted(Law.TREEDEF_EQUALITY, "rate", "width", "act", like="jax#28659")
class EqRaises(Layer, eq=equal_or_raise):
    """The aux_data's == raises where it should return False."""


@planted(Law.AUX_DATA_HASH, "act", like="a __hash__ written before the field was added")
class HashIgnoresField(Layer, hash=hash_without_act):
    """The aux_data's hash leaves a static out."""


@planted(Law.AUX_DATA_HASH, "act", like="a __hash__ and an __eq__ of two authors")
class HashKnowsMore(Layer, eq=equal_without_act):
    """The aux_data's hash has a static that its == leaves out."""


@planted(Law.AUX_DATA_HASH, like="jax#4712, jax#2813")
class HashById(Layer, hash=object.__hash__):
    """Equal aux_data has a hash by address."""


@planted(Law.AUX_DATA_HASH, like="jax#13027, flax#4870")
class EqWithoutHash(Layer, hash=None):
    """The aux_data has an == and so, in Python's way, no hash."""


@planted(Law.STABLE_TREEDEF, like="optax#353, flax#5548")
class FreshEachTime(Layer, eq=object.__eq__, hash=object.__hash__):
    """aux_data is a new object at each flatten, and compared by identity."""


@planted(Law.STABLE_TREEDEF, like="optax#197")
class FreshLambda(Layer):
    """aux_data has a lambda that each flatten recreates."""

    def key(self) -> Any:
        act = self.act
        return self.rate, self.width, lambda: act

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {"rate": aux[0], "width": aux[1], "act": aux[2]()}


@planted(Law.STABLE_TREEDEF, like="a version number in the structure")
class CountsFlattens(Layer):
    """Flatten counts itself, and the count is in the aux_data."""

    count: ClassVar[int] = 0

    def key(self) -> Any:
        type(self).count += 1
        return Statics(rate=self.rate, width=self.width, act=self.act, version=self.count)

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {name: value for name, value in aux.values.items() if name != "version"}
