"""Random calls of a jitted function, described, and random edits of one thing in them.

A call is a recipe, built afresh each time, so that nothing is shared between two calls but
what a recipe means to share. An edit knows the paths that it touches.
"""

import contextlib
import dataclasses
import enum
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tests.kit.specimens import Equinox, Flax, Jdc, Pair, Plain, Slotted

import leafwise as lw


@lw.pytree(many_statics=True)
class Many(Slotted):
    pass


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

CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (Slotted, Many, Flax, Equinox, Plain, Jdc)}
FRESH = ("lambda x: x", "Thing()", "float('nan')")
"""Statics that are others in each call."""
# As code. No NumPy scalar: it does not compare with a tuple, and JAX's tables now and then compare
# a key with one that has nothing to do with it.
STATICS = (
    *("1", "True", "1.0", "Mode.ONE", "2", "0.0", "-0.0", "NAN", "'a'", "None", "(1, 2)"),
    *("(1.0, 2)", "relu", "THING", "float", *FRESH),
)
SHAPES: dict[str, tuple[int, ...]] = {"()": (), "8": (8,), "16": (16,), "8,8": (8, 8)}
DTYPES = ("float32", "int32", "bool", "bfloat16", "float64", "int64", "complex64")
CONTEXTS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "": contextlib.nullcontext,
    "x64": lambda: jax.enable_x64(True),
    "precision": lambda: jax.default_matmul_precision("highest"),
    "device": lambda: jax.default_device(jax.devices()[2]),
    "promotion": lambda: jax.numpy_rank_promotion("raise"),
    "mesh": lambda: jax.set_mesh(mesh(8)),
    "nans": lambda: jax.debug_nans(True),
}


def mesh(*sizes: int, axis_type: Any = AxisType.Auto, step: int = 1) -> Any:
    devices = np.array(jax.devices()[::step]).reshape(sizes)
    return jax.sharding.Mesh(
        devices, ("i", "j")[: len(sizes)], axis_types=(axis_type,) * len(sizes)
    )


SPLIT = PartitionSpec("i")
SHARDINGS: dict[str, Callable[[], Any]] = {
    "free": lambda: None,
    "cpu0": lambda: jax.devices()[0],
    "cpu1": lambda: jax.devices()[1],
    "replicated": lambda: NamedSharding(mesh(8), PartitionSpec()),
    "split": lambda: NamedSharding(mesh(8), SPLIT),
    "square": lambda: NamedSharding(mesh(4, 2), PartitionSpec(("i", "j"))),
    "explicit": lambda: NamedSharding(mesh(8, axis_type=AxisType.Explicit), SPLIT),
    "reversed": lambda: NamedSharding(mesh(8, step=-1), SPLIT),
}
WHOLE = ("free", "cpu0", "cpu1", "replicated")
"""The shardings of what has no axis."""
FORMS: dict[str, Callable[["LeafRecipe"], Any]] = {
    "jax": lambda leaf: leaf.array(),
    "numpy": lambda leaf: np.ones(SHAPES[leaf.shape], leaf.dtype),
    "scalar": lambda leaf: np.dtype(leaf.dtype).type(1),
    "python": lambda leaf: {"i": 3, "b": True, "c": 1j}.get(np.dtype(leaf.dtype).kind, 1.5),
    "subclass": lambda _: Whole(3),
    "key": lambda leaf: leaf.placed(jax.random.key(0)),
    "abstract": lambda leaf: jax.ShapeDtypeStruct(SHAPES[leaf.shape], np.float32),
    "text": lambda _: "text",
}


@dataclasses.dataclass(frozen=True)
class LeafRecipe:
    form: str
    shape: str = "8"
    dtype: str = "float32"
    weak: bool = False
    where: str = "free"

    def build(self) -> Any:
        return FORMS[self.form](self)

    def array(self) -> Any:
        if self.weak:  # as a Python scalar's array is
            return self.placed(jnp.broadcast_to(jnp.asarray(1.0), SHAPES[self.shape]))
        return self.placed(jnp.asarray(FORMS["numpy"](self)))

    def placed(self, array: Any) -> Any:
        where = self.where if array.ndim or self.where in WHOLE else "replicated"
        return array if where == "free" else jax.device_put(array, SHARDINGS[where]())


def evaluated(code: str) -> Any:
    return eval(code, globals())  # noqa: S307  # one of those above


