"""Digests: what a checker sees."""

from typing import assert_type

import jax

import leafwise as lw


def digested(x: jax.Array) -> None:
    assert_type(lw.digest({"w": x}), str)
    lw.digest()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
