"""How costs grow, as curves: measured here, drawn by `draw.py`."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import growth
import jax
import jax.numpy as jnp
from libraries import BASELINE, MANY, OURS, Library, with_many_statics
from report import Setting
from timing import Effort, Group, Job, interleave, job

FILE: Final = "curves.json"


@dataclasses.dataclass(frozen=True)
class Curve:
    """One panel of a picture.

    Attributes:
        name: For `draw.py`.
        xs: How much there is of what grows.
        lines: Microseconds a call, by contestant.
    """

    name: str
    xs: Sequence[int]
    lines: Mapping[str, Sequence[float]]


@dataclasses.dataclass(frozen=True)
class Scale:
    """The places at which each curve is measured."""

    values: tuple[int, ...]
    entries: tuple[int, ...]
    nodes: tuple[int, ...]
    fields: tuple[int, ...]


FULL: Final = Scale(
    (1, 3, 10, 30, 100, 300, 1000),
    (1, 10, 100, 1000, 10_000),
    (1, 10, 100, 1000, 10_000),
    (1, 3, 10, 30, 100),
)
QUICK: Final = Scale((1, 10, 100), (1, 100, 10_000), (1, 100, 10_000), (1, 10, 100))
TINY: Final = Scale((1, 2), (1, 2), (1, 2), (1, 2))

Make = Callable[[Library, int], Job]


def measure(libraries: Mapping[str, Library], effort: Effort, scale: Scale) -> list[Curve]:
    """Measure every curve."""
    names = (OURS, BASELINE, "flax", "equinox")
    sides = {name: libraries[name] for name in names if name in libraries}
    keyed = {name: side for name, side in sides.items() if name != "flax"}  # as jax's own
    keyed[MANY] = with_many_statics()
    subjects: dict[str, tuple[Mapping[str, Library], Make, tuple[int, ...]]] = {
        "dispatch-values": (keyed, _among, scale.values),
        "dispatch-entries": (keyed, _equal, scale.entries),
    }
    for what in ("flatten", "unflatten"):
        subjects[f"{what}-nodes"] = (sides, functools.partial(_of_nodes, what), scale.nodes)
        subjects[f"{what}-fields"] = (sides, functools.partial(_of_fields, what), scale.fields)
    places: list[tuple[str, int]] = []
    groups: list[Group] = []
    for subject, (these, make, xs) in subjects.items():
        for x in xs:
            places.append((subject, x))
            groups.append({name: make(library, x) for name, library in these.items()})
    taken = dict(zip(places, interleave(groups, effort), strict=True))
    return [
        Curve(
            subject,
            xs,
            {name: [taken[subject, x][name].median * 1e6 for x in xs] for name in these},
        )
        for subject, (these, _, xs) in subjects.items()
    ]


def _among(library: Library, values: int) -> Job:
    return growth.among(growth.specimen(library), values)


def _equal(library: Library, entries: int) -> Job:
    return growth.dispatch_tuple(growth.specimen(library), entries, equal=True)


def _of_nodes(what: str, library: Library, nodes: int) -> Job:
    cls = library.define("Node", ("weight", "bias"), ("activation",))
    x = jnp.float32(0)
    return _job(what, [cls(weight=x, bias=x, activation="relu") for _ in range(nodes)])


def _of_fields(what: str, library: Library, fields: int) -> Job:
    names = [f"f{number}" for number in range(fields)]
    cls = library.define("Wide", names, ("activation",))
    return _job(what, cls(**dict.fromkeys(names, jnp.float32(0)), activation="relu"))


def _job(what: str, tree: Any) -> Job:
    if what == "flatten":
        return job("flatten(tree)", {"flatten": jax.tree_util.tree_flatten, "tree": tree})
    leaves, treedef = jax.tree_util.tree_flatten(tree)
    names = {"unflatten": jax.tree_util.tree_unflatten, "treedef": treedef, "leaves": leaves}
    return job("unflatten(treedef, leaves)", names)


def write(setting: Setting, curves: Sequence[Curve], folder: Path) -> None:
    """Write the figures as JSON."""
    data = {
        "setting": dataclasses.asdict(setting),
        "curves": [dataclasses.asdict(curve) for curve in curves],
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, ensure_ascii=False)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> tuple[Setting, list[Curve]]:
    """Read what `write` wrote."""
    data = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return Setting(**data["setting"]), [Curve(**curve) for curve in data["curves"]]
