"""What a decorated class keeps alive of the function that defines it: nothing."""

import gc
import sys
import weakref
from collections.abc import Callable, Generator
from typing import Any

import jax
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

pytestmark = pytest.mark.hazard


class Large:
    """Stands for a dataset."""


@pytest.fixture(autouse=True)
def _without_tracing() -> Generator[None, None, None]:
    """Trace nothing: coverage and debuggers keep what they read of a frame."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def plain() -> Any:
    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 1

    return P


def in_strings() -> Any:
    @lw.pytree
    class P:
        x: "Any"
        a: "lw.Static[int]" = 1

    return P


def in_equinox() -> Any:
    class P(Module):
        x: "Any"
        a: "lw.Static[int]" = 1

    return P


WAYS = {each.__name__: each for each in (plain, in_strings, in_equinox)}


@pytest.mark.parametrize("name", WAYS)
def test_locals_around_a_class_die(name: str) -> None:
    """A local variable of a caller that no annotation names dies when the caller deletes it."""
    large = Large()
    find = weakref.ref(large)
    made = WAYS[name]()
    del large
    assert find() is None
    assert jax.tree.leaves(made(x=1.0)) == [1.0]


def test_the_frame_dies() -> None:
    """Neither a class nor a decorator that is kept keeps the frame of its function alive."""
    kept: list[Any] = []

    def define() -> Callable[[], Any]:
        mark, large = lw.Static, Large()
        decorator = lw.pytree(kw_only=True)

        @decorator
        class P:
            x: "Any"
            a: "mark[int]" = 1

        kept.extend([P, decorator, P(x=1.0), lw.pytree(order=True)])
        return weakref.ref(large)

    find = define()
    gc.collect()
    assert find() is None
    assert jax.tree.leaves(kept[2]) == [1.0]
