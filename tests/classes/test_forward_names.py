"""Annotations that name what is not defined yet: without quotes since Python 3.14.

Before, the same text is read with ``from __future__ import annotations``.
"""

import copy
import dataclasses
import inspect
import pickle
import sys
import typing
from types import ModuleType
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise.testing import check_pytree
from leafwise.testing.strategies import instances

LATE = sys.version_info >= (3, 14)

SOURCE = """
import dataclasses
from dataclasses import KW_ONLY, InitVar
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypedDict

import jax
import leafwise as lw

if TYPE_CHECKING:
    from nowhere import Unseen

@lw.pytree
class Node:
    x: float
    children: tuple[Node, ...] = ()
    parent: Node | None = None
    other: Other | None = None
    unseen: Unseen | None = None
    act: lw.Static[Act | None] = None
    mode: Act | None = lw.static_field(default=None)
    shared: ClassVar[Other | None] = None

@lw.pytree(slots=True)
class Slotted:
    other: Other
    _: KW_ONLY
    start: InitVar[Other | None] = None
    starts: InitVar[tuple[Other, ...]] = ()
    act: lw.Static[Act] = "relu"

    def __post_init__(self, start, starts):
        pass

@lw.pytree
class Sub(Node):
    more: Other | None = None

@dataclasses.dataclass(frozen=True)
class Plain:
    other: Other
    start: InitVar[Other | None] = None

@lw.pytree
class OfPlain(Plain):
    more: float = 0.0

@dataclasses.dataclass
class Registered:
    other: Other
    act: Act

lw.register(Registered, dynamic=["other"], static=["act"])

class Pair(NamedTuple):
    one: Other
    two: float

class Options(TypedDict):
    other: Other

@lw.pytree
class Holder:
    pair: Pair
    options: Options
    registered: Registered

@lw.pytree
class Other:
    y: float = 1.0

Act = str
"""


def module_of(source: str, monkeypatch: pytest.MonkeyPatch, name: str = "forward") -> Any:
    """Return the module that a text defines, under which its classes are found."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    future = "" if LATE else "from __future__ import annotations\n"
    exec(future + source, vars(module))  # noqa: S102  # Python before 3.14 refuses some as code
    return module


@pytest.fixture
def forward(monkeypatch: pytest.MonkeyPatch) -> Any:
    return module_of(SOURCE, monkeypatch)


def test_what_is_static(forward: Any) -> None:
    """What the annotation says around a name that is not defined yet decides."""
    node = forward.Node(1.0, act="relu", mode="fast")
    assert len(jax.tree.leaves(node)) == 1
    assert jax.tree.structure(node) != jax.tree.structure(lw.replace(node, act="tanh"))
    assert jax.tree.structure(node) != jax.tree.structure(lw.replace(node, mode="slow"))
    made = (
        forward.Slotted(forward.Other()),
        forward.Sub(1.0, more=2.0),
        forward.OfPlain(3.0),
        forward.Registered(forward.Other(), "relu"),
    )
    assert [len(jax.tree.leaves(each)) for each in made] == [1, 2, 2, 1]
    assert all(jax.tree.structure(each) != jax.tree.structure(node) for each in made)


def test_what_the_constructor_says(forward: Any) -> None:
    """Whoever asks later gets the types, as of a dataclass."""
    assert dataclasses.fields(forward.Node)[3].type == "Other | None"
    if LATE:
        hints = typing.get_type_hints(forward.Slotted.__init__)
        other = forward.Other
        assert hints == {
            "other": other, "start": other | None, "starts": tuple[other, ...], "act": str,
            "return": type(None),
        }  # fmt: skip
        assert inspect.signature(forward.OfPlain).parameters["other"].annotation is other
        assert typing.get_type_hints(forward.OfPlain)["other"] is other
        with pytest.raises(NameError, match="Unseen"):  # as of a dataclass
            inspect.signature(forward.Node)


def test_instances_live_as_others(forward: Any) -> None:
    """They are copied, pickled, replaced, printed, digested, and pass through jit."""
    child = forward.Node(jnp.ones(2), act="relu")
    node = forward.Node(jnp.ones(3), (child,), child, forward.Other(), act="relu")
    for again in (copy.deepcopy(node), pickle.loads(pickle.dumps(node))):  # noqa: S301  # ours
        assert again == node
        assert lw.digest(again) == lw.digest(node)
    assert jax.jit(lambda n: n)(node).children == node.children
    if sys.version_info >= (3, 13):
        assert copy.replace(node, act="tanh").act == "tanh"
    summed = lw.jit(lambda n: n.x.sum() + n.parent.x.sum())
    assert summed(node) == 5.0
    assert ".act" in str(summed.explain(lw.replace(node, act="tanh")))
    assert "parent" in str(lw.show(node))
    assert [*map(str, lw.diff(node, lw.replace(node, parent=None)))]


@pytest.mark.slow
def test_laws_hold(forward: Any) -> None:
    """Strategies draw what the names stand for by then, and the laws hold for what is drawn."""
    few = hypothesis.settings(max_examples=4)
    for name in ("Node", "Slotted", "OfPlain", "Holder"):
        check_pytree(instances(getattr(forward, name)), settings=few)


LOCAL = """
import leafwise as lw

