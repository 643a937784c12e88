"""`lw.update`: other values at some places of a tree, however deep."""

import collections
import dataclasses
import enum
import functools
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.trees import NamedNode, pytrees

import leafwise as lw

TABLE: Final = lw.FrozenMapping({"a b": 1, 3: (4, 5)})


@dataclasses.dataclass(frozen=True)
class Config:
    depth: int
    sizes: tuple[int, ...] = (1, 2)
    table: Any = TABLE


@lw.pytree
class Layer:
    w: Any
    b: Any = 0.0
    act: str = lw.static_field(default="relu")


@lw.pytree
class Model:
    encoder: Layer
    layers: list[Layer]
    pair: Any = NamedNode(1, 2)
    config: Config = lw.static_field(default=Config(2))


def model() -> Model:
    return Model(Layer(1.0), [Layer(2.0), Layer(3.0)])


PLACES: Final[list[tuple[str, Any, Any]]] = [
    ("encoder", lambda m: m.encoder, "new"),
    ("encoder.act", lambda m: m.encoder.act, "tanh"),
    ("layers[0].w", lambda m: m.layers[0].w, 7),
    ("layers[-1].act", lambda m: m.layers[1].act, "gelu"),
    ("pair.right", lambda m: m.pair.right, 8),
    ("config.depth", lambda m: m.config.depth, 3),
    ("config.sizes[1]", lambda m: m.config.sizes[1], 9),
    ("config.table['a b']", lambda m: m.config.table["a b"], "x"),
    ("config.table[3][0]", lambda m: m.config.table[3][0], "x"),
    ("config", lambda m: m.config, Config(5)),
]


@pytest.mark.parametrize(("path", "read", "value"), PLACES)
def test_one_place(path: str, read: Any, value: Any) -> None:
    """The place holds the new value, static or not; everything else is what it was."""
    before, expected = model(), model()
    made = lw.update(before, {path: value})
    assert type(made) is Model
    assert read(made) == value
    assert before == expected
    for other, look, _ in PLACES:
        if not (path.startswith(other) or other.startswith(path) or path[:8] == other[:8]):
            assert look(made) is look(before)


@given(pytrees(), st.data())
def test_a_changed_tree_differs_in_its_leaf(tree: Any, data: st.DataObject) -> None:
    """Of any drawn tree one leaf is exchanged: structure and all other leaves stay."""
    paths = [path.removeprefix("args[0]") for path in lw.signature(tree).leaves]
    if not paths:
        return
    at = data.draw(st.integers(0, len(paths) - 1))
    kept, treedef = jax.tree.flatten(tree)
    leaves, structure = jax.tree.flatten(lw.update(tree, {paths[at]: "new"}))
    assert structure == treedef
    assert leaves[at] == "new"
    assert all(a is b for place, (a, b) in enumerate(zip(leaves, kept, strict=True)) if place != at)
    assert all(a is b for a, b in zip(jax.tree.leaves(tree), kept, strict=True))


def test_a_constructor_sees_all_changes() -> None:
    """Two changes that only together are valid are made together, and validated."""

    @lw.pytree
    class Range:
        low: Any
        high: Any

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low above high")

    tree = {"range": Range(1, 2)}
    assert lw.update(tree, {"['range'].low": 5, "['range'].high": 6})["range"] == Range(5, 6)
    with pytest.raises(ValueError, match="low above high") as caught:
        lw.update(tree, {"['range'].low": 5})
    assert caught.value.__notes__ == ["in lw.update, where dict['range'] is rebuilt"]


def test_converters_checks_and_statics() -> None:
    """New values are converted and checked, and statics validated, as `lw.replace` does."""

    @lw.pytree
    class Checked:
        x: Any = lw.field(converter=float)
        n: int = lw.static_field(default=1, validator=lambda n: n > 0)
        t: Any = lw.static_field(default=(), freeze=True)

    tree = [Checked(1)]
    made = lw.update(tree, {"[0].x": 3, "[0].t": [1, 2]})[0]
    assert (made.x, type(made.x), made.t) == (3.0, float, (1, 2))
    with pytest.raises(lw.errors.FieldCheckError, match=r"Checked\.n"):
        lw.update(tree, {"[0].n": 0})
    with pytest.raises(lw.errors.StaticFieldError, match=r"Layer\.act"):
        lw.update(model(), {"encoder.act": ["relu"]})
    with pytest.raises(lw.errors.StaticFieldError, match=r"Model\.config"):
        lw.update(model(), {"config.depth": jnp.ones(2)})


