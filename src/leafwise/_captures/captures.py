"""`leafwise.captures`: what a function captures, and how JAX treats it."""

import collections
import dataclasses
import math
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from leafwise._captures.observe import observing
from leafwise._captures.places import DEAD, BoundIn
from leafwise._captures.reads import Read, reachable, reads_of
from leafwise._captures.treatment import CapturedLeaf, Treatment, contents_of, treatment_of_leaf
from leafwise._display.captures import captures_lines
from leafwise._findings.records import CaptureRecord, CapturesRecord
from leafwise._findings.words import ShownAsText, count
from leafwise._jax.context import traced_afresh
from leafwise._jax.events import ignore_events
from leafwise._objects.attributes import hides_attributes, is_data, is_tree, name_of
from leafwise._objects.classes import is_a
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.source.call_site import is_users_file, short_file
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import describe_array, got


class CapturedAt(NamedTuple):
    """Where a captured value is bound, and where it is first read.

    Attributes:
        holder: What kind of place it is bound in.
        owner: The file, function or class that has it.
        file: The file of the first read.
        line: The line of the first read, from 1; 0 if unknown.
        function: The function that reads it.
    """

    holder: BoundIn
    owner: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return ``global of train.py, read at train.py:30 by step``."""
        is_partial = self.holder is BoundIn.PARTIAL
        where = f"({self.owner})" if is_partial else f" of {self.owner}"
        read = f" at {short_file(self.file)}:{self.line}" if self.line else ""
        return f"{self.holder}{where}, read{read} by {self.function}"


@dataclasses.dataclass(frozen=True, eq=False)
class Capture:
    """One value that a function reads from outside its arguments.

    Attributes:
        name: The place, as the code spells it: ``lr``, ``config.rate``, ``self.w``.
        where: Where it is bound, and where it is first read.
        treatment: How JAX treats it.
        value: The current value; None if nothing is bound.
        leaves: The leaves of a container or an object that enter the program or are called, each
            with its path and its own treatment. Empty for any other value.
        is_bound: Whether there is a value. A name may be bound later.
        arrays: The id and the size in bytes of each array in it that enters the program.
    """

    name: str
    where: CapturedAt
    treatment: Treatment
    value: Any = dataclasses.field(repr=False)
    leaves: tuple[CapturedLeaf, ...] = ()
    is_bound: bool = True
    arrays: tuple[tuple[int, int], ...] = dataclasses.field(default=(), repr=False)

    @property
    def nbytes(self) -> int:
        """The total size of these arrays in bytes."""
        return sum(nbytes for _, nbytes in self.arrays)

    @property
    def summary(self) -> str:
        """A short description of the value; no user-defined ``__repr__`` runs."""
        value, kind = self.value, type(self.value).__name__
        if not self.is_bound:
            return "not bound"
        if self.treatment is Treatment.PYTREE:
            kinds = collections.Counter(leaf.treatment.value for leaf in self.leaves)
            return f"{kind} of {', '.join(count(n, each) for each, n in kinds.items())}"
        if hides_attributes(type(value)):
            return f"<{kind}>"
        if is_a(value, jax.Array | np.ndarray):
            return describe_array(value)
        if type(value) in (list, tuple, dict, set, frozenset, bytearray):
            return f"{kind} of {count(len(value), 'item')}"
        if is_data(value):
            return describe(value, DescribeOptions(short=True))[:60]
        is_named = callable(value) or is_a(value, types.ModuleType)
        name = name_of(value) if is_named else kind
        return f"<{kind}>" if name == kind else f"<{kind} {name}>"


class Captures(ShownAsText, tuple[Capture, ...]):  # noqa: SLOT001  # it has attributes
    """The captures of a function; `str` returns a table.

    Attributes:
        function: The name of the function.
    """

    function: str

    def __new__(cls, captures: Iterable[Capture], function: str = "") -> Self:
        self = super().__new__(cls, captures)
        self.function = function
        return self

    def own(self) -> "Captures":
        """Return the captures that user code reads, not those of packages and generated code."""
        items = (capture for capture in self if is_users_file(capture.where.file))
        return Captures(items, self.function)

    @property
    def total_nbytes(self) -> int:
        """The size of all captured arrays in bytes, counting each array once."""
        return sum(dict(pair for each in self for pair in each.arrays).values())

    def record(self) -> CapturesRecord:
        """Return the captures as text and numbers."""
        captures = [
            CaptureRecord(
                capture.name,
                capture.treatment.value,
                capture.nbytes,
                capture.summary,
                str(capture.where),
            )
            for capture in self
        ]
        return CapturesRecord(self.function, self.total_nbytes, captures)

    def as_dict(self) -> dict[str, Any]:
        """Return the captures as plain values that `json.dumps` accepts."""
        return dataclasses.asdict(self.record())

    def __str__(self) -> str:
        """Return a table with a line for each capture; those of packages share one line."""
        return "\n".join(captures_lines(self.record()))

    __repr__ = __str__


def captures(fn: Callable[..., Any], *args: Any) -> Captures:
    """List what a function reads from outside its arguments, and how JAX treats it.

    JAX reads these values when it traces the function, and never again. With arguments, the
    function is traced, and all reads of user functions that run are listed. Without them, nothing
    runs: the code of the function and of the functions and methods that it names is analyzed,
    through wrappers (`jax.jit`, `functools.wraps`), partials, bound methods and callable objects.

    A capture is the longest path that the code spells out: ``config.rate``, ``config['rate']``. An
    object that is used as a whole is one capture. Names computed at run time (``globals()[name]``,
    ``getattr(self, name)``) are not seen.

    Args:
        fn: Any callable.
        *args: The arguments of a call, as `jax.eval_shape` takes them.

    Returns:
        The captures: first those of `fn` itself, then those of the functions that it names, each
        place once, in the order of the code. `print` shows them as a table.

    Raises:
        TypeError: `fn` is not callable.

    Examples:
        >>> print(captures(step))  # doctest: +SKIP
        name  treatment  bytes  value  where
        rate  literal           0.1    global of train.py, read at train.py:26 by step
    """
    if not callable(fn):
        raise TypeError(
            f"captures takes a function or another callable, got {got(fn)}\n"
            f"  fix: print(lw.captures(step))"
        )
    if not args:
        return captures_of(fn, reads_of(reachable(fn), fn))
    with observing() as observer, ignore_events(), traced_afresh():
        jax.eval_shape(fn, *args)
    return captures_of(fn, reads_of(observer.runs(), fn))


def captures_of(fn: Callable[..., Any], reads: Iterable[Read]) -> Captures:
    shown = [read for read in reads if not (read.place.is_member or read.itself)]
    items = [_capture(read) for read in shown if read.place.read() is not DEAD]
    return Captures(items, name_of(fn))


def _capture(read: Read) -> Capture:
    value, where = read.place.read(), _captured_at(read)
    if value is MISSING:
        return Capture(read.place.name, where, Treatment.STATIC, None, is_bound=False)
    contents = contents_of(value)
    inside = {leaf.treatment for leaf, _ in contents}
    is_pytree = is_tree(value) and inside & {Treatment.LITERAL, Treatment.CONSTANT}
    treatment = treatment_of_leaf(value) or (Treatment.PYTREE if is_pytree else None)
    treatment = treatment or (Treatment.FUNCTION if callable(value) else Treatment.STATIC)
    leaves = tuple(leaf for leaf, _ in contents if leaf.path)
    nbytes = {
        id(array): math.prod(array.shape) * array.dtype.itemsize
        for leaf, array in contents
        if leaf.treatment is Treatment.CONSTANT
    }
    return Capture(read.place.name, where, treatment, value, leaves, arrays=tuple(nbytes.items()))


def _captured_at(read: Read) -> CapturedAt:
    place, code = read.place, read.code
    owner, file = place.owner(), "" if code is None else code.co_filename
    function, holder = read.reader.rpartition("<locals>.")[2], ""
    match place.holder:
        case BoundIn.GLOBAL:
            own = owner.get("__file__")
            holder = short_file(own if isinstance(own, str) else file)
        case BoundIn.IMPORT:
            holder = short_file(file)
        case BoundIn.PARTIAL:
            holder = name_of(owner)
        case BoundIn.ATTRIBUTE:
            holder = (owner if is_a(owner, type) else type(owner)).__name__
        case BoundIn.CLOSURE | BoundIn.DEFAULT:
            own = owner.__code__
            scope, _, inner = own.co_qualname.rpartition(".<locals>.")
            outer = scope if place.holder is BoundIn.CLOSURE else ""
            held_by = outer.rpartition("<locals>.")[2] or inner
            holder = f"{held_by}, {short_file(own.co_filename)}"
    return CapturedAt(place.holder, holder, file, read.line, function)
