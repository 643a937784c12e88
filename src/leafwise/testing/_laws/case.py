"""One example for one law: the drawn values, and the message if it breaks the law."""

import dataclasses
import functools
import math
import operator
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

import hypothesis
import hypothesis.errors
import jax
from hypothesis import strategies as st

from leafwise._findings.words import without_addresses
from leafwise._jit.jax_errors import CONSTRUCTORS
from leafwise._objects.interrupts import or_default
from leafwise._objects.locks import cached_property
from leafwise._trees.equality import is_distinct
from leafwise._trees.roles import FieldNames, field_names_of
from leafwise.errors import LawViolation
from leafwise.testing._format import code_of, cut, format_error, users_frames
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.libraries import constructor_fix, fix_of, is_own
from leafwise.testing._laws.same import difference, recreated, state_of
from leafwise.testing.strategies._edit_positions import EditPosition, Role, edit_positions, owner_at
from leafwise.testing.strategies._edits import Edit, EditKind, make_edit, options_of

T = TypeVar("T")

_WIDTH: Final = 300
_FLATTEN_FIX: Final = "return the children from flatten as they are, without checks or conversion"
_OR_REGISTER: Final = "; or register it with `@lw.pytree` alone, with declared fields"
_OF_EDITS: Final = (
    *(Law.TREEDEF_EQUALITY, Law.STATIC_VALUES, Law.STATIC_TYPES, Law.AUX_DATA_HASH),
    Law.RECOMPILATION,
)
"""The laws that replace a value in an instance by another one, which its class may refuse."""


def draw_unprinted(data: st.DataObject, strategy: st.SearchStrategy[T]) -> T:
    """Draw a value that Hypothesis does not print, since a user's ``repr`` may raise."""
    source: Any = data.conjecture_data
    return cast("T", source.draw(strategy))


def choose(data: st.DataObject, values: Sequence[T]) -> T:
    # Faster than `sampled_from`.
    return values[draw_unprinted(data, st.integers(0, len(values) - 1))]


class Pair(NamedTuple):
    """Two instances that differ in one static."""

    path: str
    before: Any
    after: Any
    one: Any
    other: Any


_DRAWN: Final = (
    *((EditKind.STATIC_TYPE, 1), (EditKind.STATIC_VALUE, 4)),
    *((EditKind.STATIC_TYPE, 1), (EditKind.STATIC_VALUE, 1)),
    (EditKind.LEAF_VALUE, 1),
)
"""The kinds of edits, and how many of each are drawn at one position."""


class Edits:
    """The edits of one instance, drawn once for all laws, while there is time."""

    def __init__(self, instance: Any, data: st.DataObject) -> None:
        self._instance = instance
        self._data = data
        self.until = math.inf

    @cached_property
    def names(self) -> FieldNames:
        return field_names_of(self._instance)

    @cached_property
    def positions(self) -> list[EditPosition]:
        return list(edit_positions(self._instance))

    @cached_property
    def drawn(self) -> list[tuple[EditPosition, Edit[Any]]]:
        """Edits of statics, with several values of one static first, and one edit of a leaf."""
        edits: list[tuple[EditPosition, Edit[Any]]] = []
        options = options_of(self.positions, dict(_DRAWN))
        for kind, number in _DRAWN:
            fields: dict[str, list[Any]] = {}  # per field, as some contain many positions
            for option in options.get(kind, []):
                fields.setdefault(re.split(r"[.\[]", option[0].path)[0], []).append(option)
            if not fields:
                continue
            position, strategy = choose(self._data, fields[choose(self._data, list(fields))])
            for _ in range(number):
                new = draw_unprinted(self._data, strategy)
                is_late = time.process_time() >= self.until
                if not is_late and (edit := make_edit(kind, position, new)) is not None:
                    edits.append((position, edit))
        return edits

    @cached_property
    def recreated(self) -> "list[Pair]":
        """Pairs of instances that differ in one static by identity only."""
        pairs: list[Pair] = []
        for position in self.positions:
            value = position.value
            fresh = recreated(value) if position.role is Role.STATIC and position.name else value
            if fresh is not value and is_distinct(value, fresh) is False:
                # Not the instance itself: a constructor may convert its arguments.
                one, other = position.put(value), position.put(fresh)
                if one is not None and other is not None:
                    pairs.append(Pair(position.path, value, fresh, one, other))
        return pairs

    @cached_property
    def pairs(self) -> list[Pair]:
        """Pairs that differ in a static: recreated ones, and drawn ones."""
        drawn = (edited for edited in self.drawn if edited[0].role is Role.STATIC)
        return [*self.recreated, *(pair for edited in drawn for pair in self._pairs_of(*edited))]

    def _pairs_of(self, position: EditPosition, edit: Edit[Any]) -> Iterator[Pair]:
        yield Pair(edit.path, edit.before, edit.after, self._instance, edit.edited)
        if time.process_time() >= self.until:
            return
        if type(edit.before) is float:  # 0.0 and -0.0, which are rarely drawn
            zeros = [make_edit(edit.kind, position, zero) for zero in (0.0, -0.0)]
            ends = [(zero.after, zero.edited) for zero in zeros if zero is not None]
            if len(ends) == 1:  # it was the other zero already, or the class refuses it
                ends.append((edit.before, self._instance))
            if ends:
                (before, one), (after, other) = ends
                yield Pair(edit.path, before, after, one, other)
        # Not of a part, since its container may compare by identity.
        fresh = recreated(edit.after) if position.name else edit.after
        again = make_edit(edit.kind, position, fresh) if fresh is not edit.after else None
        if again is not None:
            yield Pair(edit.path, edit.after, again.after, edit.edited, again.edited)


