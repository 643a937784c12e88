"""Random calls of a jitted function, described, and random edits of one thing in them.

A call is a recipe, built afresh each time, so that nothing is shared between two calls but
what a recipe means to share. An edit knows the paths that it touches.
"""

import contextlib
import dataclasses
import enum
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import jax_dataclasses as jdc
import numpy as np
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import leafwise as lw


@lw.pytree
class Layer:
    w: Any
    b: Any
    n: Any = lw.static_field(default=1)
    act: Any = lw.static_field(default=None)


@lw.pytree(many_statics=True)
class Many(Layer):
    pass


@flax.struct.dataclass
class Flax:
    w: Any
    b: Any
    n: Any = flax.struct.field(pytree_node=False, default=1)
    act: Any = flax.struct.field(pytree_node=False, default=None)


class Eqx(eqx.Module):
    w: Any
    b: Any
    n: Any = eqx.field(static=True, default=1)
    act: Any = eqx.field(static=True, default=None)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Plain:
    w: Any
    b: Any
    n: Any = dataclasses.field(metadata={"static": True}, default=1)
    act: Any = dataclasses.field(metadata={"static": True}, default=None)


@jdc.pytree_dataclass
class Jdc:
    w: Any
    b: Any
    n: jdc.Static[Any] = 1
    act: jdc.Static[Any] = None


Pair = namedtuple("Pair", ["w", "b"])  # noqa: PYI024  # as users write it


class Mode(enum.IntEnum):
    ONE = 1


class Whole(int):
    pass


def relu(x: Any) -> Any:
    return x


class Thing:
    pass


THING = Thing()
NAN = float("nan")

CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (Layer, Many, Flax, Eqx, Plain, Jdc)}
# No NumPy scalar: it does not compare with a tuple, and JAX's tables now and then compare a key
# with one that has nothing to do with it.
STATICS: dict[str, Callable[[], Any]] = {
    "1": lambda: 1,
    "True": lambda: True,
    "1.0": lambda: 1.0,
    "Mode": lambda: Mode.ONE,
    "2": lambda: 2,
    "0.0": lambda: 0.0,
    "-0.0": lambda: -0.0,
    "nan": lambda: NAN,
    "fresh nan": lambda: float("nan"),
    "a": lambda: "a",
    "None": lambda: None,
    "(1, 2)": lambda: (1, 2),
    "(1.0, 2)": lambda: (1.0, 2),
    "relu": lambda: relu,
    "lambda": lambda: lambda x: x,
    "thing": lambda: THING,
    "fresh thing": lambda: Thing(),
    "float": lambda: float,
}
SHAPES: dict[str, tuple[int, ...]] = {"()": (), "8": (8,), "16": (16,), "8,8": (8, 8)}
DTYPES = ("float32", "int32", "bool", "bfloat16", "float64", "int64", "complex64")
PLACES = ("free", *["cpu0", "cpu1"] * 2, "replicated", "split", "square", "explicit", "reversed")


@contextlib.contextmanager
def context(name: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if name == "x64":
            stack.enter_context(jax.enable_x64(True))
        elif name == "precision":
            stack.enter_context(jax.default_matmul_precision("highest"))
        elif name == "device":
            stack.enter_context(jax.default_device(jax.devices()[2]))
        elif name == "promotion":
            stack.enter_context(jax.numpy_rank_promotion("raise"))
        elif name == "mesh":
            stack.enter_context(jax.set_mesh(mesh((8,), ("i",))))
        elif name == "nans":
            stack.enter_context(jax.debug_nans(True))
        yield


CONTEXTS = ("", "x64", "precision", "device", "promotion", "mesh", "nans")


def mesh(sizes: tuple[int, ...], names: tuple[str, ...], axis_type: Any = AxisType.Auto) -> Any:
    devices = np.array(jax.devices()).reshape(sizes)
    return jax.sharding.Mesh(devices, names, axis_types=(axis_type,) * len(names))


def place(array: Any, where: str) -> Any:
    if where == "free":
        return array
    if where in ("cpu0", "cpu1"):
        return jax.device_put(array, jax.devices()[int(where[-1])])
    spec = PartitionSpec("i") if where in ("split", "explicit", "reversed") else PartitionSpec()
    if where == "square":
        there = NamedSharding(mesh((4, 2), ("i", "j")), PartitionSpec(("i", "j")))
    elif where == "explicit":
        there = NamedSharding(mesh((8,), ("i",), AxisType.Explicit), spec)
    elif where == "reversed":
        there = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[::-1]), ("i",)), spec)
    else:
        there = NamedSharding(mesh((8,), ("i",)), spec)
    return jax.device_put(array, there)


