"""Records and notebooks are data: a damaged one ends with one line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.kit.inside import notebook

from .conftest import Check

NOTEBOOKS: list[Any] = [
    None,
    3,
    [],
    {},
    {"cells": None},
    {"cells": [3]},
    {"cells": [{"source": 3}]},
]


@pytest.mark.parametrize("document", NOTEBOOKS)
def test_damaged_notebooks(document: Any) -> None:
    """What is not a notebook is refused before anything is run; so is a half of one."""
    file = Path("train.ipynb")
    for text in (json.dumps(document), json.dumps(document)[:-1]):
        file.write_text(text)
        problem = notebook.problem(file)
        assert problem is None or problem.startswith(file.name)


DAMAGED = {
    "rank-1\x1b.jsonl": ("", "rank-1\\x1b.jsonl: wanted a file of records, "),
    "a list": ("[3]", "rank-7.jsonl:2: not a record: "),
    "a place": ('{"wrong": {"call": "t.py"}}', "rank-7.jsonl:2: not a record: "),
    "a name": ('{"\\u001b": 3}', "rank-7.jsonl:2: not a record: KeyError"),
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