@dataclasses.dataclass(frozen=True)
class NodeRecipe:
    kind: str  # a container, "None", or a name of CLASSES
    children: tuple[Any, ...] = ()
    static: str | None = "1"  # of a class, or the function of a partial
    keys: tuple[str, ...] = ()

    def build(self) -> Any:
        parts = [child.build() for child in self.children]
        if self.kind in CLASSES:
            return CLASSES[self.kind](*parts, evaluated(self.static))
        return {
            "None": lambda: None,
            "partial": lambda: jax.tree_util.Partial(evaluated(self.static), *parts),
            "tuple": lambda: tuple(parts),
            "list": lambda: parts,
            "dict": lambda: dict(zip(self.keys, parts, strict=True)),
            "ordered": lambda: OrderedDict(zip(self.keys, parts, strict=True)),
            "pair": lambda: Pair(*parts),
        }[self.kind]()

    @property
    def steps(self) -> list[str]:
        if self.kind in ("dict", "ordered"):
            return [f"[{key!r}]" for key in self.keys]
        if self.kind in ("tuple", "list", "partial"):
            prefix = ".args" if self.kind == "partial" else ""
            return [f"{prefix}[{index}]" for index in range(len(self.children))]
        return [".w", ".b"][: len(self.children)]


@dataclasses.dataclass(frozen=True)
class CallRecipe(NodeRecipe):
    """A call, whose children are its arguments; the last ones have names."""

    kind: str = "call"
    static: str | None = None  # that of the first argument, if there is one
    context: str = ""

    def build(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        first = () if self.static is None else (evaluated(self.static),)
        parts = [child.build() for child in self.children]
        count = len(parts) - len(self.keys)
        return (*first, *parts[:count]), dict(zip(self.keys, parts[count:], strict=True))

    @property
    def offset(self) -> int:
        return 0 if self.static is None else 1

    @property
    def steps(self) -> list[str]:
        count = len(self.children) - len(self.keys)
        named = [f"kwargs[{key!r}]" for key in self.keys]
        return [*(f"args[{index + self.offset}]" for index in range(count)), *named]


def leaf_recipes(where: st.SearchStrategy[str]) -> st.SearchStrategy[LeafRecipe]:
    shape, dtype = st.sampled_from(sorted(SHAPES)), st.sampled_from(DTYPES)
    jax_array = st.builds(LeafRecipe, st.just("jax"), shape, dtype, st.booleans(), where)
    return st.one_of(
        jax_array,
        jax_array,
        jax_array,
        st.builds(LeafRecipe, st.just("numpy"), shape, dtype),
        st.builds(LeafRecipe, st.sampled_from(["scalar", "python"]), st.just("()"), dtype),
        st.builds(LeafRecipe, st.sampled_from(["subclass", "key"]), st.just("()")),
    )


statics = st.sampled_from(sorted(STATICS))


def _grow(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(parts, max_size=3).map(tuple)
    classes, one = st.sampled_from(sorted(CLASSES)), st.tuples(parts)
    nodes = st.builds(NodeRecipe, classes, one, statics)
    named = st.sampled_from(["dict", "ordered"])
    return st.one_of(
        nodes,
        nodes,
        st.builds(NodeRecipe, st.sampled_from(["tuple", "list"]), many),
        st.builds(
            lambda kind, items: NodeRecipe(kind, items, keys=KEYS[: len(items)]), named, many
        ),
        st.builds(NodeRecipe, st.just("pair"), st.tuples(parts, parts)),
        st.builds(NodeRecipe, st.just("partial"), many, st.just("relu")),
        st.just(NodeRecipe("None")),
    )


KEYS = ("a", "b", "c")


@st.composite
def calls(draw: st.DrawFn) -> CallRecipe:
    group = draw(st.sampled_from([("free",), ("free", "cpu0"), ("free", "replicated", "split")]))
    trees = st.recursive(leaf_recipes(st.sampled_from(group)), _grow, max_leaves=5)
    names = draw(st.lists(st.sampled_from("uvw"), unique=True, max_size=2).map(tuple))
    number = draw(st.integers(1, 2)) + len(names)
    return CallRecipe(
        children=tuple(draw(trees) for _ in range(number)),
        keys=names,
        static=draw(st.one_of(st.none(), st.none(), statics)),
        context=draw(st.sampled_from(("", "", "", "", *CONTEXTS))),
    )


def spots(recipe: Any, path: str = "", way: tuple[int, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield each part inside a recipe: its path, the way to it, and the part."""
    if isinstance(recipe, NodeRecipe):
        for index, (step, child) in enumerate(zip(recipe.steps, recipe.children, strict=True)):
            yield path + step, (*way, index), child
            yield from spots(child, path + step, (*way, index))


def put(recipe: Any, way: tuple[int, ...], new: Any) -> Any:
    if not way:
        return new
    children = list(recipe.children)
    children[way[0]] = put(children[way[0]], way[1:], new)
    return dataclasses.replace(recipe, children=tuple(children))


@st.composite
def edits(draw: st.DrawFn) -> tuple[CallRecipe, CallRecipe, set[str]]:
    """Draw a call, the call with one thing changed, and the paths that this concerns."""
    call = draw(calls())
    kind = draw(st.sampled_from(["same", "context", "static", *["place"] * 3, *["part"] * 4]))
    if kind == "same":
        return call, call, set()
    if kind == "context":
        context = draw(st.sampled_from([name for name in CONTEXTS if name != call.context]))
        return call, dataclasses.replace(call, context=context), {"config"}
    if kind == "static" and call.static is not None:
        return call, dataclasses.replace(call, static=draw(statics)), {"args[0]"}
    leaves = [spot for spot in spots(call) if isinstance(spot[2], LeafRecipe)]
    arrays = [spot for spot in leaves if spot[2].form == "jax"]
    if kind == "place" and arrays:
        path, way, old = draw(st.sampled_from(arrays))
        where = draw(st.sampled_from([name for name in SHARDINGS if name != old.where]))
        return call, put(call, way, dataclasses.replace(old, where=where)), {path}
    return call, *draw(part_edits(call, leaves * 2))


@st.composite
def histories(draw: st.DrawFn) -> list[CallRecipe]:
    """Draw calls, each a change of an earlier one, without a change of configuration."""
    history = [dataclasses.replace(draw(calls()), context="")]
    for _ in range(draw(st.integers(1, 4))):
        history.append(draw(part_edits(draw(st.sampled_from(history))))[0])
    return history


@st.composite
def part_edits(draw: st.DrawFn, call: CallRecipe, more: Any = ()) -> tuple[CallRecipe, set[str]]:
    """Draw a call with one part changed, more often one of some spots, and its paths."""
    path, way, old = draw(st.sampled_from([*spots(call), *more]))
    edited = leaf_edits(old, path) if isinstance(old, LeafRecipe) else node_edits(old, path)
    new, paths = draw(edited)
    return put(call, way, new), paths


Edited = st.SearchStrategy[tuple[Any, set[str]]]
"""Parts with one aspect changed, and the paths that this concerns."""


def leaf_edits(old: LeafRecipe, path: str) -> Edited:
    aspects = [
        *[("form", ("jax", "numpy", "scalar", "python"))] * 2,
        *[("shape", SHAPES), ("dtype", DTYPES), ("weak", (not old.weak,))],
    ]
    odd = [LeafRecipe(form) for form in ("abstract", "text", "key", "subclass")]
    leaves: list[st.SearchStrategy[Any]] = []
    if old.form == "jax":
        aspects += [("where", SHARDINGS)] * 4
        leaves = [st.just(NodeRecipe("None")), st.sampled_from(odd)]
    for name, values in aspects:
        edited = [dataclasses.replace(old, **{name: value}) for value in values]
        leaves.append(st.sampled_from([leaf for leaf in edited if leaf != old]))
    return st.tuples(st.one_of(leaves), st.just({path}))


def node_edits(old: NodeRecipe, path: str) -> Edited:
    edited = functools.partial(dataclasses.replace, old)
    nodes: list[Edited] = [st.just((LeafRecipe("jax"), {path}))]
    if old.kind in CLASSES:
        nodes += [statics.map(lambda code: (edited(static=code), {f"{path}.n"}))] * 3
        nodes += [st.sampled_from(sorted(CLASSES)).map(lambda kind: (edited(kind=kind), {path}))]
    if old.kind in ("tuple", "list"):
        nodes += [st.just((edited(kind="list" if old.kind == "tuple" else "tuple"), {path}))]
        nodes += [st.just((edited(children=(*old.children, LeafRecipe("jax"))), {path}))]
    if old.keys:
        *keys, last = old.keys
        gone, come = f"{path}[{last!r}]", f"{path}['z']"
        nodes += [st.just((edited(keys=(*keys, "z")), {gone, come}))]
        nodes += [st.just((edited(keys=tuple(keys), children=old.children[:-1]), {gone}))]
    if old.kind == "partial":
        nodes += [st.just((edited(static="lambda x: x"), {f"{path}.func"}))]
    return st.one_of(nodes)


def fresh_paths(call: CallRecipe) -> set[str]:
    """Return the paths of statics that no two calls share."""
    paths = {"args[0]"} if call.static in FRESH else set()
    nodes = [(path, recipe) for path, _, recipe in spots(call) if isinstance(recipe, NodeRecipe)]
    return paths | {
        f"{path}.n" for path, node in nodes if node.static in FRESH and node.kind in CLASSES
    }
