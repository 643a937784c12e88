"""chex assertions as the ``validator=`` of a field.

Needs chex (``pip install leafwise[chex]``).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from leafwise._objects.text import got, shorten
from leafwise._statics.findings import is_tracer
from leafwise.errors import FieldCheckError
from leafwise.interop._extra import import_extra

chex: Any = import_extra("chex", "chex")  # untyped

__all__ = ["ChexCheck", "chex_check"]


class ChexCheck:
    """One or more assertions that check a field, made by `chex_check`.

    It is called with the value, and returns None or raises `leafwise.errors.FieldCheckError`.
    ``first & second`` runs both, in this order.
    """

    __slots__ = ("_calls",)

    def __init__(self, *calls: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> None:
        self._calls = calls

    def __call__(self, value: Any) -> None:
        """Check a value outside any field; raise `leafwise.errors.FieldCheckError`."""
        self.check_named(value, "")

    def check_named(self, value: Any, where: str) -> None:
        """Check the value of the field `where`, which is ``Class.field``."""
        abstract = any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(value))
        for call in self._calls:
            run = functools.partial(_run, where, *call)
            try:
                result = jax.eval_shape(run, value) if abstract else run(value)
            except AssertionError as error:
                text = str(error).removesuffix(f" [{where}]")  # the custom message of `_run`
                raise FieldCheckError(f"{where or 'value'}: {text}\n  got: {got(value)}") from error
            if result is not None:
                name = getattr(call[0], "__name__", call[0])
                message = f"{name} is not an assertion: it returned {shorten(result)}"
                raise TypeError(f"{message}\n  fix: `validator={name}`, without chex_check")

    def __and__(self, other: "ChexCheck") -> "ChexCheck":
        return ChexCheck(*self._calls, *other._calls)


def chex_check(assertion: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ChexCheck:
    """Return a ``validator=`` for a field that runs a chex assertion.

    It runs when an instance is constructed, also under a transformation, but never when JAX
    rebuilds one. For a traced value, shapes and dtypes are checked. Assertions about elements
    (`chex.assert_tree_all_finite`, ...) become part of the program in a function under
    `chex.chexify`; elsewhere they are skipped for traced values, as assertions about one number
    (`chex.assert_scalar_positive`, ...) and about devices always are. A `jax.ShapeDtypeStruct` is
    checked like a traced value.

    Args:
        assertion: A function of the value and of the other arguments; it refuses the value by
            raising AssertionError. Your own may call several of chex's.
        *args: Passed on after the value.
        **kwargs: Passed on, including chex's own ``custom_message``.

    Returns:
        A function of one value. ``chex_check(...) & chex_check(...)`` runs both.

    Examples:
        >>> @pytree
        ... class Params:
        ...     w: jax.Array = field(validator=chex_check(chex.assert_rank, 2))
        >>> Params(jnp.ones(3))
        Traceback (most recent call last):
        leafwise.errors.FieldCheckError: Params.w: [Chex] Assertion assert_rank failed: ...
    """
    name = getattr(assertion, "__name__", "")
    # By name, as cloudpickle cannot pickle all of chex's functions.
    return ChexCheck((name if getattr(chex, name, None) is assertion else assertion, args, kwargs))


def _run(where: str, assertion: Any, args: Any, kwargs: dict[str, Any], value: Any) -> Any:
    """Call an assertion, unless it needs what is unknown about a traced value."""
    name = assertion if isinstance(assertion, str) else ""
    function: Any = getattr(chex, name) if name else assertion
    if not any(map(is_tracer, jax.tree.leaves(value))):
        return function(value, *args, **kwargs)
    # chex refuses every traced value in its assertions about one number and about devices.
    is_number = name.startswith("assert_scalar") and getattr(value, "shape", None) == ()
    if is_number or name.startswith("assert_tree_is_"):
        return None
    if name and where:  # so that the program of chexify names the field
        text = kwargs.get("custom_message")
        kwargs = {**kwargs, "custom_message": f"{where}: {text}" if text else where}
    unknown = jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError
    try:
        return function(value, *args, **kwargs)
    except (*unknown, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "chexify" not in str(error):
            raise
        return None
