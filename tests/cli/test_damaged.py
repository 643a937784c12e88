"""Records, reports and notebooks are data: a damaged one ends with a report, or with one line."""

import base64
import contextlib
import copy
import functools
import importlib.util
import json
import os
import tracemalloc
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.kit.explained import recorded
from tests.kit.inside import LoweredRecord, notebook, unpacked

from leafwise_explain import LOST

from .conftest import Check, Explained, Outcome

fuzz = settings(
    max_examples=10 * settings.default.max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SCALE = {"rate": 1.0}


def script() -> None:
    step = jax.jit(lambda x, n=(1, {"a": None}): x * SCALE["rate"], static_argnames="n")
    SCALE["rate"] = 1.0
    for n in range(2):
        step(1.0)
        jnp.ones(n + 3)[jnp.arange(n + 3) < 1]
        jax.jit(lambda x: step(x) + 1)(np.ones(n + 1))
        SCALE["rate"] += 1.0


RECORDS: list[Any] = [
    {"jax": jax.__version__, "python": "3.13.0", "began": 1e9, "command": "train.py"},
    {"fault": "what", "left_out": {"the calls": "reasons"}},
    {"wrong": {"call": "train.py:3", "what": "it was", "times": 2}},
    {"ended": 2e9, "error": "ValueError: no", "docs": None},
]


@functools.cache
def records() -> list[Any]:
    """Return the lines of a process that left each kind of record."""
    every = recorded(script, captures=True, audit=True, programs=True)
    compiling = next(each["event"] for each in every if "event" in each)
    ended = {"compiling": compiling}, RECORDS[-1]
    return [*RECORDS[:-1], *json.loads(json.dumps(every)), *ended]


def nested(depth: int) -> Any:
    value: Any = 3
    for _ in range(depth):
        value = [value]
    return value


ODD: list[Any] = [
    *(None, True, -1, 3, 1e400, 10**30, "", "x", "x:y", "\x1b[31m\ud800\x00", "{:>99999999}"),
    *([], {}, [[1]], {"a": 1}, {"class": "dict", "parts": [3]}, {"class": [], "parts": ["x"]}),
    nested(900),
]


class Damage(NamedTuple):
    """An entry that is odd or, for -1, missing; where the text is cut; and the format to print."""

    steps: list[int]
    value: int
    cut: int | None
    form: str

    def of(self, document: Any) -> Any:
        """Return a damaged copy."""
        copied: Any = {"of": copy.deepcopy(document)}
        parent, key = copied, "of"
        for step in self.steps:
            if isinstance(parent[key], list | dict) and parent[key]:
                parent = parent[key]
                keys = list(parent) if isinstance(parent, dict) else range(len(parent))
                key = keys[step % len(keys)]
        if self.value < 0 and parent is not copied:
            del parent[key]
        else:
            parent[key] = ODD[self.value]
        return copied["of"]


DAMAGE = st.builds(
    Damage,
    st.lists(st.integers(0, 100), min_size=1, max_size=9),
    st.integers(-1, len(ODD) - 1),
    st.one_of(st.none(), st.none(), st.integers(1, 400)),
    st.sampled_from(("text", "json", "github")),
)


def check(outcome: Outcome) -> None:
    """A report, or one line and what to do; nothing that a terminal obeys."""
    assert outcome.code in (0, 1, 2)
    assert not {"\x1b", "\x00"} & {*outcome.out, *outcome.err}
    if outcome.code == 2:
        line, *fix = outcome.err.splitlines()
        assert line.startswith("leafwise ")
        assert [each[:7] for each in fix] in ([], ["  fix: "])


@fuzz
@given(damage=DAMAGE)
@pytest.mark.slow
def test_damaged_records(leafwise: Check, damage: Damage) -> None:
    """`explain FOLDER` reports what it can read, or names the file and the line."""
    lines = [json.dumps(record) for record in damage.of(records())]
    lines[0] = lines[0][: damage.cut]
    Path("rank-7.jsonl").write_text("\n".join(lines))
    Path(LOST).touch()
    outcome = leafwise("explain", "--output-format", damage.form, "--html", "page.html", ".")
    check(outcome)
    if outcome.code:
        assert outcome.err.startswith("leafwise explain: rank-7.jsonl:")
    elif lines[0] and not lines[0].endswith("}"):
        assert "1 record is missing" in Path("page.html").read_text()


REPORTS: list[Any] = []


@fuzz
@given(damage=DAMAGE, is_first=st.booleans())
@pytest.mark.slow
def test_damaged_reports(
    explained: Explained, leafwise: Check, damage: Damage, *, is_first: bool
) -> None:
    """`compare` says what differs, or what is wrong with which file."""
    REPORTS.extend([] if REPORTS else [json.loads(json.dumps(explained(script, programs=True)))])
    Path("good.json").write_text(json.dumps(REPORTS[0]))
    Path("bad.json").write_text(json.dumps(damage.of(REPORTS[0]))[: damage.cut])
    names = ["good.json", "bad.json"][:: -1 if is_first else 1]
    outcome = leafwise("compare", "--output-format", damage.form, *names)
    check(outcome)
    assert outcome.code < 2 or "bad.json" in outcome.err


NOTEBOOK = {"cells": [{"cell_type": "code", "source": ["x = 1\n", "y = 2"]}], "nbformat": 4}


@fuzz
@given(damage=DAMAGE)
def test_damaged_notebooks(monkeypatch: pytest.MonkeyPatch, damage: Damage) -> None:
    """What is not a notebook is refused before anything is run."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)  # as without IPython
    file = Path("train.ipynb")
    file.write_text(json.dumps(damage.of(NOTEBOOK))[: damage.cut])
    problem = notebook.problem(file)
    assert problem is None or problem.startswith(file.name)


DAMAGED = {
    "rank-1\x1b.jsonl": ("", "rank-1\\x1b.jsonl: wanted a file of records, "),
    "a list": ("[3]", "rank-7.jsonl:2: wanted an object, got [3]"),
    "a place": ('{"wrong": {"call": "t.py"}}', "rank-7.jsonl:2: wrong.call: wanted file:line, "),
    "a name": ('{"\\u001b": 3}', "rank-7.jsonl:2: \\x1b: is not known"),
    "nested": ("[" * 10**5, "rank-7.jsonl:2: "),
    "rank-8.jsonl": (None, "rank-8.jsonl: wanted a file of records, "),
}


@pytest.mark.parametrize("way", DAMAGED)
def test_what_is_wrong_with_records(leafwise: Check, way: str) -> None:
    """One line names the file, the line in it and the fault; a pipe is not waited for."""
    line, words = DAMAGED[way]
    file = Path(way if way.endswith(".jsonl") else "rank-7.jsonl")
    os.mkfifo(file) if line is None else file.write_text(f"\n{line}")
    outcome = leafwise("explain", "--fail-on", "retrace", ".")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"leafwise explain: {words}")


@pytest.mark.slow
@pytest.mark.parametrize("text", [b" ", b"[],"])
def test_operations_are_not_unpacked_without_limit(text: bytes) -> None:
    """Some kilobytes that would take a gigabyte are refused before they do."""
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(text * 2**22) for _ in range(2**8)) + packer.flush()
    record = LoweredRecord("step", "", "", {}, [], base64.b64encode(packed).decode())
    tracemalloc.start()
    with contextlib.suppress(ValueError):  # or it says that they are too many
        assert unpacked(record) is None
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**29
