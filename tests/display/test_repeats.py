"""What JAX did again: one block for a line and its reasons, and what could be saved."""

from typing import Any, cast

from leafwise._display.functions import functions_of
from leafwise._display.page import page
from leafwise._display.repeats import causes_of, folded, repeats

from .sample import FIRST, call, event, explained, reason, report, site
from .test_tables import printed

MASK = "A boolean mask: each number of True elements has a program of its own."


def operation(start: float, name: str, why: Any, line: int = 5) -> Any:
    """Return what one operation outside jit leads to."""
    return call(start, why, name=name, eager=True, site=site(line, "y = x[x < n]"))


def masked(*numbers: int) -> list[Any]:
    """Return the events of a line that compiles two operations for each size."""
    made: list[Any] = []
    for n in numbers:
        shape = reason("mask", kind="shape", before=f"({n - 1},)", after=f"({n},)", fix=MASK)
        why = FIRST if n == numbers[0] else explained(shape)
        made += operation(2.0 * n, "gather", why) + operation(2.0 * n + 1, "scatter", why)
    return made


def test_eager_operations_of_a_line_are_one_block() -> None:
    """All operations of a line that compile again are one cause, in the totals and on the page."""
    given = report(masked(1, 2, 3))
    (found,) = repeats(given)
    assert (found.eager, found.name, len(found.events)) == (True, "gather and 1 more", 4)
    text = printed(given)
    assert "retrace of gather and 1 more, outside jit, 4 times, 2.40 s" in text
    assert "2.40 s of 10.0 s could be saved: 4 retraces and recompiles" in text
    assert ", 0 first calls\n" in text
    assert "outside jit" in page(given)
    cause = "churn.py:5 a boolean mask, 4 retraces, 2.40 s"
    assert text.splitlines()[0].endswith(f"top causes: {cause}")
    assert text.splitlines()[-1].endswith(f"top causes: {cause}")
    assert f"top causes: {cause}" in page(given)
    (record,) = causes_of(given)
    assert record["place"] == "churn.py:5"
    assert (record["cause"], record["times"]) == ("a boolean mask", 4)


def shaped(*sizes: int) -> list[Any]:
    """Return the events of a line that makes arrays of these sizes."""
    made: list[Any] = []
    for place, n in enumerate(sizes):
        shape = reason("shape", kind="shape", before="(1,)", after=f"({n},)", fix=SHAPE)
        made += operation(2.0 * place, "normal", explained(shape) if place else FIRST)
    return made


SHAPE = "Each shape has a program of its own: pad to a few shapes, or keep one."


def test_a_few_shapes_outside_jit_cannot_be_saved() -> None:
    """Parameters that are made one by one have a program for each shape; in a loop it goes on."""
    assert repeats(report(shaped(1, 2, 3))) == []
    assert "nothing was retraced or recompiled" in printed(report(shaped(1, 2, 3)))
    (found,) = repeats(report(shaped(*range(1, 12))))
    assert (found.cause, len(found.events)) == ("another shape", 10)


def test_leaves_of_several_shapes_and_dtypes_cannot_be_saved() -> None:
    """A loop over the leaves of a tree has a program for each; other dtypes alone are named."""
    dtype = reason("x", kind="dtype", before="int32", after="float32", fix="Convert to one dtype")
    other = operation(9.0, "normal", explained(dtype))
    assert repeats(report([*shaped(1, 2, 3), *other])) == []
    (found,) = repeats(report([*operation(0.0, "normal", FIRST), *other]))
    assert found.cause == "another dtype of x"


def test_eager_lines_are_rows() -> None:
    """A line that compiles again is a row with its place; all others are one without."""
    given = [*masked(1, 2), *operation(9.0, "add", FIRST, line=7)]
    rows = functions_of(given)
    assert [(each["name"], each["file"], each["line"], each["compiles"]) for each in rows] == [
        ("eager operations", "churn.py", 5, 4),
        ("eager operations", "", 0, 1),
    ]


def test_one_function_is_one_row() -> None:
    """Events without a place join those of the name that have one."""
    given = [
        *call(0.0, FIRST, name="solve", defined="solver.py:4"),
        *call(1.0, explained(reason()), name="solve", defined=""),
        event("compile", 3.0, name="other", defined=""),
        event("compile", 4.0, name="other", defined=""),
    ]
    rows = {each["name"]: each for each in functions_of(given)}
    assert len(rows) == 2
    assert (rows["solve"]["file"], rows["solve"]["traces"]) == ("solver.py", 2)
    assert rows["other"]["compiles"] == 2