def make():
    @lw.pytree
    class Tree:
        value: Value
        below: tuple[Tree, ...] = ()
        act: lw.Static[Name] = "relu"

    class Value:
        pass

    Name = str
    return Tree, Value
"""


@pytest.mark.skipif(not LATE, reason="text does not know the function around it")
def test_local_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names in a function are found later, too."""
    tree, value = module_of(LOCAL, monkeypatch).make()
    assert typing.get_type_hints(tree.__init__)["value"] is value
    assert len(jax.tree.leaves(tree(1.0, (tree(2.0),)))) == 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_type_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type parameter is not a name that is defined later."""
    source = """
import leafwise as lw
@lw.pytree
class Box[T]:
    item: T
    other: Other | T | None = None
    act: lw.Static[T | None] = None
@lw.pytree(slots=True)
class Slotted[T](Box[T]):
    more: T = 5
class Other:
    pass
"""
    module = module_of(source, monkeypatch)
    assert jax.tree.leaves(module.Box[int](1.0, act="relu")) == [1.0]
    assert jax.tree.leaves(module.Slotted[int](1.0, act="relu")) == [1.0, 5]


ALIASES = {
    "alias": ("Name", "Name = lw.Static[str]"),
    "in a union": ("Name | None", "Name = lw.Static[str]"),
    "final": ("Final[Name]", "Name = lw.Static[str]"),
    "of a module": ("names.Name", "class names: Name = lw.Static[str]"),
}


@pytest.mark.parametrize(("annotation", "alias"), ALIASES.values(), ids=ALIASES)
def test_static_is_found_out_at_the_first_instance(
    annotation: str, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alias of ``Static`` below the class is refused: it would be dynamic silently."""
    source = f"""
import leafwise as lw
from typing import Final
@lw.pytree
class Model:
    x: float
    act: {annotation} = "relu"
@lw.pytree
class Sub(Model):
    pass
@lw.pytree
class Own(Model):
    def __init__(self):
        self.x, self.act = 1.0, "tanh"
{alias}
"""
    module = module_of(source, monkeypatch)
    for make in (lambda: module.Model(1.0), lambda: module.Sub(1.0), module.Own) * 2:
        with pytest.raises(lw.errors.DefinitionError) as caught:
            make()
        (line, fix, *_) = str(caught.value).splitlines()
        assert f".act: its annotation {annotation!r} says static" in line
        assert fix.startswith("  fix: define it above Model, or write `act: ")
        assert fix.endswith('= lw.static_field(default="relu")`')


OF_ALIASES = """
import jax
import leafwise as lw
type Layers = tuple[Layer, ...]
type Tree = tuple[Model, ...] | list[Tree]
type Mode = lw.Static[Name]
type Plain = Layer
@lw.pytree
class Model:
    layers: Layers = ()
    below: Tree = ()
    mode: Mode = "relu"
    plain: Plain | None = None
    act: {0} = 1.0
@lw.pytree
class Sub(Model):
    pass
@lw.pytree
class Layer:
    w: float = 1.0
Name = str
{1}
"""


@pytest.mark.skipif(not LATE, reason="an alias is read whole, or not at all")
def test_aliases_of_later_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a `type` statement above names below is taken, and a static one is static."""
    module = module_of(OF_ALIASES.format("float", ""), monkeypatch)
    for cls in (module.Model, module.Sub):
        model = cls((module.Layer(),), (cls(),), "tanh", module.Layer())
        assert jax.tree.leaves(model) == [1.0] * 4
        assert jax.tree.structure(model) != jax.tree.structure(lw.replace(model, mode="relu"))
    check_pytree(instances(module.Model), settings=hypothesis.settings(max_examples=5))
    module = module_of(OF_ALIASES.format("Plain", "Layer = lw.Static[float]"), monkeypatch)
    for cls in (module.Model, module.Sub):
        with pytest.raises(lw.errors.DefinitionError, match=r"\.act: its .* says static"):
            cls()


def test_a_method_named_as_a_builtin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The annotation above it means the builtin."""
    source = """
import leafwise as lw
@lw.pytree
class Table:
    x: float
    columns: lw.Static[list[str] | tuple[str, ...]] = ()
    later: lw.Static[type[Later] | None] = None
    def list(self):
        return self.columns
    def type(self):
        return self.later
class Later:
    pass
"""
    table = module_of(source, monkeypatch).Table
    assert jax.tree.leaves(table(1.0)) == [1.0]


def test_static_inside_another_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no effect, whatever else the annotation names."""
    source = """
import leafwise as lw
@lw.pytree
class Model:
    x: list[lw.Static[Later]] | None = None
"""
    with pytest.raises(lw.errors.DefinitionError) as caught:
        module_of(source, monkeypatch)
    assert "Model.x: Static inside another type has no effect" in str(caught.value)
    assert "fix: `x: lw.Static[list[Later] | None]`" in str(caught.value)
