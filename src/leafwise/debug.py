"""Checks that cost something, for when an answer looks stale."""

import contextlib
import inspect
from collections.abc import Generator
from typing import TYPE_CHECKING

from leafwise._classes.codegen import source_of as generated_source
from leafwise._classes.registry import set_checking
from leafwise._classes.spec import is_decorated

if TYPE_CHECKING:
    from leafwise._compare.jax_errors import Explaining
    from leafwise._jit.blocks import CaptureChecks, StaleOption

__all__ = ["check_captures", "check_statics", "explain_errors", "source_of"]


def source_of(cls: type) -> str:
    """Return the code that was generated for a pytree class.

    Args:
        cls: A class decorated with `leafwise.pytree`.

    Returns:
        The source of ``__init__``, flatten, unflatten and the access to statics, as
        tracebacks and debuggers show it.

    Raises:
        TypeError: `cls` is not such a class.

    Examples:
        >>> print(source_of(Params))  # doctest: +SKIP
    """
    if not (inspect.isclass(cls) and is_decorated(cls)):
        raise TypeError(f"source_of takes a class decorated with @lw.pytree, got {cls!r}")
    return generated_source(cls)


@contextlib.contextmanager
def check_captures(on_stale: "StaleOption" = "raise") -> "Generator[CaptureChecks, None, None]":
    """Compare the program of each call of a `leafwise.jit` function with a fresh trace of it.

    Outside such blocks each call checks the captures that the code names, by identity and, of
    what is small, by content. In this block the function is traced once more before each call,
    whatever ``on_stale=`` it has, and the two programs are compared, constants included: that is
    right for any code of Python, and slow. The function's Python side effects happen twice.

    It covers all functions, those made before the block and in other threads included, and can
    be nested: the innermost block counts. What is in a NumPy array is known from the first call in
    the block.

    Args:
        on_stale: What happens to a call whose program is of an old value: ``"raise"``; ``"warn"``
            and ``"retrace"``: it is traced again; or ``"ignore"``: then it is noted only.

    Yields:
        What was found so far: ``.stale``, a list of `leafwise.types.StaleCapture` (the capture
        that changed, or else the operation of the program and its line), and ``.not_compared``, a
        dict of the functions that could not be traced again, with the reasons.

    Raises:
        StaleCaptureError: (inside, when called) the program is of an old value.
        ValueError: `on_stale` is none of the four words.

    Warns:
        StaleCaptureWarning: (inside) with ``on_stale="warn"``.

    Examples:
        >>> with check_captures():
        ...     step(params, batch)  # doctest: +SKIP
    """
    from leafwise._jit import blocks  # noqa: PLC0415  # with what needs it

    block = blocks.CaptureChecks(blocks.checked_action(on_stale, "check_captures"))
    blocks.switch_block(block, is_on=True)
    try:
        yield block
    finally:
        blocks.switch_block(block, is_on=False)


@contextlib.contextmanager
def check_statics() -> Generator[None, None, None]:
    """Read every static value again whenever JAX flattens an instance, in this block.

    A key sees a function or a plain object as one identity, and trusts an object with
    its own ``==``. Changed in place, all of them leave a compiled program that answers
    for the old content. In this block each flatten compares what can be reached through
    the statics (attributes, containers, closures, defaults, partial arguments, receivers,
    functions behind `jax.jit` and the like, weak references) with what was there when the key
    was made.

    Outside such blocks there is no cost. It covers all threads, and can be nested. The
    environment variable ``LEAFWISE_CHECK_STATICS=1`` turns it on for a whole process.

    Not looked into: arrays and other buffers of more than 64 KiB, all beyond the first 2,000
    values that the statics of an instance lead to, the globals that a function reads, weak
    containers and proxies, and objects of Python's, NumPy's and JAX's own classes.

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
    """Say in JAX's errors on derivatives which parts of two trees differ, by path.

    Where JAX refuses a tree in this block and prints nothing but treedefs, the exception gets a
    note with the reasons: class, static, structure, shape and dtype of each place, as
    `leafwise.diff` has them, and what to do. Those are the backward rule of ``custom_vjp``, the
    rule of ``custom_jvp``, ``jvp``, ``linearize`` and ``linear_transpose``. Other errors of JAX
    name the place themselves.

    Where JAX needs to know a value that it traces (``if``, ``range``, ``int``, a shape), or gets a
    function for an array, the note says which field of which class to make static. Where a buffer
    is donated twice, or used after it was donated, it says which.

    The exception stays what it is, and goes on as it would: its type, arguments, cause, context
    and traceback. Nothing is done if none is raised. It covers the thread that enters it, and
    can be nested; one that is caught inside has JAX's own frames in its cause. Also a decorator, of
    functions that run when they are called.

    Returns:
        The block.

    Raises:
        TypeError: (as a decorator) a generator or a coroutine function is decorated, which
            would run outside the block.

    Examples:
        >>> with explain_errors():
        ...     jax.jvp(loss, (params,), (tangents,))  # doctest: +SKIP
    """
    from leafwise._compare.jax_errors import Explaining  # noqa: PLC0415  # few programs ask for it

    return Explaining()
