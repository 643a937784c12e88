"""Classes of every make are built, and their changes judged fairly."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import pytest
from tests.testing.strategies import test_instances

import leafwise as lw
from leafwise._trees.roles import field_names_of

from .asked import kinds, report_of, verdicts


@lw.pytree
class OwnInit:
    n: lw.Static[int]
    x: jax.Array

    def __init__(self, n: int, /, x: float = 2.0, *rest: int, **more: int) -> None:
        self.n = n
        self.x = jnp.full(3, x + len(rest) + len(more))


@lw.pytree
class OwnInitOtherTypes:
    size: lw.Static[int]
    text: lw.Static[int]

    def __init__(self, size: Literal["small", "big"], text: str) -> None:
        self.size = {"small": 1, "big": 2}[size]
        self.text = len(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls",
    [
        OwnInit,
        OwnInitOtherTypes,
        test_instances.Derived,
        test_instances.Converted,
        test_instances.Picky,
        test_instances.Unforgiving,
    ],
)
def test_built(cls: type) -> None:
    """Whatever its constructor takes, the class is built and its changes are as promised."""
    report = report_of(cls)
    assert report.passed, report
    fields = [field.name for field in dataclasses.fields(cls)]
    assert list(dict.fromkeys(row.field for row in report.rows)) == fields, "in field order"


def test_fields_that_no_parameter_sets() -> None:
    """They are not forgotten: a static one is skipped aloud, a dynamic one changed in place."""

    @lw.pytree
    class Derived:
        n: lw.Static[int] = 2
        twice: int = lw.static_field(init=False)
        zeros: jax.Array = lw.field(init=False)

        def __post_init__(self) -> None:
            self.twice = self.n * 2
            self.zeros = jnp.zeros(self.n)

    report = report_of(Derived)
    assert report.passed, report
    seen = verdicts(report)
    assert seen["twice", "value"] == "skipped"
    assert {kind: seen["zeros", kind] for kind in ("value", "shape", "dtype")} == {
        "value": "ok",
        "shape": "ok",
        "dtype": "ok",
    }


def test_an_array_on_a_device() -> None:
    """An array that was put on a device stays there when it is changed."""

    @lw.pytree
    class Placed:
        x: jax.Array = lw.field(
            default_factory=lambda: jax.device_put(jnp.ones(3), jax.devices()[0])
        )

    report = report_of(Placed)
    assert report.passed, report


class Either:
    """Its defaults do not fit together; numbers of Python are static, as with distrax."""

    def __init__(
        self, logits: jax.Array | None = None, probs: jax.Array | None = None, size: int = 3
    ) -> None:
        if (logits is None) == (probs is None):
            raise ValueError("one of both")
        self.logits, self.probs, self.size = logits, probs, size

    def tree_flatten(self) -> Any:
        leaves, structure = jax.tree.flatten(vars(self))
        switch = tuple(type(leaf) not in (int, float) for leaf in leaves)
        pairs = list(zip(leaves, switch, strict=True))
        children = [leaf if is_data else None for leaf, is_data in pairs]
        return children, (tuple(None if is_data else leaf for leaf, is_data in pairs), structure)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        made = object.__new__(cls)
        both = zip(children, aux[0], strict=True)
        leaves = [child if static is None else static for child, static in both]
        vars(made).update(jax.tree.unflatten(aux[1], leaves))
        return made


jax.tree_util.register_pytree_node_class(Either)


@pytest.mark.slow
def test_defaults_that_do_not_fit_together() -> None:
    """Then others are given; what is static by its value is changed as a static."""
    report = report_of(Either)
    assert report.passed, report
    given = next(row.field for row in report.rows if row.kind == "shape")
    assert given in ("logits", "probs")
    for field, is_static in ((given, False), ("size", True)):
        row = kinds(report, field)["value"]
        assert (row.static, row.verdict) == (is_static, "ok")
    assert field_names_of(Either(probs=jax.numpy.ones(3))).static == ("size",)
