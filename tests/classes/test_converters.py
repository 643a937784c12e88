"""`converter=` and `validator=`: run once, at construction."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw


@pytest.mark.parametrize("kind", [bool, np.bool_, np.array, jnp.array], ids=range(4))
@pytest.mark.parametrize("declare", [lw.field, lw.static_field])
def test_check_that_answers_false(declare: Any, kind: Any) -> None:
    """A False of any kind is a `FieldCheckError` naming class, field and value."""

    def positive(value: Any) -> Any:
        return kind(value > 0)

    @lw.pytree
    class P:
        x: Any = declare(validator=positive)

    assert P(1).x == 1
    with pytest.raises(
        lw.errors.FieldCheckError, match=r"P\.x: its validator positive refused -1 \(int\)"
    ):
        P(-1)
    assert issubclass(lw.errors.FieldCheckError, ValueError)


@pytest.mark.parametrize("verdict", [np.zeros(3), jnp.ones((1, 2)), np.zeros(0)])
def test_array_of_answers_is_refused(verdict: Any) -> None:
    """An answer for each element is no answer; the message says how to make it one."""

    @lw.pytree
    class P:
        x: Any = lw.field(validator=lambda _: verdict)

    with pytest.raises(lw.errors.FieldCheckError, match=r"add \.all\(\)") as error:
        P(1.0)
    assert "P.x" in "".join(error.value.__notes__)


@pytest.mark.parametrize("what", ["converter", "validator"])
def test_error_inside_names_the_field(what: str) -> None:
    """The user's own error comes out, with a note that names class, field and value."""

    def fails(_value: Any) -> None:
        raise KeyError("boom")

    body = {"__annotations__": {"x": Any}, "x": lw.field(**{what: fails})}
    cls = lw.pytree(type("P", (), body))
    with pytest.raises(KeyError, match="boom") as error:
        cls(3)
    assert error.value.__notes__ == [f"in the {what} of field P.x, given 3 (int)"]


def test_must_be_callable() -> None:
    """`converter=` and `validator=` that cannot be called are refused where they are written."""
    with pytest.raises(TypeError, match="converter= takes a function of one value, got 3"):
        lw.field(converter=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="validator= takes a function of one value, got 'x'"):
        lw.static_field(validator="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"fix: wrap what takes more: validator=lambda"):
        lw.field(validator=lambda instance, attribute, value: value > 0)  # as attrs calls it
