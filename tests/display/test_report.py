"""What JAX made again: what is a finding, and how a report shows it on a terminal and as a page."""

import io
import re
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from rich.console import Console
from tests.kit.inside import (
    Act,
    AuditRecord,
    CapturesRecord,
    Finding,
    Fix,
    StaleCaptureRecord,
    WrongRecord,
    annotation,
    annotations_of,
    busy,
    cache_lines,
    clean,
    count,
    covered,
    cut,
    duration,
    expected_repeats,
    findings,
    functions_of,
    html_page,
    nothing_again,
    once_each,
    print_report,
    tables,
    to_json,
)

from .sample import FIRST, HOSTILE, call, event, explained, function, reason, report, site, usual

FIX = "`jnp.where(mask, x, 0)` keeps the shape"


def operation(start: float, name: str, why: Any, line: int = 5, **more: Any) -> list[Any]:
    """Return what one operation outside jit leads to: it is explained as it is lowered."""
    where = site(line, "y = x[x < n]")
    trace, lowering, compiled = call(start, None, name=name, eager=True, site=where, **more)
    return [trace, replace(lowering, explanation=why), compiled]


def sized(*sizes: int, path: str = "mask", fix: str = FIX) -> list[Any]:
    """Return the events of a line that compiles an operation for each size."""
    found: list[Any] = []
    for at, n in enumerate(sizes):
        shape = reason(path, kind="shape", before=f"({sizes[at - 1]},)", after=f"({n},)", fix=fix)
        why = explained(shape, nearest=at - 1) if at > 2 else FIRST
        found += operation(2.0 * at, "gather", why)
    return found


def only(events: list[Any]) -> Finding:
    (found,) = findings(events)
    return found


def test_first_calls_are_none() -> None:
    """The first program of a function in each role is no finding, and nothing was made again."""
    given = [*call(0, FIRST), *call(1, explained(outcome="recompile", nearest=None), role="vmap")]
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
    """One that is jitted again each time is a finding from the third on; if it is long, at once."""
    why = explained(reason("f", kind="function", change="a new lambda each call"), nearest=None)
    calls = [call(n, why, name="<lambda>", defined="churn.py:9", recreated="new") for n in (1, 2)]
    assert findings(calls[0]) == []
    found = only([*calls[0], *calls[1]])
    assert found.what == "<lambda> retraced 2 times"
    longer = [*calls[0][:2], replace(calls[0][2], seconds=0.8)]
    assert only(longer).what == "<lambda> retraced once"
    sizes = explained(*why.reasons, reason("x", kind="shape"), nearest=None)
    assert findings([replace(longer[0], explanation=sizes), *longer[1:]]) == []
    again = call(1.0, why, defined="Cell In[1]:2", recreated="defined again")
    assert only(again).what == "train_step retraced once"


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
    """The programs of no finding are counted, and no traces, the longest line first."""
    given = [
        event(start=9.0, seconds=5.0, name="f", eager=True, site=site(8)),
        *sized(1, 2, 3, 4),
        *operation(20.0, "sub", FIRST),
        *operation(0.0, "add", FIRST, line=7),
        *operation(1.0, "mul", FIRST, line=8),
        *operation(2.0, "sub", FIRST, line=8),
        *operation(3.0, "add", FIRST, line=9),
    ]
    rows = [(line, number) for line, number, _ in once_each(report(given))]
    assert rows == [("churn.py:8", 2), ("churn.py:5", 1), ("churn.py:7", 1), ("churn.py:9", 1)]
    text = printed(report(given))
    assert "compiled once each, outside `jit`\n  churn.py:8  2 programs, 1.20 s\n" in text
    assert "churn.py:9" not in text  # three are shown


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


def printed(given: Any, width: int = 80, *, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=terminal, color_system=None, legacy_windows=False
    )
    print_report(given, console)
    return file.getvalue()


