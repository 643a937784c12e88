"""`lw.show`: what a checker sees of a diagram."""

from typing import Any, assert_type

import jax

import leafwise as lw


@lw.pytree
class Params:
    w: jax.Array
    act: lw.Static[str] = "relu"


def shown(params: Params, anything: Any) -> None:
    diagram = lw.show(params, depth=2, children=10)
    assert_type(diagram, lw.types.Diagram)
    assert_type(lw.show(anything), lw.types.Diagram)
    assert_type(diagram.nbytes, int)
    assert_type(diagram.leaves, int)
    lw.show(params, 2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    lw.show(params, depth="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    diagram.nbytes = 0  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