@dataclasses.dataclass(frozen=True)
class LeafRecipe:
    form: str  # jax, numpy, scalar (NumPy's), python, subclass, key, abstract, text
    shape: str = "8"
    dtype: str = "float32"
    weak: bool = False
    where: str = "free"

    def build(self) -> Any:
        shape = SHAPES[self.shape]
        if self.form == "python":
            return {"f": 1.5, "i": 3, "b": True, "c": 1j}[np.dtype(_plain(self.dtype)).kind]
        if self.form == "subclass":
            return Whole(3)
        if self.form == "scalar":
            return np.dtype(_numpy(self.dtype)).type(1)
        if self.form == "key":
            return place(jax.random.key(0), self.where if self.where[0] != "s" else "free")
        if self.form == "abstract":
            return jax.ShapeDtypeStruct(shape, np.float32)
        if self.form == "text":
            return "text"
        content = np.ones(shape, _numpy(self.dtype))
        if self.form == "numpy":
            return content
        # A Python scalar's weak type stays.
        array = jnp.broadcast_to(jnp.asarray(1.0), shape) if self.weak else jnp.asarray(content)
        splits = self.where in ("split", "square", "explicit", "reversed")
        return place(array, "replicated" if splits and not shape else self.where)


def _plain(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype


def _numpy(dtype: str) -> Any:
    return jnp.bfloat16 if dtype == "bfloat16" else dtype


@dataclasses.dataclass(frozen=True)
class NodeRecipe:
    kind: str  # a container, "None", or a name of CLASSES
    children: tuple[Any, ...] = ()
    statics: tuple[str, str] = ("1", "None")
    keys: tuple[str, ...] = ()

    def build(self) -> Any:
        built = [child.build() for child in self.children]
        kind = self.kind
        if kind == "None":
            return None
        if kind == "partial":
            return jax.tree_util.Partial(STATICS[self.statics[0]](), *built)
        if kind in ("tuple", "list"):
            return tuple(built) if kind == "tuple" else built
        if kind == "dict":
            return dict(zip(self.keys, built, strict=True))
        if kind == "ordered":
            return OrderedDict(zip(self.keys, built, strict=True))
        if kind == "pair":
            return Pair(*built)
        return CLASSES[kind](*built, *(STATICS[name]() for name in self.statics))

    @property
    def steps(self) -> list[str]:
        if self.kind in ("tuple", "list"):
            return [f"[{place}]" for place in range(len(self.children))]
        if self.kind in ("dict", "ordered"):
            return [f"[{key!r}]" for key in self.keys]
        if self.kind == "partial":
            return [f".args[{place}]" for place in range(len(self.children))]
        return [".w", ".b"][: len(self.children)]


@dataclasses.dataclass(frozen=True)
class CallRecipe:
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    static: str | None = None  # the first argument, if there is one
    context: str = ""

    def build(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        first = () if self.static is None else (STATICS[self.static](),)
        args = (*first, *(arg.build() for arg in self.args))
        return args, {name: value.build() for name, value in self.kwargs}

    @property
    def offset(self) -> int:
        return 0 if self.static is None else 1


# ------------------------------------------------------------------------- strategies


def leaf_recipes(where: st.SearchStrategy[str]) -> st.SearchStrategy[LeafRecipe]:
    shape, dtype = st.sampled_from(sorted(SHAPES)), st.sampled_from(DTYPES)
    jax_array = st.builds(LeafRecipe, st.just("jax"), shape, dtype, st.booleans(), where)
    return st.one_of(
        jax_array,
        jax_array,
        jax_array,
        st.builds(LeafRecipe, st.just("numpy"), shape, dtype),
        st.builds(LeafRecipe, st.just("scalar"), st.just("()"), dtype),
        st.builds(LeafRecipe, st.just("python"), st.just("()"), dtype),
        st.builds(LeafRecipe, st.sampled_from(["subclass", "key"]), st.just("()")),
    )


statics = st.sampled_from(sorted(STATICS))
KEYS = ("a", "b", "c")


def _grow(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.one_of(st.lists(parts, max_size=3), st.lists(parts, min_size=1, max_size=3)).map(
        tuple
    )
    two = st.tuples(parts, parts)
    pairs = st.tuples(statics, statics)
    return st.one_of(
        st.builds(NodeRecipe, st.sampled_from(["tuple", "list"]), many),
        many.map(lambda items: NodeRecipe("dict", items, keys=KEYS[: len(items)])),
        many.map(lambda items: NodeRecipe("ordered", items, keys=KEYS[: len(items)])),
        st.builds(NodeRecipe, st.just("pair"), two),
        st.builds(NodeRecipe, st.sampled_from(sorted(CLASSES)), two, pairs),
        st.builds(NodeRecipe, st.sampled_from(sorted(CLASSES)), two, pairs),
        st.builds(NodeRecipe, st.just("partial"), many, st.tuples(st.just("relu"), statics)),
        st.just(NodeRecipe("None")),
    )


@st.composite
def calls(draw: st.DrawFn) -> CallRecipe:
    """Draw a call that JAX takes."""
    group = draw(st.sampled_from([("free",), ("free", "cpu0"), ("free", "replicated", "split")]))
    trees = st.recursive(leaf_recipes(st.sampled_from(group)), _grow, max_leaves=5)
    args = draw(st.lists(trees, min_size=1, max_size=2).map(tuple))
    kwargs = draw(st.lists(st.sampled_from("uvw"), unique=True, max_size=2))
    static = draw(st.one_of(st.none(), st.none(), statics))
    setting = draw(st.sampled_from(("", "", "", "", *CONTEXTS)))
    return CallRecipe(args, tuple((name, draw(trees)) for name in kwargs), static, setting)


def spots(call: CallRecipe) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the path of each part of a call, and how to get there."""
    found: list[tuple[str, tuple[Any, ...]]] = []

    def walk(recipe: Any, path: str, way: tuple[Any, ...]) -> None:
        found.append((path, way))
        if isinstance(recipe, NodeRecipe):
            for place, (step, child) in enumerate(zip(recipe.steps, recipe.children, strict=True)):
                walk(child, path + step, (*way, place))

    for place, arg in enumerate(call.args):
        walk(arg, f"args[{place + call.offset}]", ("args", place))
    for place, (name, value) in enumerate(call.kwargs):
        walk(value, f"kwargs[{name!r}]", ("kwargs", place))
    return found


def at(call: CallRecipe, way: tuple[Any, ...]) -> Any:
    group, place, *rest = way
    recipe = call.args[place] if group == "args" else call.kwargs[place][1]
    for step in rest:
        recipe = recipe.children[step]
    return recipe


def put(call: CallRecipe, way: tuple[Any, ...], new: Any) -> CallRecipe:
    group, place, *rest = way

    def inside(recipe: Any, steps: list[Any]) -> Any:
        if not steps:
            return new
        first, *others = steps
        children = list(recipe.children)
        children[first] = inside(children[first], others)
        return dataclasses.replace(recipe, children=tuple(children))

    if group == "args":
        args = list(call.args)
        args[place] = inside(args[place], rest)
        return dataclasses.replace(call, args=tuple(args))
    kwargs = list(call.kwargs)
    kwargs[place] = (kwargs[place][0], inside(kwargs[place][1], rest))
    return dataclasses.replace(call, kwargs=tuple(kwargs))


@st.composite
def edits(draw: st.DrawFn) -> tuple[CallRecipe, CallRecipe, set[str]]:
    """Draw a call, the call with one thing changed, and the paths that this concerns."""
    call = draw(calls())
    kind = draw(st.sampled_from(["same", "context", "static", "place", *["part"] * 6]))
    if kind == "same":
        return call, call, set()
    if kind == "context":
        other = draw(st.sampled_from([name for name in CONTEXTS if name != call.context]))
        return call, dataclasses.replace(call, context=other), {"config"}
    if kind == "static" and call.static is not None:
        return call, dataclasses.replace(call, static=draw(statics)), {"args[0]"}
    every = spots(call)
    leaves = [spot for spot in every if isinstance(at(call, spot[1]), LeafRecipe)]
    arrays = [spot for spot in leaves if at(call, spot[1]).form == "jax"]
    if kind == "place" and arrays:
        path, way = draw(st.sampled_from(arrays))
        old = at(call, way)
        where = draw(st.sampled_from([place for place in PLACES if place != old.where]))
        return call, put(call, way, dataclasses.replace(old, where=where)), {path}
    path, way = draw(st.sampled_from([*every, *leaves, *leaves]))
    old = at(call, way)
    new, paths = draw(
        leaf_edits(old, path) if isinstance(old, LeafRecipe) else node_edits(old, path)
    )
    return call, put(call, way, new), paths


@st.composite
def histories(draw: st.DrawFn) -> list[CallRecipe]:
    """Draw calls, each a change of an earlier one, without a change of configuration."""
    history = [dataclasses.replace(draw(calls()), context="")]
    for _ in range(draw(st.integers(1, 4))):
        history.append(_changed(draw, draw(st.sampled_from(history))))
    return history


def _changed(draw: st.DrawFn, call: CallRecipe) -> CallRecipe:
    every = spots(call)
    path, way = draw(st.sampled_from(every))
    old = at(call, way)
    new, _ = draw(leaf_edits(old, path) if isinstance(old, LeafRecipe) else node_edits(old, path))
    return put(call, way, new)


@st.composite
def leaf_edits(draw: st.DrawFn, old: LeafRecipe, path: str) -> tuple[Any, set[str]]:
    """Draw a leaf with one aspect changed."""
    aspects = ["form", "form", "shape", "dtype", "weak", *["where"] * 4, "none", "odd"]
    aspect = draw(st.sampled_from(aspects if old.form == "jax" else ["form", *aspects[:4]]))
    if aspect == "none":
        return NodeRecipe("None"), {path}
    if aspect == "odd":
        return LeafRecipe(draw(st.sampled_from(["abstract", "text", "key", "subclass"]))), {path}
    values = {
        "form": ["jax", "numpy", "scalar", "python"],
        "shape": sorted(SHAPES),
        "dtype": list(DTYPES),
        "weak": [not old.weak],
        "where": list(PLACES),
    }
    value = draw(st.sampled_from(values[aspect]).filter(lambda each: each != getattr(old, aspect)))
    return dataclasses.replace(old, **{aspect: value}), {path}


@st.composite
def node_edits(draw: st.DrawFn, old: NodeRecipe, path: str) -> tuple[Any, set[str]]:
    """Draw a node with one aspect changed."""
    choices = ["leaf"]
    if old.kind in CLASSES:
        choices += ["n", "n", "act", "class"]
    if old.kind in ("tuple", "list"):
        choices += ["kind", "length"]
    if old.kind in ("dict", "ordered") and old.keys:
        choices += ["key", "drop"]
    if old.kind == "partial":
        choices += ["func"]
    choice = draw(st.sampled_from(choices))
    if choice == "leaf":
        return LeafRecipe("jax"), {path}
    if choice in ("n", "act"):
        place = 0 if choice == "n" else 1
        values = list(old.statics)
        values[place] = draw(statics)
        return dataclasses.replace(old, statics=tuple(values)), {f"{path}.{choice}"}
    if choice == "func":
        return dataclasses.replace(old, statics=("lambda", "1")), {f"{path}.func"}
    if choice == "class":
        return dataclasses.replace(old, kind=draw(st.sampled_from(sorted(CLASSES)))), {path}
    if choice == "kind":
        other = {"tuple": "list", "list": "tuple"}[old.kind]
        return dataclasses.replace(old, kind=other), {path}
    if choice == "length":
        return dataclasses.replace(old, children=(*old.children, LeafRecipe("jax"))), {path}
    if choice == "key":
        keys = (*old.keys[:-1], "z")
        gone, come = f"{path}[{old.keys[-1]!r}]", f"{path}['z']"
        return dataclasses.replace(old, keys=keys), {gone, come}
    shorter = dataclasses.replace(old, keys=old.keys[:-1], children=old.children[:-1])
    return shorter, {f"{path}[{old.keys[-1]!r}]"}


FRESH = frozenset({"lambda", "fresh thing", "fresh nan"})
"""Statics that are others in each call."""


def fresh_paths(call: CallRecipe) -> set[str]:
    """Return the paths of statics that no two calls share."""
    found = {"args[0]"} if call.static in FRESH else set()
    for path, way in spots(call):
        recipe = at(call, way)
        if isinstance(recipe, NodeRecipe) and recipe.kind in CLASSES:
            names = zip(("n", "act"), recipe.statics, strict=True)
            found |= {f"{path}.{name}" for name, value in names if value in FRESH}
    return found
