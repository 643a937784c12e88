"""`lw.field` and `lw.static_field` as field specifiers in a plain `equinox.Module`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import leafwise as lw

from .modules import works

SPECIFIERS = "`lw.field` and `lw.static_field` in an `equinox.Module`"


def positive(value: Any) -> bool:
    return value > 0


class Net(eqx.Module):
    w: jax.Array = lw.field(converter=jnp.asarray)
    depth: int = lw.static_field(default=2, validator=positive)
    table: Any = lw.static_field(default_factory=list, freeze=True)
    name: str = lw.static_field(default="net", kw_only=True, converter=str)
    rate: float = lw.field(default=0.1, validator=positive)


@works(SPECIFIERS)
def test_defaults_and_conversion() -> None:
    """Defaults, factories, keyword-only, converters and freezing do what they say."""
    net = Net(1.0)
    assert isinstance(net.w, jax.Array)
    assert jax.tree.leaves(net) == [1.0, 0.1]
    assert jax.tree.structure(net) != jax.tree.structure(Net(1.0, 3))
    assert (net.depth, net.table, net.name, net.rate) == (2, (), "net", 0.1)
    other = Net(2.0, 3, [[1, 2]], 0.2, name=7)
    assert (other.depth, other.table, other.name, other.rate) == (3, ((1, 2),), "7", 0.2)


@works("a value that cannot be static in an `lw.static_field` of a module is refused by name")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1], "unhashable"),
        ((0, jnp.ones(2)), "array"),
        (Net(1.0), "array"),
    ],
    ids=["list", "array in a tuple", "module"],
)
def test_refused(value: object, kind: str) -> None:
    """The error is leafwise's own, comes before any warning, and names class and field."""

    class Holder(eqx.Module):
        static: Any = lw.static_field()

    with pytest.raises(lw.errors.StaticFieldError, match=r"Holder\.static") as info:
        Holder(value)
    assert info.value.kind == kind
    assert "fix:" in str(info.value)
    with pytest.raises(lw.errors.StaticFieldError, match=r"Holder\.static"):
        jax.jit(lambda x: Holder((x,)))(1.0)


@works(SPECIFIERS)
def test_checks_and_converters_that_fail() -> None:
    """A refused or failing value names class and field, and where the field is inherited."""

    class Below(Net):
        extra: int = lw.static_field(default=1, converter=int)

    with pytest.raises(
        lw.errors.FieldCheckError, match=r"Net\.depth: its validator positive refused 0"
    ):
        Net(1.0, depth=0)
    with pytest.raises(ValueError, match="invalid literal") as info:
        Below(1.0, extra="x")
    assert "in the converter of field Below.extra" in info.value.__notes__[0]


@works(SPECIFIERS)
def test_written_constructor() -> None:
    """Converters and checks run at the end of a constructor that is written by hand, once."""
    calls: list[object] = []

    def count(value: object) -> object:
        calls.append(value)
        return value

    class Own(eqx.Module):
        w: jax.Array = lw.field(converter=count)
        depth: int = lw.static_field(converter=count)

        def __init__(self, depth: int) -> None:
            self.w = jnp.ones(2)
            self.depth = depth

    own = Own(3)
    assert len(calls) == 2
    jax.tree.map(lambda x: x, own)
    jax.jit(lambda own: own)(own)
    assert len(calls) == 2
    with pytest.raises(lw.errors.StaticFieldError, match=r"Own\.depth"):
        Own(jnp.ones(1))  # pyright: ignore[reportArgumentType]


@works("`lw.Static[...]` in a plain `equinox.Module`", cannot="equinox ignores annotations")
def test_static_annotation_in_plain_module() -> None:
    """The annotation alone leaves the field dynamic: `leafwise.interop.equinox.Module` reads it."""

    class Plain(eqx.Module):
        name: lw.Static[str] = "a"

    assert jax.tree.leaves(Plain()) == ["a"]


@works(
    '`lw.static_field(compare_by="content")` in a plain `equinox.Module`', cannot="it has no key"
)
def test_by_content_in_plain_module() -> None:
    """It is refused, with the base class that can do it."""

    class Plain(eqx.Module):
        optimizer: Any = lw.static_field(compare_by="content")

    with pytest.raises(lw.errors.DefinitionError, match=r"Plain\.optimizer") as info:
        Plain(optax.sgd(0.1))
    assert "leafwise.interop.equinox.Module" in str(info.value)