def test_fields_that_no_constructor_takes() -> None:
    """A field with init=False is exchanged; where it is not, the constructor computes it."""

    @lw.pytree
    class Derived:
        x: Any
        twice: Any = lw.field(init=False)
        inner: Any = lw.field(init=False)

        def __post_init__(self) -> None:
            self.twice = self.x * 2
            self.inner = [Layer(1.0)]

    tree = Derived(1.0)
    assert lw.update(tree, {"x": 3.0}).twice == 6.0
    made = lw.update(tree, {"inner[0].w": 5.0})
    assert (made.inner[0].w, made.twice, made.x) == (5.0, 2.0, 1.0)


def test_init_only_arguments() -> None:
    """A constructor that requires more than its fields cannot run again: the fields are set."""

    @lw.pytree
    class Seeded:
        x: Any
        seed: dataclasses.InitVar[int]

        def __post_init__(self, seed: int) -> None:
            self.x = self.x + seed

    @lw.pytree
    class Defaulted(Seeded):
        seed: dataclasses.InitVar[int] = 0

    for cls in (Seeded, Defaulted):
        assert lw.update(cls(1, 10), {"x": 5}).x == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoder.actt": 1}, ["'encoder.actt' leads nowhere:", "a Layer", "'encoder.act'"]),
        ({"layers[2].w": 1}, ["from 'layers[2]' on", "[0] to [1]", "nearest: 'layers[1].w'"]),
        ({"layers[-3].w": 1}, ["Model.layers is a list", "[0] to [1]"]),
        ({"config.table['c']": 1}, ["it has ['a b'], [3]", "config.table['a b']"]),
        ({"config.depth.x": 1}, ["Model.config.depth is 2 (int), which has no parts"]),
        ({"config.sizes.x": 1}, ["Model.config.sizes is a tuple: it has [0] to [1]"]),
        ({"act": 1}, ["nearest: 'encoder.act'"]),
        ({(jax.tree_util.GetAttrKey("encodr"),): 1}, ["'encodr' leads nowhere", "'encoder'"]),
    ],
)
def test_a_path_that_leads_nowhere(changes: Any, words: list[str]) -> None:
    """The message says where the path went wrong, what is there, and what is nearest."""
    with pytest.raises(lw.errors.PathError) as caught:
        lw.update(model(), changes)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize("array", [np.ones(2), jnp.ones(2)])
def test_elements_of_an_array(array: Any) -> None:
    """An array has no parts: the message has JAX's own way to change elements."""
    with pytest.raises(lw.errors.PathError, match=r"no parts; .*`x.at\[0\].set"):
        lw.update({"x": array}, {"['x'][0]": 1.0})


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": 1, "encoder.w": 2},
        {"layers[0].w": 1, "layers[0]": 2},
        {"layers[-1].w": 1, "layers[1].w": 2},
        {"config.table['a b']": 1, 'config.table["a b"]': 2},
        {"encoder.w": 1, (jax.tree_util.GetAttrKey("encoder"), jax.tree_util.GetAttrKey("w")): 2},
        {"": 1, "encoder": 2},
    ],
)
def test_changes_that_meet(changes: Any) -> None:
    """Two changes of one place, or one inside the other, are refused by both paths."""
    with pytest.raises(lw.errors.TreeError, match="overlap") as caught:
        lw.update(model(), changes)
    texts = [repr(key) for key in changes if isinstance(key, str)]
    assert all(text in str(caught.value) for text in texts)