@dataclasses.dataclass(frozen=True)
class Case:
    """An instance that a law is tested on."""

    law: Law
    instance: Any
    data: st.DataObject
    edits: Edits
    others: st.SearchStrategy[Any]
    """Other instances from the same strategy."""

    @property
    def cls(self) -> type:
        return type(self.instance)

    def refuse_leaf(self) -> None:
        """Raise TypeError if the class is not registered with JAX."""
        flatten: Any = jax.tree_util.default_registry.flatten_one_level
        if or_default(())(flatten)(self.instance) is None:  # a law reports what it raises
            raise TypeError(
                f"{self.cls.__name__} is not a pytree class: JAX treats its instances as leaves\n"
                f"  fix: decorate the class with `@lw.pytree`, or register it with JAX"
            )

    @property
    def names(self) -> FieldNames:
        return self.edits.names

    def draw(self, strategy: st.SearchStrategy[T]) -> T:
        return draw_unprinted(self.data, strategy)

    def fail(
        self, path: str, got: str, wanted: str, *, fix: str = "", by_hand: str = ""
    ) -> NoReturn:
        """Raise the violation at a path; `by_hand` is the fix for a flatten written by hand."""
        where = place(self.cls, path)
        owner = owner_at(self.instance, path)
        by_hand = by_hand or self.law.fix + _OR_REGISTER * (not is_own(self.cls))
        fix = fix or fix_of(self.law, owner, path) or by_hand
        text = (
            f"{where}: breaks the law {self.law}: {self.law.statement}\n"
            f"  got: {got}\n"
            f"  wanted: {wanted}\n"
            f"  fix: {fix}\n"
            f"  instance: {describe_instance(self.instance)}"
        )
        part = type(owner) if path else None
        raise LawViolation(without_addresses(text), str(self.law), where, part)

    def check_same(
        self, result: Any, how: str = "", only: tuple[str, ...] | None = None, by_hand: str = ""
    ) -> None:
        """Fail if a result differs from the instance, in all attributes or only some."""
        if (change := difference(self.instance, result, self.names, only)) is not None:
            path, got, wanted = change
            self.fail(path, f"{got} {how}".rstrip(), wanted, by_hand=by_hand)

    def attempt(
        self, what: str, call: Callable[..., Any], *args: Any, path: str = "", by_hand: str = ""
    ) -> Any:
        """Call a function for the law; an exception breaks the law."""
        problem = fix = ""
        try:
            return call(*args)
        except (LawViolation, hypothesis.errors.HypothesisException):
            raise
        except Exception as error:  # noqa: BLE001  # user code
            if self.refuses(error):
                hypothesis.reject()
            behind = error.__cause__ or error.__context__ or error
            if type(behind).__module__.startswith("jax"):  # its traceback has only the user's line
                behind = error.with_traceback(behind.__traceback__)
            # Otherwise JAX hides the error of a comparison.
            problem = format_error(behind).replace("\n", "\n    ")
            for frame in users_frames(behind):
                if frame.name == "__post_init__":
                    fix = constructor_fix(self.law, self.instance, code_of(frame))
        return self.fail(path, f"{what} raised {problem}", "no error", fix=fix, by_hand=by_hand)

    def refuses(self, error: BaseException) -> bool:
        """Return whether the class refused a value that the law put into the instance."""
        if self.law not in _OF_EDITS or isinstance(error, LawViolation):
            return False
        while (behind := error.__cause__ or error.__context__) is not None:
            error = behind
        names = {frame.name for frame in users_frames(error)}
        return isinstance(error, AssertionError) or bool(names & CONSTRUCTORS)

    def flatten(self, tree: Any, path: str = "") -> tuple[list[Any], Any]:
        found: tuple[list[Any], Any] = self.attempt(
            "flatten", jax.tree_util.tree_flatten, tree, path=path, by_hand=_FLATTEN_FIX
        )
        return found

    def structure(self, tree: Any, path: str = "") -> Any:
        return self.flatten(tree, path)[1]

    def node(self, tree: Any) -> Any:
        """Return the treedef of a tree's root node alone, with its children as leaves."""
        flatten: Any = jax.tree_util.tree_structure
        return self.attempt("flatten", flatten, tree, functools.partial(operator.is_not, tree))

    def same_structure(self, one: Any, other: Any, path: str = "") -> bool:
        return bool(self.attempt("comparing treedefs", operator.eq, one, other, path=path))


def place(cls: type, path: str) -> str:
    """Return ``Class.path`` for a path in an instance of the class."""
    dot = "." if path and not path.startswith("[") else ""
    return f"{cls.__name__}{dot}{path}"


def describe_instance(instance: Any) -> str:
    """Return an instance as one line of text, also if its repr raises."""
    from leafwise._classes.instance import pformat  # noqa: PLC0415  # loads the printer

    format_value, cls = functools.partial(pformat, width=10_000), cast("Any", type(instance))
    try:
        if cls.__repr__ is object.__repr__:
            state = [f"{name}={format_value(item)}" for name, item in state_of(instance).items()]
            text = f"{cls.__name__}({', '.join(state)})"
        else:
            text = format_value(instance)
        return cut(re.sub(r"\s*\n\s*", " ", text), _WIDTH)
    except Exception:  # noqa: BLE001  # user code
        return f"{cls.__name__} (its repr raises)"
