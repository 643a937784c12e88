"""A class that its own module does not register."""

import jax

from .exact import Node


class RegisteredElsewhere(Node):
    """Another module registers the class, and a new process does not import that one."""

    CHILDREN = ("w",)
    STATICS = ("depth", "act")

    def __init__(self, w: jax.Array, depth: int, act: str = "tanh") -> None:
        self.w = w
        self.depth = depth
        self.act = act