def test_what_is_not_a_change() -> None:
    """Patterns, and anything but a mapping from paths, are refused."""
    with pytest.raises(lw.errors.PathError, match="not a pattern"):
        lw.update(model(), {"layers[*].w": 1})
    for changes in (None, [("encoder.w", 1)], "encoder.w"):
        with pytest.raises(TypeError, match="takes a mapping from paths to values"):
            lw.update(model(), changes)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a path is a string"):
        lw.update(model(), {0: 1})  # type: ignore[type-var]


def test_the_tree_itself() -> None:
    """The empty path is the tree, also as JAX's key path of a tree that is one leaf."""
    assert lw.update(1, {(): 2}) == 2
    assert lw.update(model(), {"": 2}) == 2  # type: ignore[comparison-overlap]
    with pytest.raises(lw.errors.PathError, match="which has no parts"):
        lw.update(1, {"x": 2})


def test_mappings_keep_what_they_are() -> None:
    """Kind, order and default factory of a mapping stay, and it is not changed in place."""
    for tree in (
        {"b": 1, "a": 2},
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(list, b=1, a=2),
        lw.FrozenMapping(b=1, a=2),
    ):
        made: Any = lw.update(tree, {"['a']": 3})
        assert type(made) is type(tree)
        assert list(made.items()) == [("b", 1), ("a", 3)]
        assert tree["a"] == 2
        assert getattr(made, "default_factory", None) is getattr(tree, "default_factory", None)
    factory = lw.update(collections.defaultdict(list), {"default_factory": dict}).default_factory
    assert factory is dict


def test_partials() -> None:
    """Function, arguments and keywords of partials are parts, of JAX's own, too."""
    for kind in (functools.partial, jax.tree_util.Partial):
        held = kind(max, (1, 2), key=len)
        made = lw.update([held], {"[0].args[0][1]": 3, "[0].keywords['key']": abs})[0]
        assert (type(made), made.args, made.keywords) == (kind, ((1, 3),), {"key": abs})
        assert lw.update(held, {"func": min}).func is min


class Color(enum.Enum):
    RED = Config(1)


@dataclasses.dataclass(frozen=True)
class Handmade:
    a: int
    b: int = 0

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "a", int(text))
        object.__setattr__(self, "b", 0)

    @functools.cached_property
    def twice(self) -> int:
        return self.a * 2


@attrs.frozen(cache_hash=True)
class Attrs:
    _hidden: int
    shown: int = attrs.field(default=2, validator=attrs.validators.lt(10))


def test_static_values_of_every_kind() -> None:
    """Frozen dataclasses and attrs classes are rebuilt, with nothing kept of the old."""
    handmade = Handmade("3")
    assert handmade.twice == 6
    changed = lw.update(handmade, {"a": 4})
    assert (changed.a, changed.b, changed.twice) == (4, 0, 8)
    old = Attrs(1)
    assert hash(old)
    made = lw.update(old, {"_hidden": 5, "shown": 3})
    assert made == Attrs(5, 3)
    assert hash(made) == hash(Attrs(5, 3))
    with pytest.raises(ValueError, match="must be < 10"):
        lw.update(old, {"shown": 30})
    for whole in (Color.RED, "text", 1, int, abs, frozenset({1})):
        with pytest.raises(lw.errors.PathError, match="which has no parts"):
            lw.update([whole], {"[0].a": 1})


def test_a_class_is_not_an_instance() -> None:
    """A class has fields as well: it came back as it was."""
    with pytest.raises(TypeError, match="takes an instance, got the class Layer"):
        lw.replace(Layer, w=1.0)
    with pytest.raises(TypeError, match=r"instance of a pytree class or dataclass, got 3 \(int\)"):
        lw.replace(3, w=1.0)