def test_the_report() -> None:
    """The findings come first, then the functions, and one line at the end says what they cost."""
    assert [line.rstrip() for line in printed(usual()).splitlines()] == [
        "churn.py:40  state = train_step(state, batch)",
        "  train_step retraced 2 times, 1.20 s",
        "  state.opt.lr (static): 0.1 -> 0.2, and 1 more",
        "  fix: make it an array",
        "",
        "function    where        traces  compiles    time",
        "train_step  churn.py:12       3         4  2.25 s",
        "",
        "1 finding: 1.20 s of 10.0 s went into repeats",
        "explained above: 1.20 s (67%) of JAX's 1.80 s",
    ]


def test_what_is_explained() -> None:
    """Findings with a line and a cause count, each second once; all of JAX's time is the whole."""
    again = explained(reason("x"), reason("y"))
    unknown = call(4.0, explained(outcome="unknown"), site=site(8))
    nowhere = call(6.0, explained(reason("x")), name="other", site=None)
    given = report([*call(0.0, FIRST), *call(2.0, again), *unknown, *nowhere])
    assert len(given.findings) == 3
    assert (given.jax_seconds, given.explained_seconds) == (pytest.approx(2.4), pytest.approx(0.6))
    last = "explained above: 600 ms (25%) of JAX's 2.40 s, and 1.20 s without a cause"
    assert printed(given).splitlines()[-1] == last
    record = to_json(report())
    assert (record["jax_seconds"], record["explained_seconds"], record["first"]) == (0.0, 0.0, [])


def test_small_repeats_are_counted() -> None:
    """They have no block, and no line says that nothing was compiled again."""
    small = event(start=5.0, seconds=5e-4, explanation=explained(reason()))
    text = printed(report([*call(0.0, FIRST), small]))
    assert text.startswith("1 small repeat, 500 us\n")
    assert text.splitlines()[-1].startswith("no findings: ")


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([], "JAX compiled nothing."),
        (call(0.5, FIRST), "nothing was compiled again: JAX took 600 ms of 10.0 s"),
        (
            [*call(0.5, FIRST), *call(1.5, explained(outcome="unknown", nearest=None))],
            "no findings. JAX took 1.20 s of 10.0 s: 1.20 s in first compiles",
        ),
    ],
)
def test_without_findings(events: list[Any], line: str) -> None:
    """The last line says that nothing was compiled, or not again, if that is so."""
    assert printed(report(events)).splitlines()[-1] == line


def test_lines_fit() -> None:
    """In a pipe and on a terminal no line is wider than it; what is folded keeps its indent."""
    given = report([event(explanation=explained(reason(fix="word " * 40)))])
    for terminal in (False, True):
        lines = printed(given, 60, terminal=terminal).splitlines()
        assert max(map(len, lines)) <= 60
        folded = [line for line in lines if line.strip().startswith("word word")]
        assert folded
        assert all(line.startswith("  word") for line in folded)


def test_processes_are_named_where_they_differ() -> None:
    """What happens in some of several processes names these; what happens in all does not."""
    calls = [call(float(n), explained(reason()), process=f"rank {n}") for n in (0, 1)]
    both = report([each for several in calls for each in several])
    assert "rank" not in printed(both)
    first = [*calls[0], *call(2.0, FIRST, process="rank 1")]
    assert "train_step retraced once, 600 ms, in rank 0\n" in printed(report(first))


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("bad", HOSTILE)
def test_markup_is_text(bad: str, width: int) -> None:
    """What looks like markup, an emoji code or a control sequence is printed as text."""
    worst = reason("x", before=bad, after=bad, fix=bad)
    events = [event(name=bad, explanation=explained(worst))]
    given = report(events, [function(bad, file=bad)], ended=bad or "x")
    words = " ".join(printed(given, width).split())
    value = " ".join(clean(bad).split())
    assert " ".join(f"x (static): {value} -> {value}".split()) in words
    assert f"the program ended: {value or 'x'}" in words
    assert "\x1b" not in words


def test_the_page() -> None:
    """The page has what is printed, and loads nothing from elsewhere."""
    page = html_page(usual())
    text = re.sub(r"<[^>]+>", "", page)
    assert "train_step retraced 2 times, 1.20 s" in text
    assert "went into repeats" in text
    assert not re.search(r"<(script|link|img|iframe)|src=|url\(", page)


