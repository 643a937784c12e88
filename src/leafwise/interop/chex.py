"""chex: its assertions as the ``check=`` of a field.

Needs chex (``pip install leafwise[chex]``).
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import jax
import jax.numpy as jnp
from jax.experimental import checkify

from leafwise._classes.options import NamedCheck
from leafwise._objects.text import got, shorten
from leafwise._statics.findings import is_tracer
from leafwise.errors import FieldCheckError
from leafwise.interop._extra import import_extra

chex: Any = import_extra("chex", "chex")  # which has no types

__all__ = ["ChexCheck", "chex_check"]

_CHEX_OPTIONS: Final = ("custom_message", "custom_message_format_vars", "include_default_message")
"""What every assertion of chex takes in addition to its own arguments."""


def _holds(assertion: str, given: Mapping[str, Any]) -> Any:
    """Return whether a chex assertion about one number holds, traced; None for all others.

    chex has them for Python's numbers, which are arrays without axes under a transformation.
    """
    match assertion, given:
        case "assert_scalar", _:
            return True
        case "assert_scalar_positive", {"x": x}:
            return x > 0
        case "assert_scalar_non_negative", {"x": x}:
            return x >= 0
        case "assert_scalar_negative", {"x": x}:
            return x < 0
        case "assert_scalar_in", {"x": x, "min_": low, "max_": high, **rest}:
            if rest.get("included", True):
                return jnp.logical_and(low <= x, x <= high)
            return jnp.logical_and(low < x, x < high)
        case "assert_equal", {"first": first, "second": second}:
            return first == second
        case "assert_is_divisible", {"numerator": numerator, "denominator": denominator}:
            return numerator % denominator == 0
        case _:
            return None


_NOT_OF_TRACERS: Final = (
    "assert_tree_is_on_device",
    "assert_tree_is_on_host",
    "assert_tree_is_sharded",
    "assert_trees_all_close_ulp",
)
"""The assertions that cannot be traced: of devices, and one that chex has no program for."""

_REFUSALS: Final = (AssertionError, AttributeError, TypeError, ValueError)
"""What chex raises for a value: it reads ``.shape`` of anything."""

_UNKNOWN: Final = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)
"""What JAX raises where code asks for the elements of a traced value."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Assertion:
    """One assertion and its arguments behind the value."""

    assertion: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def of_chex(self) -> str:
        """The name under which chex makes the assertion public, or nothing."""
        name = getattr(self.assertion, "__name__", "")
        return name if getattr(chex, name, None) is self.assertion else ""

    @property
    def name(self) -> str:
        """The assertion as the user wrote it."""
        if self.of_chex:
            return f"chex.{self.of_chex}"
        return getattr(self.assertion, "__name__", "") or shorten(self.assertion)

    def __reduce__(self) -> tuple[Any, ...]:
        # By the public name: cloudpickle treats some of chex's functions as local ones.
        return _load_part, (self.of_chex or self.assertion, self.args, self.kwargs)

    def __str__(self) -> str:
        """Return the call that made it."""
        arguments = [self.name, *map(shorten, self.args)]
        arguments += [f"{name}={shorten(value)}" for name, value in self.kwargs.items()]
        return f"chex_check({', '.join(arguments)})"

    def run(self, value: Any, where: str) -> None:
        """Run the assertion on a value.

        Raises:
            FieldCheckError: The assertion refused it.
            TypeError: It returned something, so that it is not an assertion.
        """
        refusals = _REFUSALS if self.of_chex else AssertionError
        try:
            result = self._call(value, where)
        except _UNKNOWN:
            if not _is_abstract(value):
                raise
        except refusals as error:
            text = str(error).removesuffix(f" [{where}]")  # `_trace` makes chex append it
            raise FieldCheckError(f"{where or 'the value'}: {text}\n  got: {got(value)}") from error
        else:
            if result is not None:
                raise TypeError(
                    f"{self.name} is not an assertion, which raises or returns None: it returned "
                    f"{shorten(result)}\n  fix: `check={self.name}`, as it is"
                )

    def _call(self, value: Any, where: str) -> Any:
        if not _is_abstract(value):
            return self.assertion(value, *self.args, **self.kwargs)
        if self.of_chex in _NOT_OF_TRACERS:
            return None
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(value)):
            jax.eval_shape(functools.partial(self._trace, where=where), value)
            return None
        return self._trace(value, where)

    def _trace(self, value: Any, where: str) -> Any:
        """Check a traced value: its shapes and dtypes, and under chexify its elements."""
        assertion, args, kwargs = self.assertion, self.args, dict(self.kwargs)
        if is_tracer(value) and value.shape == ():
            options = {name: kwargs.pop(name) for name in list(kwargs) if name in _CHEX_OPTIONS}
            given = inspect.signature(assertion).bind(value, *args, **kwargs).arguments
            holds = _holds(self.of_chex, given)
            if holds is not None:
                # An assertion that chexify knows: it puts the check into the program.
                assertion, value, kwargs = chex.assert_trees_all_equal, jnp.asarray(holds), {}
                args = (jnp.ones_like(value),)
                where = f"{where}: {self.name}" if where else self.name
            kwargs |= options
        if self.of_chex and where:
            text = kwargs.get("custom_message")
            kwargs["custom_message"] = f"{where}: {text}" if text else where
        check = checkify.check
        try:
            return assertion(value, *args, **kwargs)
        except RuntimeError as error:
            if "chexify" in str(error):  # an assertion of elements, in a function without chexify
                return None
            raise
        finally:
            checkify.check = check  # chex leaves its own function there if the assertion raises


