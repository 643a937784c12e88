"""Where `lw.debug.check_statics()` is on: blocks, threads, a whole process."""

import os
import subprocess
import sys
import threading
from typing import Any

import jax
import pytest

import leafwise as lw
from leafwise.debug import check_statics


@lw.pytree
class P:
    x: Any
    a: lw.Static[Any] = None


class Box:
    def __init__(self, v: Any) -> None:
        self.v = v


@pytest.fixture
def box() -> Box:
    """An object that compares by identity, which a test changes in place."""
    return Box(1)


def test_nested_blocks(box: Box) -> None:
    """The inner block's end does not turn the outer block off."""
    p = P(1.0, box)
    with check_statics():
        with check_statics():
            pass
        box.v = 2
        with pytest.raises(lw.errors.StaticMutatedError):
            jax.tree.leaves(p)
    assert jax.tree.leaves(p) == [1.0]


def test_block_that_raises(box: Box) -> None:
    """An error inside the block turns it off all the same, and comes out."""
    p = P(1.0, box)
    with pytest.raises(KeyError), check_statics():
        raise KeyError
    box.v = 2
    assert jax.tree.leaves(p) == [1.0]


def test_as_a_decorator(box: Box) -> None:
    """Like any `contextlib` manager it can decorate a function, which runs checked."""
    p = P(1.0, box)
    box.v = 2
    with pytest.raises(lw.errors.StaticMutatedError):
        check_statics()(jax.tree.leaves)(p)
    assert jax.tree.leaves(p) == [1.0]


def test_covers_all_threads(box: Box) -> None:
    """A block in one thread checks flattens in every other."""
    p = P(1.0, box)
    box.v = 2
    caught: list[BaseException] = []

    def other() -> None:
        try:
            jax.tree.leaves(p)
        except lw.errors.StaticMutatedError as error:
            caught.append(error)

    with check_statics():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(caught) == 1
    assert jax.tree.leaves(p) == [1.0]


SCRIPT = """
import jax, leafwise as lw
from typing import Any

@lw.pytree
class P:
    x: Any
    a: lw.Static[Any] = None

class Box:
    v = 1

box = Box()
box.v = 1
p = P(1.0, box)
jax.tree.leaves(p)
box.v = 2
with lw.debug.check_statics():
    pass
try:
    jax.tree.leaves(p)
except lw.errors.StaticMutatedError as error:
    assert "P.a" in str(error)
    print("raised")
else:
    print("silent")
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("value", "said"), [("1", "raised"), ("0", "silent")])
def test_environment_variable(value: str, said: str) -> None:
    """`LEAFWISE_CHECK_STATICS=1` turns it on for the process, also after a block; 0 does not."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "LEAFWISE_CHECK_STATICS": value,
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == said