def test_exit_and_warnings_are_last() -> None:
    """Last come how the program ended, if badly, the warnings, and what went into repeats."""
    warning = "traced [b]often[/b]\n  use arrays"
    given = replace(usual(), ended="interrupted", warnings=[warning])
    assert printed(given).splitlines()[-5:] == [
        "the program ended: interrupted",
        "warning: traced [b]often[/b]",
        "    use arrays",
        *printed(usual()).splitlines()[-2:],
    ]
    assert "the program ended" not in printed(usual())


def test_a_crowd_is_cut_and_said_so() -> None:
    """Of many findings some are shown, and lines count the rest of everything."""
    why = explained(*(reason(f"x{n}", fix=f"Fix {n}.") for n in range(40)))
    given = [event(start=n, name=f"f{n}", site=site(n + 1), explanation=why) for n in range(60)]
    text = printed(report(given))
    assert "and 50 more functions, " in text
    assert text.count("  and 37 more reasons\n") == tables.MOST_FINDINGS
    assert "40 more findings" in text


CONTROLS = ("\n", "\x00", "\x1b", "\x9b", "\u2028", "\u202e", "\u2066", "\ud800")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (duration(0), "0 s"),
        (duration(1e-8), "under 1 us"),
        (duration(0.00085), "850 us"),
        (duration(0.01234), "12.3 ms"),
        (duration(0.9996), "1.00 s"),
        (duration(3.214), "3.21 s"),
        (duration(59.96), "1 min 0 s"),
        (duration(7384), "123 min 4 s"),
        (count(0, "trace"), "0 traces"),
        (count(1, "trace"), "1 trace"),
        (count(2000, "trace"), "2,000 traces"),
        (count(2, "entry", "entries"), "2 entries"),
        (cut("x" * 10, 10), "x" * 10),
        (cut("x" * 2000, 3), "xxx... (2,000 characters)"),
        (annotation("notice", "text", "title"), "::notice title=title::text"),
        (
            annotation("error", "100 %\ntwo", "a: b, c", "m.py", 3),
            "::error file=m.py,line=3,title=a%3A b%2C c::100 %25%0Atwo",
        ),
        *((clean(f"a{control}b"), f"a{ascii(control)[1:-1]}b") for control in CONTROLS),
    ],
)
def test_words(text: str, words: str) -> None:
    """Durations have three digits; thousands have a comma; what is cut says its length.

    Controls, marks that turn the direction, halves of surrogate pairs, and what would end the
    part of an annotation that it stands in, are written out.
    """
    assert text == words


def test_each_finding_is_a_warning_at_its_line() -> None:
    """A report has a line for each finding, stale capture and call that the audit found."""
    wrong = WrongRecord("churn.py:7", "step answered for `n=1`", 1)
    stale = StaleCaptureRecord("rate", "f", "", "0.5", "0.25", "churn.py:6")
    captured = [CapturesRecord("f", 0, [], [stale])]
    given = replace(usual(), audit=AuditRecord(3, 0.0, [wrong]), captures=captured)
    assert annotations_of(given).splitlines() == [
        "::warning file=churn.py,line=40,title=train_step retraced 2 times%2C 1.20 s::"
        "state.opt.lr (static): 0.1 -> 0.2%0Afix: make it an array",
        "::warning file=churn.py,line=6,title=an old value was used::"
        "f used rate = 0.5, which was 0.25 by then: pass it as an argument",
        "::warning file=churn.py,line=7,title=another program answered::step answered for `n=1`",
    ]
    assert annotations_of(report()) == ""


def test_covered_counts_once() -> None:
    """What overlaps counts once, gaps not at all."""
    assert covered([(0, 2), (1, 3), (1.5, 1.6), (5, 6)]) == 4
    assert covered([]) == 0


def test_a_finding_ends_with_the_next_call() -> None:
    """What follows a trace without an explanation, or a first call, is not a finding's."""
    for why in (None, FIRST):
        (found,) = findings([*call(0, explained(reason())), *call(2, why)])
        assert found.seconds == pytest.approx(0.6)


