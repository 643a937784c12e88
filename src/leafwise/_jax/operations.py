"""Which source lines created the operations of a program that XLA is about to compile.

JAX records the Python frames that created each operation, without its own. A frame has a column, so
that two calls on one line are distinct.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from jaxlib.mlir import ir  # as in `leafwise._jax.compiles`


class Frame(NamedTuple):
    """Where the expression that a function was evaluating begins; columns count from 0."""

    file: str
    line: int
    column: int
    function: str = ""


Frames: TypeAlias = tuple[Frame, ...]
"""The frames around an operation, the innermost first."""


class Statement(NamedTuple):
    """What the operations created by one piece of code have in common."""

    frames: Frames
    # The primitive, its direction and the operation; empty for operations that JAX's own functions
    # and derivative rules created, whose number says nothing about user code.
    label: str = ""
    draw: str = ""  # the function of `jax.random` that created them, outside `vmap`
    is_deep: bool = False  # whether that drew an array of three axes or more


DRAWS: Final = ("normal", "truncated_normal", "uniform")
_DRAW: Final = re.compile(rf"_({'|'.join(DRAWS)})(_\d+)?")
"""The functions of modules that draw random numbers, one for each shape."""


class Operations(NamedTuple):
    """The operations of a program; XLA compiles a called function once for each of its calls."""

    counts: Mapping[Statement, int]
    alike: Mapping[Statement, int]  # how many of these have the most common type of result
    constants: Mapping[Frames, int]  # in bytes
    stack: Collection[tuple[str, int]] = ()  # files and lines around the call of the function
    is_folded: bool = False  # whether an operation has a large constant, and constants alone
    # Whether the numbers of a draw depend on its shape by their order alone: a reshaped draw of two
    # axes has the same ones. So it is with `jax_threefry_partitionable`, the default.
    is_flat: bool = False

    def depth(self, frames: Frames) -> int:
        """Return how many of some frames are inside the jitted function."""
        for depth, frame in enumerate(frames):
            if frame[:2] in self.stack:
                return depth
        return len(frames)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def nbytes(self) -> int:
        return sum(self.constants.values())


def read_operations(module: Any, stack: Collection[tuple[str, int]] = ()) -> Operations:
    """Count the operations of a StableHLO module by the code that created them, in 5 us each."""
    reader = _LocationReader()
    constants, is_folded, is_flat = Counter[Frames](), False, False
    own: dict[str, Counter[tuple[Statement, Any]]] = {}
    calls: dict[str, Counter[tuple[Statement, str]]] = {}
    with module.context:
        for function in module.body.operations:
            name = str(function.attributes["sym_name"].value)
            own[name], calls[name] = Counter(), Counter()
            for (location, operation, callee, draw, kind), number in reader.walk(function):
                frames, primitive, is_rule = reader.read(location)
                is_rule |= operation in ("func.func", "func.return", "stablehlo.constant")
                label = "" if is_rule else f"{primitive} {operation}"
                statement = Statement(frames, label, draw, bool(draw) and _is_deep(kind))
                own[name][statement, kind] += number
                if callee:
                    calls[name][statement, callee] += number
                    is_flat |= callee.startswith("threefry2x32") and _is_deep(kind)
                if operation == "stablehlo.constant":
                    constants[frames] += number * _nbytes(kind)
            is_folded |= any(map(_is_folded, reader.large))
            reader.large.clear()

    @functools.cache
    def expanded(name: str) -> Counter[tuple[Statement, Any]]:
        counts = Counter(own.get(name, {}))
        for (call, callee), number in calls.get(name, {}).items():
            for (statement, kind), times in expanded(callee).items():
                frames = _joined(statement.frames, call.frames)
                is_of_jax = frames == call.frames
                joined = call._replace(label="") if is_of_jax else statement._replace(frames=frames)
                counts[joined, kind] += number * times
        return counts

    counts, alike = Counter[Statement](), dict[Statement, int]()
    for (statement, _), number in expanded("main").items():
        counts[statement] += number
        alike[statement] = max(number, alike.get(statement, 0))
    return Operations(counts, alike, constants, stack, is_folded, is_flat)


LARGE_BYTES: Final = 1 << 20  # constants of at least this many bytes are reported

_NEVER_FOLDED: Final = frozenset(
    {
        "func.return",
        "stablehlo.broadcast_in_dim",
        "stablehlo.case",
        "stablehlo.custom_call",
        "stablehlo.optimization_barrier",
        "stablehlo.reshape",
        "stablehlo.return",
        "stablehlo.while",
    }
)
"""Operations on constants alone that XLA leaves as they are, or that cost nothing."""


def _is_folded(constant: Any) -> bool:
    """Return whether an operation has nothing but this constant and others as operands."""
    users = [use.owner for use in constant.uses]
    return any(
        user.name not in _NEVER_FOLDED and all(map(_is_constant, user.operands)) for user in users
    )


def _is_constant(operand: Any) -> bool:
    return getattr(operand.owner, "name", "") == "stablehlo.constant"  # or it is of a block


def _is_deep(kind: Any) -> bool:
    return len(kind.shape) > 2  # noqa: PLR2004


def _draw(call: Any, callee: str) -> str:
    """Return the function of `jax.random` that is called with one key of threefry, or ""."""
    found = _DRAW.fullmatch(callee)
    return found[1] if found and call.operands[0].type.shape == [2] else ""


def _nbytes(kind: Any) -> int:
    bits = re.search(r"\d+", str(kind.element_type))
    return int(math.prod(kind.shape)) * max(1, int(bits[0]) // 8 if bits else 1)


class _LocationReader:
    """Reads the locations of one module, each part of them once."""

    def __init__(self) -> None:
        self._locations: dict[Any, Any] = {}  # by their attributes, which are hashable
        self._frames: dict[Any, tuple[Frames, bool]] = {}
        self.large: list[Any] = []  # the constants of the function that was walked last

    def walk(self, function: Any) -> Any:
        """Return the operations in a function, counted by location, name, callee, draw and type."""
        counts = Counter[tuple[Any, str, str, str, Any]]()

        def count(operation: Any) -> Any:
            name, results, location = operation.name, operation.results, operation.location
            callee = operation.attributes["callee"].value if name == "func.call" else ""
            self._locations.setdefault(location.attr, location)
            if name == "stablehlo.constant" and _nbytes(results[0].type) >= LARGE_BYTES:
                self.large.append(results[0])
            draw = _draw(operation, callee) if callee else ""
            kind = results[0].type if len(results) else None
            counts[location.attr, name, callee, draw, kind] += 1
            return ir.WalkResult.ADVANCE

        function.operation.walk(count, ir.WalkOrder.PRE_ORDER)
        return counts.items()

    def read(self, attribute: Any) -> tuple[Frames, str, bool]:
        """Return the frames, the primitive, and whether a rule of JAX stands in for a call."""
        location = self._locations[attribute]
        # Scope names are left out: flax gives each layer its own.
        name = str(location.name_str) if _is(location, "name") else ""
        primitive = name.rpartition("/")[2] + " backward" * ("transpose(" in name)
        frames, is_rule = self._read_frames(location)
        return frames, primitive, is_rule

    def _read_frames(self, location: Any) -> tuple[Frames, bool]:
        """Return the frames; for ``callsite(A at B)``, those of A and then those of B."""
        if location.attr not in self._frames:
            read: tuple[Frames, bool] = (), False
            if _is(location, "name"):
                read = self._read_frames(location.child_loc)
                if _is(location.child_loc, "file"):
                    (frame,), is_rule = read
                    read = (frame._replace(function=str(location.name_str)),), is_rule
            elif _is(location, "callsite"):
                inside, _ = self._read_frames(location.callee)
                call, is_rule = self._read_frames(location.caller)
                frames = _joined(inside, call)
                read = frames, is_rule or frames == call
            elif _is(location, "file"):
                frame = Frame(str(location.filename), location.start_line, location.start_col)
                read = (frame,), False
            self._frames[location.attr] = read
        return self._frames[location.attr]


def _is(location: Any, kind: str) -> bool:
    """Return whether a location is of a kind, by its method or, in versions without, its class."""
    classes = {"name": "NameLoc", "callsite": "CallSiteLoc", "file": "FileLineColLoc"}
    is_a = getattr(location, f"is_a_{kind}", None)
    return type(location).__name__ == classes[kind] if is_a is None else bool(is_a())


def _joined(inside: Frames, call: Frames) -> Frames:
    """Return the frames in a called function, followed by those around the call."""
    # The frames in a loop body go on with those of the loop. Rules of JAX have all frames of the
    # call, or those of another place in it.
    for start in range(len(inside)):
        if inside[start:] == call[: len(inside) - start]:
            return inside[:start] + call
    return call if len(inside) > 1 and inside[-1] in call else inside + call
