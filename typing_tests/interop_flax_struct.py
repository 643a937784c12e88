"""`leafwise.interop.flax.struct`: constructors are checked, and `.replace` of a node is typed."""

from typing import Any, assert_type

from leafwise.interop.flax import struct


@struct.dataclass
class State:
    x: float
    size: int = struct.field(pytree_node=False, default=3)


@struct.dataclass(kw_only=True)
class Keyed:
    x: float
    names: tuple[str, ...] = struct.field(pytree_node=False, default_factory=lambda: ("w",))
    total: float = struct.field(init=False)

    def __post_init__(self) -> None:
        self.total = 2 * self.x


class Node(struct.PyTreeNode):
    x: float
    rest: Any = struct.field()
    size: int = struct.field(pytree_node=False, default=3)


assert_type(State(1.0).size, int)
assert_type(Keyed(x=1.0).names, tuple[str, ...])
assert_type(Node(1.0, rest=2).replace(x=2.0), Node)
State("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Node()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Keyed(1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Frozen(struct.PyTreeNode, frozen=True):
    x: float


Frozen(1.0).x = 2.0  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

# A decorator cannot add a method for type checkers; flax's own does not either.
State(1.0).replace(x=2.0)  # type: ignore[attr-defined]  # pyright: ignore
