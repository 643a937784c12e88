"""Generated functions run as written ones do: under C code that imports, tracers and coverage."""

import functools
import gc
import pickle
import subprocess
import sys
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leafwise as lw
from leafwise._captures.places import BoundIn, place_of
from leafwise._captures.reads import Current, Read

REDUCE = pickle.dumps(functools.reduce)
"""What `pickle.loads` imports from C, with the builtins of the Python function that runs."""


class Scale:
    def times(self, x: Any, s: float = 2.0) -> Any:
        return x * s


def functions(by: float = 2.0) -> list[Any]:
    """Return functions with a default, an instance, an argument and a closure."""
    times = Scale().times
    return [lambda x, s=2.0: x * s, times, functools.partial(times, s=by), lambda x: x * by]


ARRAYS = [jnp.ones(3), np.ones(3), np.ones(3, int), np.ones(3, np.float32)]
ARGUMENTS = st.sampled_from([*ARRAYS, 1.0, 1, np.float64(1.0), np.int64(1)])


@pytest.mark.slow  # about 30 programs
@given(st.integers(0, 3), st.lists(ARGUMENTS, max_size=6))
def test_arguments_of_any_origin_in_any_order(which: int, arguments: list[Any]) -> None:
    """A function with a check answers for JAX, NumPy and Python values, whichever come first."""
    jitted: Any = lw.jit(functions()[which])
    for argument in (*arguments, *arguments):
        assert np.array_equal(jitted(argument), argument * 2)


def test_c_code_that_imports() -> None:
    """It finds the builtins below each generated function that calls what a user wrote."""

    @lw.pytree
    class Loaded:
        w: Any = lw.field(converter=pickle.loads)

    of_default = place_of(BoundIn.DEFAULT, Scale.times, "s")
    for place in (
        of_default,
        place_of(BoundIn.GLOBAL, {"without_builtins": 1}, "without_builtins"),
    ):
        check = Current([Read(place)]).check(pickle.loads, Scale)
        assert check(REDUCE) is Loaded(REDUCE).w is functools.reduce


def test_all_generated_functions_have_builtins() -> None:
    """They are in the globals of every function that leafwise has generated in this process."""

    @lw.pytree
    class Made:
        w: Any
        n: lw.Static[int] = 1

    lw.jit(functions()[0])(Made(1.0).w)
    generated = {
        each.__name__: each.__globals__
        for each in gc.get_objects()
        if type(each) is types.FunctionType and each.__code__.co_filename.startswith("<leafwise ")
    }
    assert {"__init__", "flatten", "flatten_with_keys", "unflatten", "get_0", "check"} <= {
        *generated
    }
    assert [name for name, names in generated.items() if "__builtins__" not in names] == []


SCRIPT = """
import functools, sys, jax.numpy as jnp, numpy as np, leafwise as lw
if "trace" in sys.argv:
    def trace(frame, event, arg): return trace
    sys.settrace(trace)
class Scale:
    def times(self, x, s=2.0): return x * s
def run(step):
    step(jnp.ones(3)), step(np.ones(3))
    return step(np.ones(3))
assert (run(lw.jit({function})) == 2).all()
"""
WRITTEN = {
    "": "lambda x, s=2.0: x * s",
    "trace": "Scale().times",
    "coverage": "functools.partial(Scale().times, s=2.0)",
}


@pytest.mark.slow  # processes of their own: jaxlib imports once
@pytest.mark.parametrize(("under", "function"), WRITTEN.items(), ids=WRITTEN.values())
def test_jaxlib_imports_below_a_check(under: str, function: str, tmp_path: Any) -> None:
    """The first NumPy array of 64 bits is dispatched, also under a tracer and under coverage."""
    (tmp_path / "step.py").write_text(SCRIPT.replace("{function}", function))
    start = [sys.executable, *(["-m", "coverage", "run"] if under == "coverage" else [])]
    subprocess.run([*start, "step.py", under], check=True, cwd=tmp_path)