def test_registered_classes() -> None:
    """Classes that JAX or `lw.register` knows are changed, and their statics validated."""

    class Foreign:
        def __init__(self, both: Any) -> None:
            self.x = self.unit = both

    lw.register(Foreign, dynamic=["x"], static=["unit"])
    made = lw.update([Foreign(1)], {"[0].unit": "m"})[0]
    assert (made.x, made.unit) == (1, "m")
    with pytest.raises(lw.errors.StaticFieldError, match=r"Foreign\.unit"):
        lw.update([Foreign(1)], {"[0].unit": ["m"]})

    @functools.partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["n"])
    @dataclasses.dataclass
    class Plain:
        x: Any
        n: int

        def __post_init__(self) -> None:
            assert self.n != 0, "n is 0"

    plain = Plain(1, 2)
    assert lw.update(plain, {"x": 3, "n": 4}) == Plain(3, 4)
    assert plain == Plain(1, 2)
    with pytest.raises(AssertionError, match="n is 0"):
        lw.update(plain, {"n": 0})

    @jax.tree_util.register_pytree_with_keys_class
    class Custom:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

        def tree_flatten_with_keys(self) -> Any:
            keys = map(jax.tree_util.DictKey, "xy")
            return list(zip(keys, (self.x, self.y), strict=True)), None

        @classmethod
        def tree_unflatten(cls, _: None, children: Any) -> "Custom":
            return cls(*children)

    assert lw.update(Custom(1, [2]), {"['y'][0]": 3}).y == [3]


class Bag:
    """A class whose attributes vary, as those of `argparse.Namespace`, and so does their order."""

    def __init__(self, *, step: int = 1, **attributes: Any) -> None:
        self.__dict__ = {**attributes, "step": step}

    def flatten(self) -> Any:
        *names, _ = vars(self)
        names = names[:: self.step]
        return [vars(self)[name] for name in names], (tuple(names), self.step)

    @staticmethod
    def unflatten(aux: Any, children: Any) -> "Bag":
        names, step = aux
        return Bag(step=step, **dict([*zip(names, children, strict=True)][::step]))


jax.tree_util.register_pytree_node(Bag, Bag.flatten, Bag.unflatten)
NAMES: Final = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
BAGS: Final = st.builds(
    lambda names, step: Bag(step=step, **dict.fromkeys(names, 1.0)), NAMES, st.sampled_from([1, -1])
)


@given(st.lists(BAGS, min_size=2, max_size=4))
def test_names_are_those_of_the_instance(bags: list[Bag]) -> None:
    """Not those of another instance of a class that was registered without names."""
    for bag in bags:
        for name in vars(bag).keys() - {"step"}:
            changed = lw.update(bag, {name: 9.0})
            assert vars(changed) == {**vars(bag), name: 9.0}
            assert [reason.path for reason in lw.diff(bag, changed, values=True)] == [name]
            assert vars(lw.mask(bag, lw.select(name)))[name] is True
        with pytest.raises(lw.errors.PathError, match="leads nowhere"):
            lw.update(bag, {min(set("abcd") - vars(bag).keys()): 9.0})


@lw.pytree
class Random:
    w: jax.Array
    n: int = lw.static_field(converter=int, validator=lambda n: n > 0)
    runs: int = lw.static_field(default=0)

    def __init__(self, key: jax.Array, n: int) -> None:
        self.w = jax.random.normal(key, (n,))
        self.n = n
        self.runs = 1


RANDOM = Random(jax.random.key(0), 3)


def test_fields_are_exchanged() -> None:
    """Fields change, converted and validated, although the constructor takes other arguments."""
    changed = lw.replace(RANDOM, w=jnp.ones(2), n=4.0, runs=5)
    assert (changed.w.shape, changed.n, changed.runs) == ((2,), 4, 5)
    assert jax.tree.structure(lw.replace(changed, n=3, runs=1)) == jax.tree.structure(RANDOM)
    assert lw.replace(RANDOM) == RANDOM
    with pytest.raises(lw.errors.FieldCheckError, match=r"Random\.n"):
        lw.replace(RANDOM, n=-1)
    with pytest.raises(lw.errors.StaticFieldError, match=r"Random\.runs"):
        lw.replace(RANDOM, runs=[1])
    with pytest.raises(TypeError, match=r"no field 'rusn' \(did you mean 'runs'\?\)"):
        lw.replace(RANDOM, rusn=1)
