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
from tests.captures.test_pairs import knob
from tests.docs.test_architecture import tables_of_page
from tests.kit.inside import SeenFunction

import leafwise as lw
from leafwise._objects.classes import ClassMap
from leafwise._objects.locks import new_lock
from leafwise._objects.source import call_site
from leafwise._objects.source.loops import loops_around
from leafwise.interop import export

Use = Callable[[], Any]
ROWS: dict[str, Callable[[float], Use]] = {}
"""By tables: makes one of a kind with a number, and returns whether it is taken for itself."""
CLASSES: ClassMap[float] = ClassMap()
SEEN: list[SeenFunction] = []
LOCK = new_lock()
jit: Any = lw.jit  # so that lambdas need no types


def row(tables: str) -> Callable[[Callable[[float], Use]], Callable[[float], Use]]:
    return lambda make: ROWS.setdefault(tables, make)


def function_in(body: str, file: str, names: Any) -> Any:
    """Return a function of ``x`` in the first lines of a file, with its globals."""
    return types.FunctionType(compile(f"def f(x):\n {body}", file, "exec").co_consts[0], names)


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


@row("_statics/key.py KeyTable _DEAD")
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


@row("_objects/source/call_site.py _counted _watched _next")
def line_of_equal_code(k: float) -> Use:
    calls, later = list[str](), list[str]()

    def run_of(frame: Any) -> Any:
        call_site.at_next_run(frame, lambda again: later.append(again.f_code.co_filename))
        return call_site.run_of(frame)

    space: Any = {"run_of": run_of, "frame": sys._getframe}
    function, runs = function_in("return run_of(frame())", f"{k}.py", space), list[Any]()
    is_seen = call_site.watch_calls(
        function.__code__, lambda frame: calls.append(frame.f_code.co_filename)
    )

    def use() -> bool:
        runs.append(function(1.0))
        is_counted = runs == [*range(len(runs))] and calls == [f"{k}.py"] * len(runs)
        is_counted = is_counted and later == calls[1:]
        return is_counted if is_seen else {*runs} == {None}

    return use


@row("_captures/observe.py Observer")
def closures_in_one_function(k: float) -> Use:
    (one, _), (other, turn) = knob(k), knob(k)
    function = jit(lambda x: one(x) + 10 * other(x), on_stale="retrace")
    return lambda: function(1.0) in (11 * k, -9 * k) and not turn(-k) and function(1.0) == -9 * k


@row("_jit/checked_calls.py _NOTED _NUMBERS _TRACES_OF")
def helper_of_twin_modules(k: float) -> Use:
    spaces = [{"rate": k}, {"rate": k}]
    one, other = (jax.jit(function_in("return x * rate", "twin.py", names)) for names in spaces)
    both = jit(lambda x: one(x) + other(x), on_stale="retrace")
    alone = [jit(lambda x, f=f: f(x) * 2, on_stale="retrace") for f in (one, other)]

    def use() -> bool:
        spaces[0]["rate"] = spaces[1]["rate"] = k
        functions = (both, *alone) if k == 2.0 else (*alone, both)
        before = [function(1.0) for function in functions]
        spaces[int(k) % 2]["rate"] = -k
        after = [each(1.0) for each in alone]
        is_seen = after == [2 * space["rate"] for space in spaces]
        return bool(before == [2 * k] * 3 and is_seen and both(1.0) == 0.0)

    return use


@row("_jit/recorder.py _ahead")
def program_lowered_ahead(k: float) -> Use:
    function = jit(lambda x: x * k)
    lowered = function.lower(1.0)
    return lambda: lowered.compile() and function.traces[0].compile_seconds > 0


@row("_jax/persistent_cache.py _last_parts")
def compiled_function(k: float) -> Use:
    from leafwise._jax.persistent_cache import parts_before

    parts = {"computation": str(k)}
    return lambda: parts_before(function := lambda: k, 0, parts) == {} and function


@row("_objects/source/loops.py _sources")
def edited_file(k: float) -> Use:
    first = {f"<edited {n}>": ("if", "while", "for")[int(k + n) % 3] for n in (0, 1)}

    def use() -> bool:
        with LOCK:
            for file, word in first.items():
                lines = [f"{word} x:\n".replace("for", "for i in"), "    f()\n"]
                linecache.cache[file] = (1, None, lines, file)
            found = [loops_around(file, 2, 4, calls=False) for file in (*first, *first)]
            kinds = [loop.kind for loops in found for loop in loops]
            return kinds == [word for word in first.values() if word != "if"] * 2

    return use


@row("interop/export.py _NAMED")
def exported_class(_: float) -> Use:
    export.register_serialization()
    made: Any = lw.pytree(type("Exported", (), {"__annotations__": {"x": Any}}))
    blobs = list[Any]()

    def use() -> bool:
        blobs.append(jax.export.export(jax.jit(lambda p: p))(made(1.0)).serialize())
        found = [jax.export.deserialize(blob).call(made(1.0)) for blob in blobs]
        return all(type(each) is made for each in found)

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
