"""Faults of classes whose constructor runs where it should not, or does not where it should."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass

from leafwise.testing import Law

from .exact import Node, Statics, exact
from .table import correct, planted


@correct
class Grid(Node):
    """A correct class: its constructor checks, converts and computes, and runs once."""

    CHILDREN = ("points",)
    STATICS = ("level",)

    def __init__(self, points: jax.Array, level: int) -> None:
        if not hasattr(points, "shape"):
            raise TypeError(f"Grid.points: {points!r} ({type(points).__name__}) is no array")
        self.points = jnp.asarray(points)
        self.level = level + 1


@planted(Law.ROUND_TRIP, "level", like="jax#12319")
class InitCounts(Grid):
    """`__init__` runs again at unflatten, and adds one again."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        return cls(*children, aux.values["level"])


@planted(Law.ANY_LEAF, like="jax#4673, jax#14619")
class InitValidates(Grid):
    """`__init__` runs again at unflatten, and refuses what is no array."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        (points,) = children
        return cls(points, aux.values["level"] - 1)


@planted(Law.ANY_LEAF, like="jax#25486")
class InitConverts(Grid):
    """`__init__` runs again at unflatten, and converts what it is given to an array."""

    def __init__(self, points: jax.Array, level: int) -> None:
        self.points = jnp.asarray(points)
        self.level = level

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        return cls(*children, aux.values["level"])


@planted(Law.ROUND_TRIP, like="equinox#296")
class NewWithArguments(Grid):
    """Unflatten calls a `__new__` that wants what it is not given."""

    def __new__(cls, points: jax.Array, level: int) -> Self:
        del points, level
        return object.__new__(cls)

    def __reduce__(self) -> Any:
        return object.__new__, (type(self),), vars(self)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = cls.__new__(cls)
        (self.points,) = children
        self.level = aux.values["level"]
        return self


@correct
@dataclasses.dataclass(eq=False)
class Weights(Node):
    """A correct class: `__post_init__` is left out at unflatten, and may run at `replace`."""

    CHILDREN = ("values", "scale")
    STATICS = ("tags",)

    values: jax.Array
    scale: float
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.tags[-1:] != ("made",):
            self.tags = (*self.tags, "made")


class RunsAgain(Weights):
    """Not registered: weights whose unflatten calls the class."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        return cls(*children, tags=aux.values["tags"])


@planted(Law.POST_INIT, like="jax#25486: register_dataclass")
class PostInitRuns(RunsAgain):
    """`__post_init__` runs again at unflatten; it changes nothing more, and costs time."""


@planted(Law.POST_INIT, like="jax#25486: register_dataclass")
class PostInitAppends(RunsAgain):
    """`__post_init__` runs again at unflatten, and appends again."""

    def __post_init__(self) -> None:
        self.tags = (*self.tags, "made")


@planted(Law.POST_INIT, like="kUPS#290")
class PostInitNormalises(RunsAgain):
    """`__post_init__` runs again at unflatten, and divides by the sum again."""

    def __post_init__(self) -> None:
        if isinstance(self.values, jax.Array):
            self.values = self.values / (1 + jnp.abs(self.values).sum())


@planted(Law.NO_TRACER_LEAKS, like="registries of instances")
class PostInitLists(RunsAgain):
    """`__post_init__` runs again at unflatten, and lists the instance with its class."""

    MADE: ClassVar[list[Any]] = []

    def __post_init__(self) -> None:
        self.MADE.append(self)


@planted(Law.REPLACE, "tags", like="dataclasses.replace")
class PostInitAtReplace(Weights):
    """`dataclasses.replace` runs `__post_init__` again, which appends again."""

    def __post_init__(self) -> None:
        self.tags = (*self.tags, "made")


@planted(Law.ANY_LEAF, like="jax#25486: register_dataclass")
@dataclasses.dataclass
class PostInitConverts:
    """JAX's `register_dataclass`: `__post_init__` runs again, and converts to an array."""

    values: jax.Array
    scale: float
    tags: tuple[str, ...] = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        self.values = jnp.asarray(self.values)


register_dataclass(PostInitConverts)


@correct
@dataclasses.dataclass(eq=False)
class Derived(Node):
    """A correct class: a field that the constructor does not take is a static like another."""

    CHILDREN = ("x",)
    STATICS = ("width", "area")

    x: jax.Array
    width: int
    area: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.area = self.width * self.width


@planted(Law.NO_HIDDEN_STATE, "area", like="jax_dataclasses, tjax: statics with init=False")
class InitFalseDropped(Derived):
    """A field with `init=False` is not flattened, and gone after unflatten."""

    STATICS = ("width",)


@correct
class InitFalseNotCompared(Derived, form=lambda key: Statics.form(key)[:1]):
    """A correct class: what is computed from a static that is compared need not be."""


@correct
class Scaled(Node):
    """A correct class: its constructor takes one function for each slope, as a static."""

    CHILDREN = ("w",)
    STATICS = ("act",)

    def __init__(self, w: jax.Array, slope: float) -> None:
        self.w = w
        self.act = scaling(slope)


@functools.cache
def scaling(slope: float) -> Callable[[Any], Any]:
    return lambda x: x * slope


@planted(Law.SAME_ARGUMENTS, "act", like="README: a new lambda each call, as a class")
class LambdaInConstructor(Scaled):
    """The constructor creates the function, so that each instance compiles its own program."""

    def __init__(self, w: jax.Array, slope: float) -> None:
        self.w = w
        self.act = lambda x: x * slope


def form_by_slope(key: Statics) -> Any:
    return exact(key.values["act"].__closure__[0].cell_contents)


@correct
class BySlope(LambdaInConstructor, form=form_by_slope):
    """A correct class: a new function each time, and aux_data that compares its slope."""
