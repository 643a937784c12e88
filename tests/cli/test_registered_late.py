"""Classes that are registered when they are instantiated, and annotations that are no types."""

import dataclasses
from typing import Any, NamedTuple

import jax
import pytest

from leafwise._trees.roles import names_of
from leafwise.errors import LawViolation
from leafwise.testing import check_pytree

from .asked import kinds, report_of
from .conftest import Check, Write

SOURCE = """
class Jittable:
    def __new__(cls, *args, **kwargs):
        try:
            jax.tree_util.register_pytree_node_class(cls)
        except ValueError:
            pass  # already registered
        return object.__new__(cls)

    def tree_flatten(self):
        return tuple(vars(self).values()), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)

class Categorical(Jittable):
    def __init__(self, logits: jax.Array) -> None:
        self.logits = logits

class Registry:
    def __init__(self, name: str = "a") -> None:
        print("made")
        self.name = name

class Leaf:
    def __init__(self, name: str) -> None:
        self.name = name
"""


def test_they_are_instantiated_first(write: Write, check: Check) -> None:
    """Before it is said of a class that JAX treats its instances as leaves, one is made."""
    file = write(SOURCE)
    assert check(f"{file}:Categorical").code == 0
    for name in ("Registry", "Leaf", "jax"):
        outcome = check(f"{file}:{name}")
        assert outcome.code == 2
        assert "not a pytree class" in outcome.err


def test_those_of_a_module(write: Write, check: Check) -> None:
    """A module has those that call what registers them; no other class is instantiated."""
    outcome = check(write(SOURCE, "late.py"), "--json")
    assert outcome.code == 0
    assert outcome.names == ["Jittable", "Categorical"]
    assert "made" not in outcome.out + outcome.err


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
    assert (kinds(report, given)["value"].static, kinds(report, given)["value"].verdict) == (
        False,
        "ok",
    )
    assert (kinds(report, "size")["value"].static, kinds(report, "size")["value"].verdict) == (
        True,
        "ok",
    )
    assert names_of(Either(probs=jax.numpy.ones(3))).static == ("size",)


def declared(cls: Any) -> Any:
    return jax.tree_util.register_dataclass(dataclasses.dataclass(cls))


@declared
class Static:
    w: jax.Array
    size: dataclasses.field(metadata={"static": True})  # type: ignore[valid-type]  # noqa: F821, RUF100


@declared
class Text:
    size: "dataclasses.field(default=3)"  # type: ignore[valid-type]


class Tuple(NamedTuple):
    w: float
    size: dataclasses.field()  # type: ignore[valid-type]


@pytest.mark.parametrize("cls", [Static, Text, Tuple])
def test_a_field_as_an_annotation(cls: type) -> None:
    """It is named as what it is; the field is dynamic, and changed as one."""
    with pytest.raises(LawViolation) as caught:
        check_pytree(cls, laws=["no-hidden-state"])
    assert caught.value.path == f"{cls.__name__}.size"
    sentence = "`dataclasses.Field`: `:` was written for `=`, so that the field is dynamic"
    assert sentence in str(caught.value)
    report = report_of(cls)
    assert not report.error
    assert kinds(report, "size")["value"].change
    assert not any(row.static for row in report.rows)
