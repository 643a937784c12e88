"""`lw.captures`: what a checker sees of a report."""

from typing import Any, assert_type

import jax

import leafwise as lw


def step(x: jax.Array) -> jax.Array:
    return x


def looked_at(fn: Any) -> None:
    found = lw.captures(step)
    assert_type(found, lw.types.Captures)
    assert_type(lw.captures(fn), lw.types.Captures)
    assert_type(found[0], lw.types.Capture)
    assert_type([each.name for each in found], list[str])
    assert_type(found[0].treatment, lw.types.Treatment)
    assert_type(found[0].where, lw.types.CapturedAt)
    assert_type(found[0].where.line, int)
    assert_type(found[0].leaves, tuple[lw.types.CapturedLeaf, ...])
    assert_type(found[0].nbytes, int)
    assert_type(found.total_nbytes, int)
    lw.captures(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    found[0].nbytes = 0  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
