"""`check` blames no class for an instance that its constructor would not make.

The classes were registered by hand: those at the top are sound, each one below has a fault.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import CheckOptions, CheckRun
from tests.kit.specimens import ByHand

import leafwise as lw

from .conftest import report_of

pytestmark = pytest.mark.slow


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class Irrep:
    """As in e3nn_jax: its constructor refuses most numbers, and `==` constructs."""

    degree: int
    parity: int = 1

    def __post_init__(self) -> None:
        assert isinstance(self.degree, int)
        assert 0 <= self.degree < 50
        assert self.parity in (-1, 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Irrep):
            return NotImplemented
        again = Irrep(other.degree, other.parity)
        mine = self.degree, type(self.parity), self.parity
        return mine == (again.degree, type(again.parity), again.parity)

    def __hash__(self) -> int:
        return hash((self.degree, self.parity))


class Registered(ByHand):
    """Its constructor, which unflatten calls, takes the aux_data as keyword arguments."""

    dynamic: tuple[str, ...] = ("x",)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        return cls(*children, **{name: value for name, _, value in aux})


class Grid(Registered):
    """As in ott: it keeps an argument twice, and flattens one of the two."""

    def __init__(self, x: Any = None, size: int = 2) -> None:
        self.x = x
        self.size = size
        self.kwargs = {"size": size}

    def arguments(self) -> dict[str, Any]:
        return self.kwargs


class Quadratic(Registered):
    """As in ott: it can be called, and a static is another one where the child is None."""

    dynamic = ("matrix",)

    def __call__(self, x: Any) -> Any:
        return x @ x

    def __init__(self, matrix: Any = None, *, is_factor: bool = False) -> None:
        self.matrix = matrix
        self._is_factor = is_factor

    @property
    def is_factor(self) -> bool:
        return self.matrix is not None and self._is_factor

    def arguments(self) -> dict[str, Any]:
        return {"is_factor": self.is_factor}


class SqL2(Registered):
    """As in ott: it makes a part whose other statics no instance of it has."""

    def __init__(self, matrix: Any = None) -> None:
        self.part = Quadratic(matrix, is_factor=True)

    def children(self) -> tuple[Any, ...]:
        return (self.part.matrix,)


@lw.pytree
class Operator:
    matrix: jax.Array

    def __post_init__(self) -> None:
        if np.ndim(self.matrix) != 2:
            raise ValueError("the matrix should be 2-dimensional")


class Cost(Registered):
    """As in ott: its constructor, which unflatten calls, refuses arrays of other shapes."""

    dynamic = ("matrix",)
    static = ("rho",)

    def __init__(self, matrix: jax.Array | None = None, rho: float = 1.0) -> None:
        self.matrix = Operator(matrix) if isinstance(matrix, jax.Array) else matrix
        self.rho = rho


class Fitted(Registered):
    """Two statics must fit each other, and the shape of a leaf fits both."""

    dynamic = ("weight",)
    static = ("rows", "columns")

    def __init__(self, weight: Any = None, rows: int = 1, columns: int = 1) -> None:
        if rows != columns:
            raise ValueError("not square")
        self.weight = jnp.ones((rows, columns)) if weight is None else weight
        self.rows, self.columns = rows, columns


class Sized(Registered):
    """As in e3nn_jax: its constructor, which unflatten calls, compares a shape with a static."""

    static = ("size",)

    def __init__(self, x: float, size: int = 0) -> None:
        shape = getattr(x, "shape", ())
        if shape and shape[-1] != size:
            raise ValueError(f"{shape[-1]} != {size}")
        self.x, self.size = x, size


class Problem(Registered):
    """As in ott: its constructor makes a function each time, by a name that it keeps."""

    def __init__(self, x: float, loss: Literal["square", "absolute"] = "square") -> None:
        self.x = x
        self.name = loss
        self.loss = (lambda y: y * y) if loss == "square" else (lambda y: abs(y))

    def arguments(self) -> dict[str, Any]:
        return {"loss": self.name}


class Rescaled(Registered):
    """As in ott: its constructor, which unflatten calls, gives a part another static."""

    dynamic = ("cost",)
    static = ("rho",)

    def __init__(self, cost: Cost, rho: float = 1.0) -> None:
        self.cost = Cost(cost.matrix, rho) if isinstance(cost, Cost) else cost
        self.rho = rho


class Sinkhorn(Registered):
    """As in ott: the constructor changes a static that it is given, as unflatten does."""

    static = ("steps", "momentum")

    def __init__(
        self, x: float = 1.0, steps: int = 10, momentum: tuple[int, ...] | None = None
    ) -> None:
        self.x, self.steps = x, steps
        self.momentum = (1,) if momentum is None else (steps,)


class Solver(Registered):
    """As in ott: a part of it is faulty, and the class itself is not."""

    dynamic = ("inner", "threshold")

    def __init__(self, inner: Sinkhorn, threshold: float = 0.5) -> None:
        self.inner, self.threshold = inner, threshold


@jax.tree_util.register_pytree_node_class
class Entries:
    """As `flax.nnx.State`: its children are the values of a mapping that it keeps."""

    def __init__(self, mapping: Mapping[str, Mapping[str, float]]) -> None:
        self._mapping = dict(mapping)

    def tree_flatten(self) -> Any:
        keys = sorted(self._mapping)
        return [self._mapping[key] for key in keys], tuple(keys)

    @classmethod
    def tree_unflatten(cls, keys: Any, values: Any) -> Any:
        return cls(dict(zip(keys, values, strict=True)))


class Cell(Registered):
    """As `flax.nnx.Param`: if it is asked to, it makes an instance of another class."""

    def __new__(cls, x: jax.Array | float = 0.0, *, mutable: bool = False) -> Any:
        del x
        return object.__new__(MutableCell if mutable else cls)

    def __init__(self, x: jax.Array | float = 0.0, *, mutable: bool = False) -> None:
        del mutable
        self.x = x


class MutableCell:
    """No pytree."""


SOUND = (Irrep, Grid, SqL2, Cost, Fitted, Sized, Entries, Cell)
SOUND += (Problem, Rescaled, Solver)


class Cosine(Registered):
    """As in ott: its flatten drops an argument, which is kept in a private attribute."""

    def __init__(self, x: float = 1.0, ridge: float = 0.5) -> None:
        self.x, self._ridge = x, ridge


class Pair(Cost):
    """As in ott: unflatten changes the aux_data, so that a treedef works once."""

    def tree_flatten(self) -> Any:
        return (self.matrix,), {"rho": self.rho}

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        return cls(*children, rho=aux.pop("rho"))


@dataclasses.dataclass
class Copies:
    """As in ott: its flatten copies the leaves."""

    start: int = 0
    value: float = 1.0


def _unflatten(aux: Any, leaves: Any) -> Copies:
    return Copies(**aux.unflatten(leaves))


jax.tree_util.register_pytree_node(
    Copies, lambda x: jax.tree_util.tree_flatten(dataclasses.asdict(x)), _unflatten
)

FAULTY = {Quadratic: "", Sinkhorn: "momentum", Cosine: "_ridge", Pair: "", Copies: ""}
"""The classes with a fault, and the name of the attribute that it is about, if it is one."""


def checked(cls: type) -> tuple[int, list[str]]:
    """Return the exit code of a check, and what it found or left out."""
    report = report_of(cls, CheckOptions())
    bad = [f"{row.field}: {row.change}: {row.note}" for row in report.rows if row.verdict.is_bad]
    bad += [law.message for law in report.laws if law.verdict.is_bad]
    return CheckRun((report,)).exit_code, [*bad, *filter(None, [report.error])]


@pytest.mark.nightly
@pytest.mark.parametrize("cls", SOUND)
def test_a_sound_class(cls: type) -> None:
    """All that its constructor accepts is as promised: nothing is found, and nothing left out."""
    assert checked(cls) == (0, [])


@pytest.mark.nightly
@pytest.mark.parametrize("cls", FAULTY)
def test_a_fault(cls: type) -> None:
    """What flatten drops, and the round trip does not give back, is found, and nothing else."""
    code, found = checked(cls)
    assert code == 1
    name = FAULTY[cls]
    of_field = tuple(f"{each}{end}" for each in (name, f"{cls.__name__}.{name}") for end in ": [.")
    of_class = f"{cls.__name__}: "
    assert any(each.startswith(of_field if name else of_class) for each in found), found
    assert all(each.startswith((*of_field, of_class)) for each in found), found
