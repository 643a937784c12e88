"""What JAX made again: one finding for a line and its cause, and none where nothing is repeated."""

from dataclasses import replace
from typing import Any

from tests.kit.inside import Act, Finding, Fix, findings, functions_of, nothing_again, once_each

from .sample import FIRST, call, event, explained, reason, report, site

FIX = "`jnp.where(mask, x, 0)` keeps the shape"


def operation(start: float, name: str, why: Any, line: int = 5, **more: Any) -> list[Any]:
    """Return what one operation outside jit leads to: it is explained as it is lowered."""
    where = site(line, "y = x[x < n]")
    trace, lowering, compiled = call(start, None, name=name, eager=True, site=where, **more)
    return [trace, replace(lowering, explanation=why), compiled]


def sized(*sizes: int, path: str = "mask", fix: str = FIX) -> list[Any]:
    """Return the events of a line that compiles an operation for each size."""
    found: list[Any] = []
    for place, n in enumerate(sizes):
        shape = reason(
            path, kind="shape", before=f"({sizes[place - 1]},)", after=f"({n},)", fix=fix
        )
        why = explained(shape, nearest=place - 1) if place > 2 else FIRST
        found += operation(2.0 * place, "gather", why)
    return found


def only(events: list[Any]) -> Finding:
    (found,) = findings(events)
    return found


def test_a_call_of_a_jitted_function() -> None:
    """Calls of one line with the same reasons are one finding, whose values differ."""
    changed = [explained(reason(before=f"0.{n}", after=f"0.{n + 1}")) for n in (1, 2)]
    found = only([*call(0.5, FIRST), *call(2, changed[0]), *call(4, changed[1])])
    assert found.what == "train_step retraced 2 times"
    assert (found.retraces, found.recompiles) == (2, 2)
    assert round(found.seconds, 3) == 1.2
    ((why, more),) = found.reasons()
    assert (why.path, why.change, more) == ("state.opt.lr", "0.1 -> 0.2", 1)
    assert found.fixes() == [Fix("make it an array")]


def test_first_calls_are_none() -> None:
    """The first program of a function in each role is no finding, and nothing was made again."""
    given = [
        *call(0.0, FIRST),
        *call(1.0, explained(outcome="recompile", nearest=None), role="vmap"),
    ]
    assert findings(given) == []
    assert nothing_again(given)
    again = [*given, *call(2.0, explained(outcome="unknown", nearest=None), role="vmap")]
    assert not nothing_again(again)


def test_another_function_is_another_program() -> None:
    """A static argument that is a function of other code is no repeat."""
    other = explained(reason("loss", change="another function", fix=Fix(act=Act.NOTHING)))
    assert findings([*call(0.0, FIRST), *call(1.0, other)]) == []


def test_what_is_inside_a_trace_is_none() -> None:
    """It is a part of the trace around it, whatever its shapes."""
    inner = call(1.0, explained(reason()), inner=True)
    assert findings([*call(0.0, FIRST), *inner]) == []


def test_batches() -> None:
    """A function that is compiled for several batch sizes is told which."""
    events: list[Any] = []
    for n in (2, 3):
        sizes = reason("batch", kind="batch", before=str(n), after=str(n + 1))
        lowering, compiled = call(float(n), explained(), role="vmap")[1:]
        why = explained(sizes, outcome="recompile")
        events += [replace(lowering, explanation=why), compiled]
    found = only([*call(0.0, FIRST, role="vmap"), *events])
    assert found.what == "train_step compiled for 3 batch sizes under `vmap`: 2, 3, 4"
    assert (found.retraces, found.recompiles) == (0, 2)


def test_a_line_outside_jit_is_one_finding() -> None:
    """Whatever it compiles again is one finding, which counts all of its programs and runs."""
    again = explained(reason("", kind="cache", change="", fix="jit it"))
    events = [
        *operation(0.0, "while", FIRST, run=0),
        *operation(1.0, "add", FIRST, run=0),
        *operation(2.0, "while", again, run=1),
        *operation(3.0, "while", again, run=2),
    ]
    for at, run in ((1, 0), (4, 0), (7, 1), (10, 2)):
        events[at].run = run
    found = only(events)
    assert found.what == "4 programs compiled outside `jit` in 3 runs, 2 of them again"
    assert found.reasons() == []
    assert found.fixes() == [Fix("jit it")]
    assert (found.retraces, found.recompiles) == (2, 2)


def test_sizes_of_lines_that_call_each_other() -> None:
    """One finding has them all, whichever is met first."""
    one, other = site(3, "f(x)"), site(7, "g(x)")
    every = [
        replace(each, name=line.text, site=line, callers=[other, one, site(9, "main()")])
        for line in (one, other)
        for each in sized(1, 2, 3, 4)
    ]
    assert only(every).what == "8 programs compiled for 4 sizes, outside `jit`"


def test_sizes() -> None:
    """The finding says for how many sizes, and names the operation if it is one."""
    found = only(sized(1, 2, 3, 4, 5))
    assert found.what == "gather compiled for 5 sizes, outside `jit`"
    assert found.fixes() == [Fix(FIX)]
    several = [replace(each, name=name) for name in ("gather", "exp") for each in sized(1, 2, 3, 4)]
    assert only(several).what == "8 programs compiled for 4 sizes, outside `jit`"


def test_traces_alone() -> None:
    """What is traced for its shapes is counted in traces."""
    fresh = reason("fun", change="a new lambda each call", fix="define it once, before the loop")
    traces = [
        event(start=float(n), name="f", eager=True, explanation=explained(fresh) if n else FIRST)
        for n in range(4)
    ]
    found = only(traces)
    assert found.what == "4 traces made outside `jit`, 3 of them again"
    assert (found.retraces, found.recompiles) == (3, 0)


