"""One example of one law: what is drawn, and how a broken law is told."""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import hypothesis.errors
import jax
from hypothesis import strategies as st

from leafwise._classes.registry import registered_names
from leafwise._classes.spec import is_decorated
from leafwise._objects.text import Verbatim
from leafwise.errors import LawViolation
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.same import state_of
from leafwise.testing._words import plain, short, tell
from leafwise.testing.strategies._places import owner_at

T = TypeVar("T")

_WIDTH: Final = 300


@dataclasses.dataclass(frozen=True)
class Case:
    """An instance under a law.

    Attributes:
        law: The law.
        instance: The instance.
        data: Where more is drawn from.
    """

    law: Law
    instance: Any
    data: st.DataObject

    @property
    def cls(self) -> type:
        """The class under test."""
        return type(self.instance)

    def refuse_leaf(self) -> None:
        """Raise if JAX takes the instance for a leaf.

        Raises:
            TypeError: It does: the class is not registered.
        """
        try:
            level: Any = jax.tree_util.default_registry.flatten_one_level(self.instance)
        except Exception:  # noqa: BLE001  # the user's own code: laws tell of it
            return
        if level is None:
            name = self.cls.__name__
            msg = (
                f"{name} is no pytree class: JAX takes its instances for leaves\n"
                f"  fix: decorate the class with `@leafwise.pytree`, or register it with JAX"
            )
            raise TypeError(msg)

    def draw(self, strategy: st.SearchStrategy[T]) -> T:
        """Draw a value."""
        return self.data.draw(strategy)

    def fail(self, path: str, got: str, wanted: str, *, fix: str = "") -> NoReturn:
        """Raise the violation.

        Args:
            path: Where in the instance: ``layers[0].w``; empty for the whole.
            got: What was seen.
            wanted: What must hold.
            fix: What to do; what the law says if empty.

        Raises:
            LawViolation: Always.
        """
        where = place(self.cls, path)
        text = describe_instance(self.instance)
        if not fix:
            fix = self.law.fix
            if not (is_decorated(self.cls) or registered_names(self.cls)):
                fix += "; or decorate the class with `@leafwise.pytree`"
        lines = [
            f"{where}: breaks the law {self.law}: {self.law.statement}",
            f"got: {got}",
            f"wanted: {wanted}",
            f"fix: {fix}",
            f"instance: {text}",
        ]
        owner = owner_at(self.instance, path)
        raise LawViolation(plain("\n  ".join(lines)), str(self.law), where, owner)

    def attempt(self, what: str, call: Callable[..., Any], *args: Any, path: str = "") -> Any:
        """Do what the law does; an exception breaks it.

        Raises:
            LawViolation: It raised.
        """
        problem = ""
        try:
            return call(*args)
        except (LawViolation, hypothesis.errors.HypothesisException):
            raise
        except Exception as error:  # noqa: BLE001  # the user's own code
            behind = error.__cause__ or error.__context__  # JAX hides what its comparisons raise
            problem = tell(error if behind is None else behind).replace("\n", "\n    ")
        return self.fail(path, f"{what} raised {problem}", "no error")

    def flatten(self, tree: Any, path: str = "") -> tuple[list[Any], Any]:
        """Return the leaves and the treedef of a tree."""
        found: tuple[list[Any], Any] = self.attempt(
            "flatten", jax.tree_util.tree_flatten, tree, path=path
        )
        return found

    def structure(self, tree: Any, path: str = "") -> Any:
        """Return the treedef of a tree."""
        return self.flatten(tree, path)[1]

    def same_structure(self, one: Any, other: Any, path: str = "") -> bool:
        """Return whether two treedefs are equal."""
        return bool(self.attempt("comparing treedefs", operator.eq, one, other, path=path))


def place(cls: type, path: str) -> str:
    """Return ``Class.field`` for a path in an instance of the class."""
    dot = "." if path and not path.startswith("[") else ""
    return f"{cls.__name__}{dot}{path}"


def describe_instance(instance: Any) -> str:
    """Return an instance on one line; its own repr may be at fault."""
    from leafwise._classes.instance import pformat  # noqa: PLC0415  # loads the printer

    def say(value: Any) -> str:
        return pformat(value, width=10_000)

    cls: Any = type(instance)
    try:
        if cls.__repr__ is not object.__repr__:
            return short(Verbatim(say(instance)), _WIDTH)
        held = ", ".join(f"{name}={say(value)}" for name, value in state_of(instance).items())
        return short(Verbatim(f"{cls.__name__}({held})"), _WIDTH)
    except Exception:  # noqa: BLE001  # the user's own code
        return f"{cls.__name__} (its repr raises)"
