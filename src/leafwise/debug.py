"""Checks too slow to be always on, for when a result looks stale."""

import contextlib
import inspect
from collections.abc import Generator
from typing import TYPE_CHECKING

from leafwise._classes.codegen import source_of as generated_source
from leafwise._classes.registry import set_checking
from leafwise._classes.spec import is_decorated

if TYPE_CHECKING:
    from leafwise._jit.blocks import CaptureChecks, StaleOption
    from leafwise._jit.jax_errors import Explaining

__all__ = ["check_captures", "check_statics", "explain_errors", "source_of"]


def source_of(cls: type) -> str:
    """Return the code generated for a pytree class.

    Args:
        cls: A class decorated with `leafwise.pytree`.

    Returns:
        The source of ``__init__``, flatten, unflatten and the accessors of static fields, as
        tracebacks and debuggers show it.

    Raises:
        TypeError: `cls` is not decorated with `leafwise.pytree`.

    Examples:
        >>> print(source_of(Params))  # doctest: +SKIP
    """
    if not (inspect.isclass(cls) and is_decorated(cls)):
        raise TypeError(f"source_of takes a class decorated with @lw.pytree, got {cls!r}")
    return generated_source(cls)


@contextlib.contextmanager
def check_captures(on_stale: "StaleOption" = "raise") -> "Generator[CaptureChecks, None, None]":
    """Compare the program that a `leafwise.jit` function uses with a fresh trace, at each call.

    Outside this block, each call checks the captures that the code names: by identity, and small
    values by content. Inside it, the function is traced once more before each call, whatever its
    ``on_stale=``, and the two programs are compared, constants included. This is correct for any
    Python code, but slow, and the function's Python side effects happen twice.

    It covers all functions, including those created before the block and in other threads, and can
    be nested: the innermost block applies. The content of a NumPy array is known only from the
    first call in the block on.

    Args:
        on_stale: What to do if the program of a call is stale: ``"raise"``; ``"warn"`` or
            ``"retrace"``, which trace it again; or ``"ignore"``, which only records it.

    Yields:
        The results so far: ``.stale``, a list of `leafwise.types.StaleCapture` (the capture that
        changed, or else the operation that differs and its line), and ``.not_compared``, a dict of
        the functions that could not be traced again, with the reasons.

    Raises:
        StaleCaptureError: (inside, when called) the program is stale.
        ValueError: `on_stale` is not one of the four options.

    Warns:
        StaleCaptureWarning: (inside) with ``on_stale="warn"``.

    Examples:
        >>> with check_captures():
        ...     step(params, batch)  # doctest: +SKIP
    """
    from leafwise._jit import blocks  # noqa: PLC0415  # only when needed

    block = blocks.CaptureChecks(blocks.checked_action(on_stale, "check_captures"))
    blocks.switch_block(block, is_on=True)
    try:
        yield block
    finally:
        blocks.switch_block(block, is_on=False)


@contextlib.contextmanager
def check_statics() -> Generator[None, None, None]:
    """Check the static values of an instance for changes whenever JAX flattens it in this block.

    A key compares functions and plain objects by identity, and trusts the ``==`` of objects that
    define one. If one of these is changed in place, a program compiled for the old content is still
    used. In this block, each flatten compares everything reachable through the statics (attributes,
    containers, closures, defaults, partial arguments, receivers, functions behind `jax.jit` and the
    like, weak references) with what was there when the key was made.

    It covers all threads, can be nested, and costs nothing outside the block. The environment
    variable ``LEAFWISE_CHECK_STATICS=1`` turns it on for a whole process.

    Not checked: arrays and other buffers of more than 64 KiB, anything after the first 2,000 values
    reached from the statics of an instance, the globals that a function reads, weak containers and
    proxies, and instances of Python's, NumPy's and JAX's own classes.

    Raises:
        StaticMutatedError: (inside, when flattening) a static changed; the message
            names ``Class.field`` and the path to the change.

    Examples:
        >>> with check_statics():
        ...     jax.tree.leaves(params)  # doctest: +SKIP
    """
    set_checking(on=True)
    try:
        yield
    finally:
        set_checking(on=False)


def explain_errors() -> "Explaining":
    """Add notes to JAX's errors: where two trees differ, or which field to make static.

    Where JAX rejects a tree in this block and prints only treedefs, the exception gets a note that
    says what differs at each path (class, static, structure, shape and dtype), as `leafwise.diff`
    does, and how to fix it. This covers the backward rule of ``custom_vjp``, the rule of
    ``custom_jvp``, ``jvp``, ``linearize`` and ``linear_transpose``. Other JAX errors name the path
    themselves.

    Where JAX needs the concrete value of a tracer (``if``, ``range``, ``int``, a shape), or gets a
    function instead of an array, the note says which field of which class to make static. Where a
    buffer is donated twice, or used after it was donated, it says which one.

    The exception itself does not change: its type, arguments, cause, context and traceback stay the
    same. The block covers the thread that enters it, and can be nested. An exception caught inside
    it has JAX's own frames in its cause. It can also decorate functions.

    Returns:
        A context manager, which is also a decorator.

    Raises:
        TypeError: (as a decorator) the function is a generator or coroutine function, which would
            run outside the block.

    Examples:
        >>> with explain_errors():
        ...     jax.jvp(loss, (params,), (tangents,))  # doctest: +SKIP
    """
    from leafwise._jit.jax_errors import Explaining  # noqa: PLC0415  # few programs use it

    return Explaining()
