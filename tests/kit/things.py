"""Plain classes whose instances hold what they are given, for captures that change."""

import dataclasses
from typing import Any


class Thing:
    """An object that holds what it is given."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


class Model(Thing):
    rate: Any

    def __call__(self, x: Any = 1.0) -> Any:
        return x * self.rate

    def step(self, x: Any) -> Any:
        return x * self.rate


@dataclasses.dataclass(frozen=True)
class Frozen:
    act: Any
