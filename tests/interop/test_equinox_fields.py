"""`lw.field` and `lw.static_field` as field specifiers in a plain `equinox.Module`."""

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Annotated, Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

SPECIFIERS = "`lw.field` and `lw.static_field` in an `equinox.Module`"


def works(what: str, cannot: str | None = None) -> pytest.MarkDecorator:
    return pytest.mark.works("equinox", what, cannot=cannot)


def positive(value: Any) -> bool:
    return value > 0


def as_text(value: object) -> str:
    return str(value)


class Net(eqx.Module):
    w: jax.Array = lw.field(converter=jnp.asarray)
    depth: int = lw.static_field(default=2, check=positive)
    table: Any = lw.static_field(default_factory=list, freeze=True)
    name: str = lw.static_field(default="net", kw_only=True, converter=as_text)
    rate: float = lw.field(default=0.1, check=positive, metadata={"unit": "1/s"})


@works(SPECIFIERS)
def test_defaults_and_conversion() -> None:
    """Defaults, factories, keyword-only, converters and freezing do what they say."""
    net = Net(1.0)
    assert isinstance(net.w, jax.Array)
    assert (net.depth, net.table, net.name, net.rate) == (2, (), "net", 0.1)
    other = Net(2.0, 3, [[1, 2]], 0.2, name=7)
    assert (other.depth, other.table, other.name, other.rate) == (3, ((1, 2),), "7", 0.2)
    with pytest.raises(TypeError, match="positional"):
        Net(1.0, 2, (), 0.1, "net")
    fields = {field.name: field for field in dataclasses.fields(Net)}
    assert fields["rate"].metadata["unit"] == "1/s"
    assert fields["name"].kw_only


@works(SPECIFIERS)
def test_statics_are_static() -> None:
    """Static fields are no leaves, are in the tree definition, and decide on the program."""
    net = Net(1.0)
    assert len(jax.tree.leaves(net)) == 2
    leaves, structure = jax.tree.flatten(net)
    assert jax.tree.unflatten(structure, leaves).table == ()
    step = eqx.filter_jit(lambda net: net.w * net.depth)
    with lw.budget(traces=2, exact=True, of="<lambda>", eager=False):
        for depth in (2, 2, 3):
            assert float(step(Net(1.0, depth))) == depth
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(net)]
    assert paths == [".w", ".rate"]


@works("a value that cannot be static in an `lw.static_field` of a module is refused by name")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1], "unhashable"),
        ({"a": 1}, "unhashable"),
        ((1, [2]), "unhashable"),
        (bytearray(b"a"), "unhashable"),
        (jnp.ones(2), "array"),
        ((0, jnp.ones(2)), "array"),
        (Net(1.0), "array"),
    ],
    ids=["list", "dict", "in a tuple", "bytearray", "array", "array in a tuple", "module"],
)
def test_refused(value: object, kind: str) -> None:
    """The error is leafwise's own, comes before any warning, and names class and field."""

    class Holder(eqx.Module):
        static: Any = lw.static_field()

    with pytest.raises(lw.errors.StaticFieldError, match=r"Holder\.static") as info:
        Holder(value)
    assert info.value.kind == kind
    assert "fix:" in str(info.value)


@works("a value that cannot be static in an `lw.static_field` of a module is refused by name")
def test_tracers_are_refused() -> None:
    """A tracer is refused, also one that a closure hides."""

    class Holder(eqx.Module):
        static: Any = lw.static_field()

    def hold(wrap: Callable[[Any], Any]) -> None:
        jax.jit(lambda x: Holder(wrap(x)))(1.0)

    for wrap in (lambda x: x, lambda x: (x,), lambda x: lambda: x):
        with pytest.raises(lw.errors.StaticFieldError, match=r"Holder\.static"):
            hold(wrap)


@works(SPECIFIERS)
def test_checks_and_converters_that_fail() -> None:
    """A refused or failing value names class and field, and where the field is inherited."""

    class Below(Net):
        extra: int = lw.static_field(default=1, converter=int)

    with pytest.raises(
        lw.errors.FieldCheckError, match=r"Net\.depth: its check positive refused 0"
    ):
        Net(1.0, depth=0)
    with pytest.raises(lw.errors.FieldCheckError, match=r"Net\.rate"):
        Below(1.0, rate=-1.0)
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


@works(SPECIFIERS)
def test_annotations_of_constructor() -> None:
    """Equinox writes into the constructor's annotations what a field takes, as for its own."""

    class Theirs(eqx.Module):
        a: int = eqx.field(static=True)
        b: str = eqx.field(converter=as_text)

    class Ours(eqx.Module):
        a: int = lw.static_field()
        b: str = lw.field(converter=as_text)

    assert Ours.__init__.__annotations__ == Theirs.__init__.__annotations__
    assert str(inspect.signature(Ours)) == str(inspect.signature(Theirs))


@works("`lw.Static[...]` in a plain `equinox.Module`", cannot="equinox reads no annotations")
def test_static_annotation_in_plain_module() -> None:
    """The annotation alone leaves the field dynamic: `leafwise.interop.equinox.Module` reads it."""

    class Plain(eqx.Module):
        name: lw.Static[str] = "a"

    assert jax.tree.leaves(Plain()) == ["a"]


@works('`lw.static_field(by="content")` in a plain `equinox.Module`', cannot="it has no key")
def test_by_content_in_plain_module() -> None:
    """It is refused, with the base class that can do it."""

    class Plain(eqx.Module):
        optimizer: Any = lw.static_field(by="content")

    with pytest.raises(lw.errors.DefinitionError, match=r"Plain\.optimizer") as info:
        Plain(optax.sgd(0.1))
    assert "leafwise.interop.equinox.Module" in str(info.value)


def test_pytree_class_never_calls_the_converter_of_metadata() -> None:
    """In a leafwise class a converter runs once, though equinox would find it, too."""
    calls: list[object] = []

    def count(value: object) -> object:
        calls.append(value)
        return value

    @lw.pytree
    class Params:
        w: Any = lw.field(converter=count)
        n: int = lw.static_field(default=1, converter=count)

    params = Params(1.0)
    assert len(calls) == 2
    lw.replace(params, n=2)
    assert len(calls) == 4
    eqx.tree_at(lambda p: p.w, params, 3.0)
    assert len(calls) == 4


def test_dataclass_is_not_harmed() -> None:
    """A plain dataclass with these fields is one, and its class can be pickled by value."""

    @dataclasses.dataclass(frozen=True)
    class Record:
        x: int = lw.field(default=1, converter=int)
        y: int = lw.static_field(default=2)

    assert Record("3") == Record("3", 2)  # pyright: ignore[reportArgumentType]
    assert Record() == Record(1, 2)
    assert dataclasses.asdict(Record()) == {"x": 1, "y": 2}
    loaded = pickle.loads(cloudpickle.dumps(Record(5)))  # noqa: S301  # our own
    assert (loaded.x, loaded.y) == (5, 2)


def test_static_through_a_local_name() -> None:
    """An annotation as text finds the names that the class statement sees."""
    Count = lw.Static[int]  # noqa: N806

    class Local(Module):
        n: "Count"

    assert not jax.tree.leaves(Local(1))


def test_marker_of_another_library() -> None:
    """`jax_dataclasses.Static` says static in a module, too."""

    class Local(Module):
        n: "Annotated[int, '__jax_dataclasses_static_field__']" = 3

    assert not jax.tree.leaves(Local())
