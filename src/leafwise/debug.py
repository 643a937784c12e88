"""Checks that cost something, for when an answer looks stale."""

import contextlib
import inspect
from collections.abc import Generator

from leafwise._codegen import source_of as generated_source
from leafwise._registry import set_checking
from leafwise._spec import is_decorated

__all__ = ["check_statics", "source_of"]


def source_of(cls: type) -> str:
    """Return the code that was generated for a pytree class.

    Args:
        cls: A class decorated with `leafwise.pytree`.

    Returns:
        The source of ``__init__``, flatten, unflatten and the access to statics, as
        tracebacks and debuggers show it.

    Raises:
        TypeError: `cls` is not such a class.

    Example:
        >>> print(source_of(Params))  # doctest: +SKIP
    """
    if not (inspect.isclass(cls) and is_decorated(cls)):
        msg = f"source_of takes a class decorated with @lw.pytree, got {cls!r}"
        raise TypeError(msg)
    return generated_source(cls)


@contextlib.contextmanager
def check_statics() -> Generator[None, None, None]:
    """Read every static value again whenever JAX flattens an instance, in this block.

    A key sees a function or a plain object as one identity, and trusts an object with
    its own ``==``. Changed in place, all of them leave a compiled program that answers
    for the old content. In this block each flatten compares what can be reached through
    the statics (attributes, closures, defaults, partial arguments, receivers) with what
    was there when the key was made.

    Outside of such blocks there is no cost. It covers all threads, and can be nested. The
    environment variable ``LEAFWISE_CHECK_STATICS=1`` turns it on for a whole process.

    Not looked into: more than 2,000 parts of one static, the content of numpy arrays of
    more than 64 KiB, and the globals that a function reads.

    Raises:
        StaticMutatedError: (inside, when flattening) a static changed; the message
            names ``Class.field`` and the path to the change.

    Example:
        >>> with check_statics():
        ...     jax.tree.leaves(params)  # doctest: +SKIP
    """
    set_checking(on=True)
    try:
        yield
    finally:
        set_checking(on=False)