def test_functions_of_one_name_are_rows_of_their_own() -> None:
    """What is defined in two places is two functions."""
    given = [
        *call(0.0, FIRST, name="step", defined="a.py:4"),
        *call(1.0, FIRST, name="step", defined="b.py:4"),
        event("compile", 3.0, name="step", defined=""),
    ]
    assert len(functions_of(given)) == 3


def test_recreated_functions_are_repeats() -> None:
    """A function that is defined and jitted again at each call is in the totals."""
    calls = [call(float(n), FIRST, name="<lambda>", defined="churn.py:9") for n in range(4)]
    given = report([each for events in calls for each in events])
    (found,) = repeats(given)
    assert len(found.events) == 3
    assert found.cause == "a new lambda each call"
    assert "once, outside the loop" in found.reasons[0].fix
    assert "top causes: churn.py:40 a new lambda each call, 3 retraces" in printed(given)
    assert ", 1 first call\n" in printed(given)
    changed = [{**each, "changed": "`rate`, 1 -> 2"} for each in given["events"]]
    (found,) = repeats(report(cast("Any", changed)))
    assert found.cause == "a new lambda each call, with another value in it"
    assert "`rate`, 1 -> 2. Pass that as an argument; then" in found.reasons[0].fix


def test_processes_have_functions_of_their_own() -> None:
    """Workers of one pool that each jit a function do not recreate it."""
    calls = [
        call(float(n), FIRST, defined="a.py:3", thread=f"MainThread of process {n}")
        for n in range(5)
    ]
    assert repeats(report([each for events in calls for each in events])) == []


def test_two_objects_are_no_loop() -> None:
    """A method that is jitted for two objects, and two functions of one name, are first calls."""
    twice = [*call(0.0, FIRST, defined="a.py:3"), *call(1.0, FIRST, defined="a.py:3")]
    assert repeats(report(twice)) == []
    others = [each for n in range(4) for each in call(float(n), FIRST, defined=f"a.py:{n}")]
    assert repeats(report(others)) == []


def test_one_cause_at_many_leaves() -> None:
    """Leaves that differ alike are one reason, with the first paths."""
    weak = {"kind": "weak type", "before": "weak", "after": "strong", "fix": "Pass an array."}
    why = explained(*(reason(f"state.x{n}", **weak) for n in range(12)), reason("state.n"))
    text = printed(report([*call(0.0, FIRST), *call(1.0, why)]))
    assert "  state.x0, state.x1 and 10 more: weak type: weak -> strong. Pass an array." in text
    assert "  state.n: static: 0.1 -> 0.2" in text
    assert text.count("weak type:") == 1


def test_the_values_are_those_of_the_fix() -> None:
    """Of calls with one reason and several fixes the values and the fix shown are of one call."""
    first = reason("t", before="False", after="True", fix="each new value is traced.")
    other = reason("t", before="True", after="0", fix="differs by type.")
    calls = [call(float(n), explained(each)) for n, each in enumerate((first, other), 1)]
    given = report([*call(0.0, FIRST), *calls[0], *calls[1]])
    text = printed(given)
    assert "  t: static: True -> 0, and 1 more change. differs by type." in text
    (record,) = causes_of(given)
    assert record["fixes"] == ["differs by type.", "each new value is traced."]


def test_inner_traces_are_no_reason() -> None:
    """What was traced inside another function, and is called now, is called for the first time."""
    inner = reason("x", kind="kind", outcome="recompile", before="tracer", after="jax array")
    given = report([*call(0.0, FIRST), *call(1.0, explained(inner, outcome="recompile"))])
    assert repeats(given) == []
    assert ", 2 first calls\n" in printed(given)
    with_shape = explained(inner, reason("y", kind="shape"))
    (found,) = repeats(report(call(0.0, with_shape)))
    assert [each.path for each in found.reasons] == ["y"]


def test_what_takes_little_is_folded() -> None:
    """What takes under 1 % of JAX's time is one line, as long as it is little in all."""
    small = [
        event(start=20 + n, seconds=0.001, site=site(50 + n), explanation=explained(reason()))
        for n in range(3)
    ]
    given = report([*call(0.0, FIRST), *call(1.0, explained(reason())), *small])
    assert [len(each) for each in folded(given, repeats(given))] == [1, 3]
    text = printed(given)
    assert "not shown: 3 more retraces and recompiles, under 1 % of the time each" in text
    assert "churn.py:51" not in text
    assert len(causes_of(given)) == 4
    many = [
        event(start=float(n), seconds=0.5, site=site(n), explanation=explained(reason()))
        for n in range(500)
    ]
    large, rest = folded(report(many), repeats(report(many)))
    assert len(large) > 400
    assert len(rest) > 0
