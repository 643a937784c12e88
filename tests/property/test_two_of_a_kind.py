"""What outlives a call takes nothing for another one that agrees with it in all but identity."""

import functools
import linecache
import operator
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import pytest
from tests.docs.test_architecture import tables_of_page
from tests.kit.inside import SeenFunction

import leafwise as lw
from leafwise._objects import call_site
from leafwise._objects.classes import ClassMap

Use = Callable[[], Any]
ROWS: dict[str, Callable[[float], Use]] = {}
"""By tables: makes one of a kind with a number, and returns whether it is taken for itself."""
CLASSES: ClassMap[float] = ClassMap()
SEEN: list[SeenFunction] = []
jit: Any = lw.jit  # so that lambdas need no types


def row(tables: str) -> Callable[[Callable[[float], Use]], Callable[[float], Use]]:
    return lambda make: ROWS.setdefault(tables, make)


class Equal(type):
    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return 1


class Slotted:
    __slots__ = ()
    __name__ = "slotted"


@lw.pytree
class Params:
    x: Any
    n: lw.Static[Any] = None


@row("_objects/classes.py ClassMap per_class")
def class_that_equals_all(k: float) -> Use:
    made = Equal("Made", (), {})
    CLASSES[made] = k
    return lambda: CLASSES.get(made) == k


@row("_classes/codegen.py _count")
def class_with_a_field(k: float) -> Use:
    made: Any = lw.pytree(type("Made", (), {"__annotations__": {f"w{k:.0f}": Any}}))
    file = made.__init__.__code__.co_filename
    return lambda: f"w{k:.0f}" in "".join(linecache.getlines(file))


@row("_statics/key.py KeyTable")
def static_function(k: float) -> Use:
    return lambda: Params(1.0, lambda: k).n() == k


@row("_statics/form.py _RECORDS")
def static_that_can_change(_: float) -> Use:
    static = functools.partial(max, 1)
    return lambda: Params(1.0, static).n is static


@row("_jit/jit.py _SHARED _FIRST")
@row("_jit/recorder.py _followed _of_code _by_source")
def function_and_method(k: float) -> Use:
    function, method = jit(lambda x: x * k), jit(types.MethodType(operator.mul, k))
    return lambda: function(1.0) == method(1.0) == jax.grad(function)(1.0) == k


@row("_jit/callee.py _table")
def static_parameter(k: float) -> Use:
    @jit
    def step(x: Any, n: lw.Static[Any]) -> Any:
        return x * k * n()

    return lambda: step(1.0, lambda: k) == k * k


@row("_jit/programs.py ProgramLog")
@row("_captures/check.py _code_of_check")
def capture_that_changes(k: float) -> Use:
    held = [k]
    function = jit(lambda x: x * held[0], on_stale="retrace")

    def use() -> bool:
        held[0] = -k
        changed = function(1.0)
        held[0] = k
        return bool(changed == -k and function(1.0) == k)

    return use


@row("_jit/outside.py OutsideLog SeenFunction")
def function_without_weak_references(_: float) -> Use:
    seen = SeenFunction(Slotted())
    SEEN.append(seen)
    return lambda: [each for each in SEEN if each.is_same(seen)] == [seen]


@row("_objects/call_site.py _counted")
def line_of_equal_code(k: float) -> Use:
    space: Any = {"run_of": call_site.run_of, "frame": sys._getframe}
    code = compile("def f():\n return run_of(frame())", f"{k}.py", "exec")
    function, runs = types.FunctionType(code.co_consts[0], space), list[Any]()

    def use() -> bool:
        runs.append(function())
        return runs == [*range(len(runs))] or {*runs} == {None}

    return use


@pytest.mark.parametrize("order", ["in order", "in the other order", "on threads", "freed"])
@pytest.mark.parametrize("make", ROWS.values(), ids=ROWS)
def test_each_is_taken_for_itself(make: Callable[[float], Use], order: str) -> None:
    """So it is with both alive, whichever is used first, and where another one has just died."""
    if order == "freed":
        assert all(make(float(k))() for k in range(1, 6))
        return
    uses = [make(2.0), make(3.0)][:: -1 if order == "in the other order" else 1]
    if order == "on threads":
        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(lambda use: use() and use(), uses))
    assert all(use() for use in uses * 2)
    call_site.stop_counting()


def test_each_table_of_the_page_is_tried() -> None:
    """The tables here are those of the page "Architecture"."""
    assert ROWS.keys() == tables_of_page()
