"""A static that changed in place: seen when built from, and by `lw.debug.check_statics()`."""

import dataclasses
import functools
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest
from tests.kit.processes import run_python

import leafwise as lw
from leafwise.debug import check_statics

from .judge import Box, P, Value


@dataclasses.dataclass(frozen=True)
class Frozen:
    v: Any


def test_change_is_noticed() -> None:
    """A static changed in place raises at the next flatten, with its path and both values."""
    box = Box({"k": 1})
    p = P(1.0, (1, box))
    with check_statics():
        assert jax.tree.leaves(p) == [1.0]
        assert jax.jit(lambda p: p.x)(p) == 1.0
        box.v["k"] = 2
        for flatten in (
            jax.tree.leaves,
            jax.jit(lambda p: p.x),
            jax.tree_util.tree_leaves_with_path,
            lambda p: jax.tree.map(lambda v: v, p),
        ):
            with pytest.raises(
                lw.errors.StaticMutatedError, match=r"^P\.s.*changed in place"
            ) as error:
                flatten(p)
            assert "P.s[1].v['k'] was 1, now 2" in str(error.value)
            assert "fix:" in str(error.value)


def test_registered_classes() -> None:
    """Classes under `lw.register` are watched, and raise where they are built again at once."""

    class R:
        def __init__(self, a: Any) -> None:
            self.x, self.a = 1.0, a

    lw.register(R, dynamic=["x"], static=["a"])
    for value in (Box(1), Value(1)):
        made = R(value)
        structure = jax.tree.structure(made)
        with check_statics():
            jax.tree.leaves(made)
            value.v = 2
            with pytest.raises(lw.errors.StaticMutatedError, match=r"^R\.a"):
                jax.tree.leaves(made)
        assert structure is not None  # which keeps the key alive
    with pytest.raises(lw.errors.StaticMutatedError, match=r"R\.a"):
        jax.tree.leaves(R(value))


def test_constructed_inside_of_the_block() -> None:
    """Classes decorated and instances constructed inside are watched."""
    box = Box(1)
    with check_statics():

        @lw.pytree
        class Inside:
            a: lw.Static[Any]

        made = Inside(box)
        jax.tree.leaves(made)
        box.v = 2
        with pytest.raises(lw.errors.StaticMutatedError, match=r"Inside\.a"):
            jax.tree.leaves(made)
    assert jax.tree.leaves(made) == []


def test_rebuilt_instances_are_watched() -> None:
    """What `tree.map` made is watched against the content at construction."""
    box = Box(1)
    p = jax.tree.map(lambda v: v + 1, P(1.0, box))
    box.v = 2
    with check_statics(), pytest.raises(lw.errors.StaticMutatedError):
        jax.tree.leaves(p)


def test_inside_of_jit() -> None:
    """A change made by the traced function itself is noticed on the way out."""
    box = Box(1)

    def change(p: P) -> P:
        p.s.v = 2
        return p

    with check_statics(), pytest.raises(lw.errors.StaticMutatedError):
        jax.jit(change)(P(1.0, box))


QUIET: dict[str, Any] = {
    "jax function": jax.nn.relu,
    "jitted": jax.jit(lambda x: x * 2),
    "cached": functools.lru_cache(lambda x: x),
    "table": lw.StaticArray(np.arange(10)),
    "text": "a",
    "nan": Frozen(float("nan")),
    "cycle": Box(None),
    "numpy in an object": Box(np.zeros(3)),
    "large": Box(list(range(10_000))),
}
QUIET["cycle"].v = QUIET["cycle"]


@pytest.mark.parametrize("name", QUIET)
def test_no_false_alarm(name: str) -> None:
    """Values that do not change raise nothing, however often they are read and used."""
    p = P(1.0, QUIET[name])
    with check_statics():
        for _ in range(3):
            assert jax.tree.leaves(P(1.0, QUIET[name])) == jax.tree.leaves(p) == [1.0]
            if callable(p.s):
                p.s(2.0)
            assert jax.jit(lambda p: p.x)(p) == 1.0


