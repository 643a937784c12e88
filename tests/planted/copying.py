"""Faults in copies: `copy`, `deepcopy`, `pickle`, a new process, and `replace`."""

import copy
from collections.abc import Iterable
from typing import Any, Self

import jax
from jax.tree_util import GetAttrKey
from tests.kit.travellers import CachedHash

from leafwise.testing import Law

from .exact import Node, Statics
from .table import correct, planted


@correct
class Model(Node):
    """A correct class, whose constructor counts, so that to run it again would show."""

    CHILDREN = ("w",)
    STATICS = ("depth", "act")

    def __init__(self, w: jax.Array, depth: int, act: str = "tanh") -> None:
        self.w = w
        self.depth = depth + 1
        self.act = act

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changes."""
        made = object.__new__(type(self))
        vars(made).update({**vars(self), **changes})
        return made

    def __replace__(self, **changes: Any) -> Self:
        return self.replace(**changes)


@planted(Law.COPIES, "act", like="a __getstate__ written before the field was added")
class StateWithoutStatic(Model):
    """`__getstate__` drops a static."""

    def __getstate__(self) -> dict[str, Any]:
        return {"w": self.w, "depth": self.depth}


@planted(Law.COPIES, "act", like="pickles of an older version")
class StateWithDefault(Model):
    """`__setstate__` sets a static to its default."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "act": "tanh"})


@planted(Law.COPIES, "depth", like="a __reduce__ that calls the class")
class ReduceRunsInit(Model):
    """`__reduce__` runs `__init__` again, which adds one again."""

    def __reduce__(self) -> Any:
        return type(self), (self.w, self.depth, self.act)


@planted(Law.COPIES, "act", like="copiers written by hand")
class DeepcopyLosesStatic(Model):
    """`__deepcopy__` forgets a static."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(copy.deepcopy(self.w, memo), self.depth - 1)


@planted(Law.COPIES, like="copiers written by hand")
class CopyIsBase(Model):
    """`__copy__` makes an instance of the base class."""

    def __copy__(self) -> Any:
        return Model(self.w, self.depth - 1, self.act)


@planted(Law.COPIES, "w", like="compressed checkpoints")
class CopyCastsLeaf(Model):
    """`pickle` carries a child as a NumPy array of another dtype."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "w": jax.numpy.asarray(self.w, "float16")}


@planted(Law.REPLACE, "act", like="flax#4312: replace with **kwargs")
class ReplaceToDefault(Model):
    """`replace` sets a static that it is not given to its default."""

    def replace(self, **changes: Any) -> Self:
        return type(self)(**{"w": self.w, "depth": self.depth - 1, **changes})


@planted(Law.REPLACE, "depth", like="a replace that calls the class")
class ReplaceRunsInit(Model):
    """`replace` runs `__init__` again, which adds one again."""

    def replace(self, **changes: Any) -> Self:
        return type(self)(**{**vars(self), **changes})


@planted(Law.REPLACE, like="a replace that names its class")
class ReplaceDropsClass(Model):
    """`replace` makes an instance of the base class."""

    def replace(self, **changes: Any) -> Any:
        return Model(**{"w": self.w, "depth": self.depth - 1, "act": self.act, **changes})


@planted(Law.COPIES, like="cpython#80605, tensordict#1774")
class FrozenUnpickled:
    """Unpickling sets attributes, which a frozen class with slots refuses."""

    __slots__ = ("act", "w")

    def __init__(self, w: jax.Array, act: str) -> None:
        object.__setattr__(self, "w", w)
        object.__setattr__(self, "act", act)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set")

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.w,), Statics(act=self.act)

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        return ((GetAttrKey("w"), self.w),), Statics(act=self.act)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        object.__setattr__(self, "w", *children)
        object.__setattr__(self, "act", aux.values["act"])
        return self


@correct
class Frozen(FrozenUnpickled):
    """A correct class: frozen, with slots, and a state that it sets in its own way."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        for name, value in state[1].items():
            object.__setattr__(self, name, value)


class Unit(CachedHash):
    """A static value that is compared by its text, and computes its hash each time."""

    def __hash__(self) -> int:
        return hash(self.text)

    __eq__ = CachedHash.__eq__


@correct
class Length(Node):
    """A correct class: its static is an object with its own `==`."""

    CHILDREN = ("value",)
    STATICS = ("unit",)

    def __init__(self, value: jax.Array, unit: Unit) -> None:
        self.value = value
        self.unit = unit


@planted(Law.FRESH_PROCESS, "unit", like="a hash that an object keeps")
class HashOfStaticTravels(Length):
    """A static keeps a hash of texts, which is another one in a new process."""

    def __init__(self, value: jax.Array, unit: CachedHash) -> None:
        super().__init__(value, unit)


@planted(Law.FRESH_PROCESS, like="a hash that an object keeps")
class HashTravels(Model):
    """aux_data keeps a hash of texts, which is another one in a new process."""

    class _Key(Statics):
        """aux_data that computes its hash once, and takes it along in a pickle."""

        def __init__(self, **values: Any) -> None:
            super().__init__(**values)
            self.kept = hash(self.form())

        def __hash__(self) -> int:
            return self.kept

        __eq__ = Statics.__eq__
