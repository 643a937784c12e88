"""What the check of captures cannot see, and where it speaks of what was not read.

The list in `docs/how-to/captures.md` has these, and no others. Who solves one removes it here.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.things import Model

import leafwise as lw

from .stale_kinds import Row, run

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types

UNSEEN = {
    "name that is made up": Row(
        "global made_up; made_up = 1.0; name = 'made_' + 'up'",
        "x * globals()[name]",
        "made_up = 2.0",
    ),
    "code in a text": Row("global made_up; made_up = 1.0", "x * eval('made_up')", "made_up = 2.0"),
    "module by its name": Row(
        "import importlib; module = settings()",
        "x * importlib.import_module('leafwise_test_' + 'settings').rate",
        "module.rate = 2.0",
    ),
    "its own code": Row(
        "def function(x): return x", "", "function.__code__ = (lambda x: x * 2).__code__"
    ),
    "context variable": Row(
        "import contextvars; it = contextvars.ContextVar('rate', default=1.0)",
        "x * it.get()",
        "it.set(2.0)",
    ),
    "environment": Row("import os", "x * float(os.environ['RATE'])", "os.environ['RATE'] = '2'"),
    "value of this thread": Row(
        "import threading; it = threading.local(); it.rate = 1.0", "x * it.rate", "it.rate = 2.0"
    ),
    "its class": Row(
        "cls = type('Net', (Model,), {'__call__': lambda self, x: x * 2}); it = Model(rate=1.0)",
        "it(x)",
        "it.__class__ = cls",
    ),
    "attribute of an enum member": Row(
        "it = enum.Enum('Kind', 'ONE').ONE; it.rate = 1.0", "x * it.rate", "it.rate = 2.0"
    ),
    "class that registers later": Row(
        "import abc; base = abc.ABCMeta('Base', (), {}); it = Model()",
        "x * (2.0 if isinstance(it, base) else 1.0)",
        "base.register(Model)",
    ),
    "attribute that a class gets": Row(
        "get = lambda it: getattr(it, 'a', 1.0); it = type('Net', (), {})",
        "x * get(it)",
        "it.a = 2.0",
    ),
    "is the same": Row(
        "it = Thing(); pair = [it, it]",
        "x * (1.0 if pair[0] is pair[1] else 2.0)",
        "pair[1] = Thing()",
    ),
    "what a frozen object holds": Row(
        "it = Params(1.0)", "x * jax.tree.leaves(it)[0]", "vars(it)['w'] = 2.0"
    ),
    "class attribute of an item": Row(
        "Params.rate = 1.0; its = [Params(1.0)]",
        "x * sum(each.rate for each in its)",
        "Params.rate = 2.0",
    ),
}


@pytest.mark.parametrize("kind", UNSEEN)
def test_what_cannot_be_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is answered for the old value, and nothing is said; a block sees it."""
    monkeypatch.setenv("RATE", "1")  # what it was comes back in the end
    changes = run(UNSEEN[kind])
    function, _ = next(changes)
    strict = jit(function, on_stale="raise")
    old = strict(ONES)
    assert next(changes, "changed") == "changed"
    with jax.disable_jit():
        assert not np.array_equal(function(ONES), old)
    assert np.array_equal(strict(ONES), old)
    if kind != "environment":
        with lw.debug.check_captures(), pytest.raises(lw.errors.StaleCaptureError):
            strict(ONES)


def test_what_the_function_itself_changes() -> None:
    """It is read while the function is traced, and then never again; a block sees it."""
    ran: list[int] = []

    def function(x: Any) -> Any:
        ran.append(1)
        return x * len(ran)

    strict = jit(function, on_stale="raise")
    assert strict(ONES).tolist() == strict(ONES).tolist() == [1, 1]
    with lw.debug.check_captures(), pytest.raises(lw.errors.StaleCaptureError):
        strict(ONES)


def test_a_program_that_was_compiled_ahead_of_time() -> None:
    """It is JAX's alone."""
    held = Model(rate=1.0)
    compiled = jit(lambda x: x * held.rate, on_stale="raise").lower(ONES).compile()
    held.rate = 2.0
    assert np.array_equal(compiled(ONES), ONES)


COUNTS = {
    "other way": Row(
        "it, is_on = Model(rate=1.0), False", "x * it.rate if is_on else x", "it.rate = 2.0"
    ),
    "registered for another type": Row(
        "scaled = functools.singledispatch(lambda x: x)",
        "scaled(x)",
        "scaled.register(str, lambda x: x * 2)",
    ),
    "presence": Row("held = {'a': 2.0}", "x * (2.0 if 'a' in held else 1.0)", "held['a'] = 3.0"),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_what_counts_though_it_was_not_read(kind: str) -> None:
    """The call is said to be stale, and a retrace gives what was there."""
    changes = run(COUNTS[kind])
    function, _ = next(changes)
    strict, fresh = jit(function, on_stale="raise"), jit(function, on_stale="retrace")
    old = strict(ONES)
    fresh(ONES)
    assert next(changes, "changed") == "changed"
    with pytest.raises(lw.errors.StaleCaptureError):
        strict(ONES)
    assert np.array_equal(fresh(ONES), old)
