"""Digests, and their comparison between processes: what a checker sees."""

from collections.abc import Mapping
from typing import assert_type

import jax

import leafwise as lw


def digested(x: jax.Array) -> None:
    assert_type(lw.digest({"w": x}), str)
    lw.digest()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    lw.distributed.assert_same((x, 1), name="state", timeout=1)
    lw.distributed.assert_same(x, "state")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def caught(error: lw.errors.DifferentProcessesError, late: lw.errors.ProcessTimeoutError) -> None:
    assert_type(error.differences, Mapping[str, Mapping[str, tuple[int, ...]]])
    assert_type(late.missing, tuple[int, ...])
