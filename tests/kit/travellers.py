"""Classes that another process imports, each with something wrong or odd about travelling."""

import os
import sys
from typing import Any

from tests.kit.specimens import ByHand


def is_abroad() -> bool:
    """Whether this is the other process."""
    return sys.argv[0].endswith("other_process.py")


class Hand(ByHand):
    static = ("n",)

    def __init__(self, x: float, n: Any = "n") -> None:
        self.x, self.n = x, n


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


class KeepsItsHash(Hand):
    def __init__(self, x: float, n: str = "n") -> None:
        super().__init__(x, CachedHash(n))


class LosesAStaticAbroad(Hand):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if is_abroad():
            self.n = "lost"


class EndsTheProcess(Hand):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if is_abroad():
            os._exit(3)


class DoesNotUnpickleAbroad(Hand):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if is_abroad():
            raise RuntimeError("not at home")


class Talkative(Hand):
    def __setstate__(self, state: dict[str, Any]) -> None:
        print("unpickled", flush=True)  # noqa: T201  # into the answers, if they are not kept apart
        os.write(1, b"noise")
        self.__dict__.update(state)


class Lambda(Hand):
    def __init__(self, x: float) -> None:
        super().__init__(x, lambda: None)
