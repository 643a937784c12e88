"""Classes that another process imports, each with something wrong or odd about travelling."""

import os
import sys
from typing import Any

import jax


def is_abroad() -> bool:
    """Whether this is the other process."""
    return sys.argv[0].endswith("other_process.py")


class Hand:
    """Written by hand."""

    def __init__(self, x: float, n: str = "n") -> None:
        self.x, self.n = x, n

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.x,), (type(self.n), self.n)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        self = object.__new__(cls)
        (self.x,), (_, self.n) = children, aux
        return self


@jax.tree_util.register_pytree_node_class
class Sound(Hand):
    pass


class CachedHash:
    """A value that keeps its hash, and takes it along."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kept: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CachedHash) and self.text == other.text

    def __hash__(self) -> int:
        if self.kept is None:
            self.kept = hash(self.text)
        return self.kept


@jax.tree_util.register_pytree_node_class
class KeepsItsHash(Hand):
    def __init__(self, x: float, n: str = "n") -> None:
        super().__init__(x, CachedHash(n))  # type: ignore[arg-type]


@jax.tree_util.register_pytree_node_class
class LosesAStaticAbroad(Hand):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if is_abroad():
            self.n = "lost"


@jax.tree_util.register_pytree_node_class
class EndsTheProcess(Hand):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if is_abroad():
            os._exit(3)


@jax.tree_util.register_pytree_node_class
class DoesNotUnpickleAbroad(Hand):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if is_abroad():
            raise RuntimeError("not at home")


@jax.tree_util.register_pytree_node_class
class Talkative(Hand):
    def __setstate__(self, state: dict[str, Any]) -> None:
        print("unpickled", flush=True)  # noqa: T201  # into the answers, if they are not kept apart
        os.write(1, b"noise")
        self.__dict__.update(state)


@jax.tree_util.register_pytree_node_class
class Lambda(Hand):
    def __init__(self, x: float) -> None:
        super().__init__(x, lambda: None)  # type: ignore[arg-type]