def _load_part(assertion: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Assertion:
    return _Assertion(
        getattr(chex, assertion) if isinstance(assertion, str) else assertion, args, kwargs
    )


class ChexCheck(NamedCheck):
    """One or more assertions as the check of a field; `chex_check` makes it.

    It is called with the value, returns None, and raises `leafwise.errors.FieldCheckError`.
    ``first & second`` runs both, in this order.
    """

    __slots__ = ("_parts",)

    def __init__(self, *parts: _Assertion) -> None:
        self._parts = parts

    def __call__(self, value: Any) -> None:
        """Check a value that is in no field.

        Args:
            value: Any pytree.

        Raises:
            FieldCheckError: An assertion refused it.
        """
        self.check_named(value, "")

    def check_named(self, value: Any, where: str) -> None:
        """Check the value of the field `where`, which is ``Class.field``.

        Args:
            value: Any pytree.
            where: What stands in front of the message.

        Raises:
            FieldCheckError: An assertion refused it.
        """
        for part in self._parts:
            part.run(value, where)

    def __and__(self, other: "ChexCheck") -> "ChexCheck":
        """Return a check that runs this one, then the other."""
        if not isinstance(cast("object", other), ChexCheck):
            return NotImplemented
        return ChexCheck(*self._parts, *other._parts)

    def __repr__(self) -> str:
        """Return the code that made it."""
        return " & ".join(map(str, self._parts))


def chex_check(assertion: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ChexCheck:
    """Return the ``check=`` of a field that an assertion of chex makes.

    It runs when an instance is constructed, under a transformation too, and never when JAX
    rebuilds one. What is checked of a traced value is what is known of it: assertions of
    shapes and dtypes run as usual. Assertions of elements (`chex.assert_tree_all_finite`,
    `chex.assert_scalar_positive`, ...) become part of the program in a function under
    `chex.chexify`, and elsewhere are left out until the value is known; so are assertions of
    devices. A `jax.ShapeDtypeStruct` is treated like a traced value.

    Args:
        assertion: A function of the value, and of what follows; it refuses by raising
            AssertionError. One of your own may call several of chex's.
        *args: Passed on behind the value.
        **kwargs: Passed on, chex's own ``custom_message`` included.

    Returns:
        A function of one value. ``chex_check(...) & chex_check(...)`` runs both.

    Examples:
        >>> @pytree
        ... class Params:
        ...     w: jax.Array = field(check=chex_check(chex.assert_rank, 2))
        >>> Params(jnp.ones(3))
        Traceback (most recent call last):
        leafwise.errors.FieldCheckError: Params.w: [Chex] Assertion assert_rank failed: ...
    """
    inner: Any = assertion
    # The assertion inside a partial is chex's own, which this module knows how to trace.
    while isinstance(inner, functools.partial) and not inner.args:
        inner, kwargs = inner.func, {**inner.keywords, **kwargs}
    return ChexCheck(_Assertion(inner, args, kwargs))


def _is_abstract(value: Any) -> bool:
    """Return whether a part of a value is not known yet."""
    return any(
        is_tracer(leaf) or isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(value)
    )
