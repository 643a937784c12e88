"""A callable that forwards to another one, which can be exchanged at any time."""

import types
from typing import Any, cast


class Jitted:
    """What `leafwise.jit` returns: the object that `jax.jit` makes, behind one that can change.

    Python finds ``__call__`` in a slot of the instance, so that a call goes on to what lies there
    without a Python frame. Most of the time that is JAX's own object.

    Attributes:
        _leafwise_jax: What `jax.jit` made.
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")

    _leafwise_jax: Any

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return a bound method, for a function that is defined in a class."""
        return self if instance is None else types.MethodType(cast("Any", self), instance)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of what `jax.jit` made."""
        if name in ("_leafwise_jax", "__call__"):  # not set up yet, as while it is being copied
            raise AttributeError(name)
        return getattr(self._leafwise_jax, name)

    def __repr__(self) -> str:
        """Return what JAX shows."""
        return repr(self._leafwise_jax)

    # `isinstance(function, jax.stages.Wrapped)` asks the class for these.

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower the function for these arguments, as `jax.jit` does."""
        return self._leafwise_jax.lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Trace the function for these arguments, as `jax.jit` does."""
        return self._leafwise_jax.trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes of the results, as `jax.jit` does."""
        return self._leafwise_jax.eval_shape(*args, **kwargs)