@pytest.mark.parametrize(
    "changed",
    [
        {"site": site(41)},
        {"explanation": explained(reason("state.step"))},
        {"role": "vmap"},
        {"site": None},
    ],
)
def test_what_differs_is_another_finding(changed: dict[str, object]) -> None:
    """Line, function, role, and the paths and kinds of the reasons distinguish findings."""
    why = explained(reason())
    same = [event(explanation=why), event(start=1, explanation=why)]
    other = [event(explanation=why), event(start=1, **{"explanation": why} | changed)]
    assert (len(findings(same)), len(findings(other))) == (1, 2)


def causes(*paths: str, start: float) -> list[Any]:
    """Return a call that repeats for some causes: 0.6 s."""
    return call(start, explained(*(reason(path, fix=f"fix {path}") for path in paths)))


def test_a_cause_is_one_finding() -> None:
    """A lambda, alone and with others, is one finding, and its fix is printed once."""
    several = ("f", "f", "f x", "f cfg", "f cfg", "f cfg")
    events = [each for n, paths in enumerate(several) for each in causes(*paths.split(), start=n)]
    given = report(events)
    rows = [([why.path for why, _ in row.reasons()], row.what[-7:]) for row in given.findings]
    assert rows == [(["f"], "2 times"), (["cfg"], "3 times"), (["x"], "ed once")]
    assert sum(row.seconds for row in given.findings) == pytest.approx(busy(events))
    for text in (printed(given), annotations_of(given)):
        assert [text.count(f"fix: fix {path}") for path in ("f", "cfg", "x")] == [1, 1, 1]
        assert text.count("and f (static): fix that first") == 2
    assert [row.get("also", "")[4:5] for row in to_json(given)["findings"]] == ["", "f", "f"]


@hypothesis.given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=9))
def test_fixes_in_order_save_what_is_shown(of_programs: list[set[str]]) -> None:
    """A program is in the finding after whose fix, and those that it needs, none of it is left."""
    events = [each for n, of in enumerate(of_programs) for each in causes(*sorted(of), start=n)]
    rows = findings(events)
    assert sorted(each.start for row in rows for each in row.events) == [e.start for e in events]
    paths = {row: {why.path for program in row.programs for why in program.reasons} for row in rows}
    assert sorted("".join(map("".join, paths.values()))) == sorted(set().union(*of_programs))
    for place, row in enumerate(rows):
        assert set(row.needed) <= set(rows[:place])
        fixed = paths[row].union(*(paths[needed] for needed in row.needed))
        assert all(of_programs[int(program.first.start)] <= fixed for program in row.programs)
        assert all(of_programs[int(program.first.start)] & paths[row] for program in row.programs)


def test_repeats_that_are_expected() -> None:
    """They are counted in one line, and are neither findings nor first compiles of a line."""
    marked = {"expected": "churn.py:39"}
    eager = call(5, explained(reason()), eager=True, name="exp", site=site(8), **marked)
    events = [*causes("x", start=1), *call(2, explained(reason()), **marked), *eager]
    given = replace(report(events), expected=expected_repeats(events))
    (finding,) = given.findings
    assert [why.path for why, _ in finding.reasons()] == ["x"]
    text = "2 repeats at 1 line were marked `# leafwise: expected`, 1.20 s\n"
    assert text in printed(given)
    assert once_each(given) == []
    record = to_json(given)["expected"]
    assert record == {"repeats": 2, "lines": ["churn.py:39"], "seconds": pytest.approx(1.2)}
    assert expected_repeats(causes("x", start=1)) is None


def test_misses_of_the_persistent_cache() -> None:
    """Misses of one reason are one line, which names the functions; the longest come first."""
    rows = (("init", 0.1, "written now"), ("step", 2.0, "too quick"), ("init", 0.1, "written now"))
    events = [event(name=name, seconds=spent, miss=miss) for name, spent, miss in rows]
    assert cache_lines(report([*events, event(name="hit", seconds=1.0)])) == [
        "cache miss of step: too quick",
        "2 cache misses of init: written now",
    ]