def test_recreated_functions() -> None:
    """A function that is jitted again each time is a finding from the third on, a cell at once."""
    why = explained(
        reason("<lambda>", kind="function", change="a new lambda each call"), nearest=None
    )
    calls = [
        call(float(n), why, name="<lambda>", defined="churn.py:9", recreated="new") for n in (1, 2)
    ]
    assert findings(calls[0]) == []
    found = only([*calls[0], *calls[1]])
    assert found.what == "<lambda> retraced 2 times"
    again = call(1.0, why, defined="Cell In[1]:2", recreated="defined again")
    assert only(again).what == "train_step retraced once"


def test_small_ones() -> None:
    """Under a millisecond and a thousandth of JAX's time there is nothing to save."""
    small = event(start=5.0, seconds=5e-4, explanation=explained(reason()))
    given = [*call(0.0, FIRST), small]
    assert findings(given) == []
    assert len(findings(given, small=True)) == 1
    assert not nothing_again(given)


def test_changes_are_true_of_each_path() -> None:
    """Arguments that change alike are one reason; others have one of their own."""
    shapes = {name: {"kind": "shape", "before": "(4, 2)", "after": "(5, 2)"} for name in "ab"}
    shapes["c"] = {"kind": "shape", "before": "(16, 3)", "after": "(25, 3)"}
    why = explained(*(reason(name, **shape) for name, shape in shapes.items()))
    found = only([*call(0.0, FIRST), *call(1.0, why)]).reasons()
    assert [(why.path, why.change) for why, _ in found] == [
        ("a, b", "(4, 2) -> (5, 2)"),
        ("c", "(16, 3) -> (25, 3)"),
    ]


def test_processes() -> None:
    """Each has functions of its own; what happens in several is one finding, which names them."""
    why = explained(reason("f", kind="function", change="a new function each call"), nearest=None)
    alone = [
        each
        for n in range(3)
        for each in call(float(n), why, defined="a.py:3", recreated="new", process=f"rank {n}")
    ]
    assert findings(alone) == []
    both = [
        each
        for n in range(2)
        for each in call(float(n), explained(reason()), defined="a.py:3", process=f"rank {n}")
    ]
    assert only(both).processes == ["rank 0", "rank 1"]


def test_one_cause_at_many_leaves() -> None:
    """Leaves that differ alike are one reason, with the first paths."""
    weak = {"kind": "weak type", "before": "weak", "after": "strong", "fix": "pass an array"}
    why = explained(*(reason(f"state.x{n}", **weak) for n in range(12)), reason("state.n"))
    paths = [why.path for why, _ in only([*call(0.0, FIRST), *call(1.0, why)]).reasons()]
    assert paths == ["state.x0, state.x1 and 10 more", "state.n"]


def test_what_was_compiled_once_each() -> None:
    """The programs of no finding are counted, and no traces, the line with the longest first."""
    given = [
        event(start=9.0, seconds=5.0, name="f", eager=True, site=site(8)),
        *sized(1, 2, 3, 4),
        *operation(20.0, "sub", FIRST),
        *operation(0.0, "add", FIRST, line=7),
        *operation(1.0, "mul", FIRST, line=8),
        *operation(2.0, "sub", FIRST, line=8),
    ]
    rows = once_each(report(given))
    assert [(line, number) for line, number, _ in rows] == [
        ("churn.py:8", 2),
        ("churn.py:5", 1),
        ("churn.py:7", 1),
    ]


def test_rows_of_functions() -> None:
    """A function is known by name and definition; each line outside `jit` is a row."""
    given = [
        *call(0.0, FIRST, name="solve", defined="solver.py:4"),
        *call(1.0, explained(reason()), name="solve", defined=""),
        *call(2.0, FIRST, name="step", defined="a.py:4"),
        *call(3.0, FIRST, name="step", defined="b.py:4"),
        event("compile", 4.0, name="other", defined=""),
        *operation(9.0, "add", FIRST, line=7),
    ]
    rows = [(row.name, row.file, row.line, row.compiles) for row in functions_of(given)]
    assert sorted(rows) == [
        ("other", "churn.py", 40, 1),
        ("outside jit", "churn.py", 7, 1),
        ("solve", "solver.py", 4, 2),
        ("step", "a.py", 4, 1),
        ("step", "b.py", 4, 1),
    ]


def test_a_cause_that_is_not_among_the_arguments() -> None:
    """It is told where nothing else is: what is known of the arguments says more."""
    cache = reason("(not an argument)", kind="cache", change="a cache was cleared", fix="")
    for given, paths in (((cache,), ["(not an argument)"]), ((reason("x"), cache), ["x"])):
        (found,) = findings([*call(0.0, FIRST), *call(1.0, explained(*given))])
        assert [why.path for why, _ in found.reasons()] == paths


def test_a_gradient_is_one_finding() -> None:
    """The backward pass is made again for what the forward pass before it is."""
    events: list[Any] = [*call(0.0, FIRST)]
    for start, role, why in (
        (1.0, "forward", explained(reason("x"), outcome="recompile")),
        (2.0, "backward", explained(outcome="recompile")),
    ):
        lowering, compiled = call(start, FIRST, role=role)[1:]
        events += [replace(lowering, explanation=why), compiled]
    found = only(events)
    assert (found.what, found.recompiles) == ("train_step recompiled 2 times", 2)
    assert [why.path for why, _ in found.reasons()] == ["x"]
