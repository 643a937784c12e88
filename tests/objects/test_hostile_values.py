"""Mocks and deep values: each is a key, a leaf, or a named error."""

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import pytest
from tests.statics.judge import ByContent, Sound

import leafwise as lw

pytestmark = [
    pytest.mark.hazard,
    # Memory may be collected where no stack is left, and what runs then cannot raise.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@lw.pytree
class Checked:
    x: Any
    s: Any = lw.static_field(default=0, validator=lambda _: False)


def nested(wrap: Callable[[Any], Any], depth: int) -> Any:
    inner: Any = 1.5
    for _ in range(depth):
        inner = wrap(inner)
    return inner


WRAPS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda it: (it,),
    "list": lambda it: [it],
    "FrozenMapping": lambda it: lw.FrozenMapping({"a": it}),
    "partial": lambda it: functools.partial(print, it),
    "closure": lambda it: lambda: it,
}
VALUES: dict[str, Callable[[], Any]] = {
    **{
        f"Mock({kind.__name__})": functools.partial(mock.Mock, spec=kind)
        for kind in (float, type, jax.Array)
    },
    **{f"{name} 300 deep": functools.partial(nested, wrap, 300) for name, wrap in WRAPS.items()},
}


def same(tree: Any) -> Any:
    return tree


def use_key(cls: Any, value: Any) -> None:
    """Do with an instance what asks for its statics."""
    made, again, other = cls(1.0, value), cls(1.0, value), cls(1.0, ("other",))
    treedef = jax.tree.structure(made)
    assert treedef == jax.tree.structure(again)
    assert treedef != jax.tree.structure(other)
    assert all(map(isinstance, (repr(made), str(treedef), lw.pformat(made)), [str] * 3))
    assert not lw.diff(made, again)
    assert ".s" in str(lw.signature(same, other).explain(lw.signature(same, made)))
    with lw.debug.check_statics():
        jax.tree.flatten(made)


@pytest.mark.parametrize("cls", [Sound, ByContent])
@pytest.mark.parametrize("name", VALUES)
def test_a_static_value(name: str, cls: Any) -> None:
    """It makes a key that can be printed and compared, or an error names class and field."""
    try:
        use_key(cls, VALUES[name]())
    # Reading a mock changes it.
    except (lw.errors.StaticFieldError, lw.errors.StaticMutatedError) as error:
        assert str(error).startswith(f"{cls.__name__}.s")  # noqa: PT017


@pytest.mark.parametrize("name", VALUES)
def test_a_message_about_a_value(name: str) -> None:
    """A refusal of what lies next to it, and a failed check, name the field."""
    value = VALUES[name]()
    with pytest.raises(lw.errors.StaticFieldError, match=r"^Sound\.s"):
        Sound(1.0, [value])
    with pytest.raises(lw.errors.FieldCheckError, match=r"^Checked\.s: its validator .* refused"):
        Checked(1.0, value)


@pytest.mark.parametrize("name", VALUES)
def test_a_leaf(name: str) -> None:
    """It can be printed, compared and explained as a leaf."""
    made, other = Sound(VALUES[name]()), Sound(1.0)
    assert repr(made).startswith("Sound(")
    assert str(lw.show(made))
    assert isinstance(str(lw.diff(made, other, values=True)), str)
    assert str(lw.signature(same, other).explain(lw.signature(same, made)))


def test_a_mock_is_not_what_it_says() -> None:
    """A mock of a float is not a float: it has another key, compared by identity."""
    fake = mock.Mock(spec=float)
    assert isinstance(fake, float)
    assert jax.tree.structure(Sound(1.0, fake)) == jax.tree.structure(Sound(1.0, fake))
    assert jax.tree.structure(Sound(1.0, fake)) != jax.tree.structure(
        Sound(1.0, mock.Mock(spec=float))
    )
    assert lw.freeze(items := mock.Mock(spec=list)) is items