def test_a_logger_is_quiet() -> None:
    """It keeps which levels are on in a dict, filled when asked for, and configures nothing."""
    log = logging.getLogger("leafwise.tests.logged")
    p = P(1.0, Box(log))
    with check_statics():
        for _ in range(3):
            log.debug("traced")
            assert jax.tree.leaves(p) == [1.0]


# Blocks, threads, a whole process


@pytest.fixture
def box() -> Box:
    """An object that compares by identity, which a test changes in place."""
    return Box(1)


def test_blocks(box: Box) -> None:
    """The end of an inner block, also by an error, leaves the outer one on; both cover threads."""
    p = P(1.0, box)
    with check_statics():
        with pytest.raises(KeyError), check_statics():
            raise KeyError
        box.v = 2
        with ThreadPoolExecutor(1) as pool:
            error = pool.submit(jax.tree.leaves, p).exception()
        assert isinstance(error, lw.errors.StaticMutatedError)
    assert jax.tree.leaves(p) == [1.0]


def test_as_a_decorator(box: Box) -> None:
    """Like any `contextlib` manager it can decorate a function, which runs checked."""
    p = P(1.0, box)
    box.v = 2
    with pytest.raises(lw.errors.StaticMutatedError):
        check_statics()(jax.tree.leaves)(p)
    assert jax.tree.leaves(p) == [1.0]


SCRIPT = """
import jax, leafwise as lw
from tests.statics.judge import Box, P

p = P(1.0, box := Box(1))
jax.tree.leaves(p)
box.v = 2
with lw.debug.check_statics():
    pass
try:
    jax.tree.leaves(p)
    print("silent")
except lw.errors.StaticMutatedError:
    print("raised")
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("value", "said"), [("1", "raised"), ("0", "silent")])
def test_environment_variable(value: str, said: str) -> None:
    """`LEAFWISE_CHECK_STATICS=1` turns it on for the process, also after a block; 0 does not."""
    printed = run_python(SCRIPT, LEAFWISE_CHECK_STATICS=value, PYTHONWARNINGS="error")
    assert printed.decode().strip() == said


class HashOnly:
    v = 1

    def __hash__(self) -> int:
        return hash(self.v)


MADE: dict[str, Any] = {
    "value": Value,
    "hash only": lambda v: HashOnly(),
    "frozen dataclass": Frozen,
}


@pytest.mark.parametrize("nested", ["", "tuple", "partial", "dataclass", "method"])
@pytest.mark.parametrize("name", MADE)
def test_building_from_a_changed_object(name: str, nested: str) -> None:
    """As long as a key of the old content lives, the next construction raises at once."""
    value = MADE[name](1)
    place = {
        "": lambda v: v,
        "tuple": lambda v: (v,),
        "partial": lambda v: functools.partial(print, v),
        "dataclass": Frozen,
        "method": lambda v: Frozen(v).__repr__,
    }[nested]
    first = P(1.0, place(value))
    object.__setattr__(value, "v", 2)
    with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.s.*changed in place") as error:
        P(2.0, place(value))
    assert isinstance(error.value, RuntimeError)
    assert "build a new value instead" in str(error.value)
    assert first.x == 1.0


def test_changed_and_changed_back() -> None:
    """An object that is again what it was is accepted."""
    value = Value(1)
    first = P(1.0, value)
    value.v = 2
    with pytest.raises(lw.errors.StaticMutatedError):
        P(1.0, value)
    value.v = 1
    assert jax.tree.structure(P(2.0, value)) == jax.tree.structure(first)


def test_changed_after_its_instances_are_gone() -> None:
    """Where no key of the old content lives, the new content is simply another key."""
    value = Value(1)
    P(1.0, value)
    value.v = 2
    assert P(1.0, value).s.v == 2


def test_a_change_that_keeps_the_hash() -> None:
    """``hash(-1)`` is ``hash(-2)``: the changed value is another key, as a new one is."""
    value = Frozen(-1)
    before = jax.tree.structure(P(1.0, value))
    object.__setattr__(value, "v", -2)
    assert jax.tree.structure(P(1.0, value)) != before
    assert jax.tree.structure(P(1.0, value)) == jax.tree.structure(P(1.0, Frozen(-2)))
