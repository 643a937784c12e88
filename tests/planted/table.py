"""All planted faults: where each is, which law should find it, and where it was seen."""

import dataclasses
from typing import Any, Final

from leafwise.testing import Law

from . import (
    caches,
    children,
    confusion,
    construction,
    containers,
    copying,
    inheritance,
    leaks,
    paths,
    registrations,
    statics,
)


@dataclasses.dataclass(frozen=True)
class Planted:
    """One planted fault.

    Attributes:
        cls: The faulty class; the first line of its docstring says what the fault is.
        twin: The same class without the fault.
        laws: The laws that should find it, the main one first.
        fields: Any one of these must be named by the violation, "" being the class as a whole;
            no field if that is all that can be said.
        like: A library or an issue that had it.
    """

    cls: Any
    twin: Any
    laws: tuple[Law, ...]
    fields: tuple[str, ...]
    like: str

    @property
    def name(self) -> str:
        """The faulty class's name."""
        name: str = self.cls.__name__
        return name

    @property
    def law(self) -> Law:
        """The law that must find it."""
        return self.laws[0]


def _statics() -> list[Planted]:
    twin = statics.Layer
    trip, values, types = Law.ROUND_TRIP, Law.STATIC_VALUES, Law.STATIC_TYPES
    hashes, equality, stable = Law.AUX_DATA_HASH, Law.TREEDEF_EQUALITY, Law.STABLE_TREEDEF
    every = ("rate", "width", "act")
    return [
        Planted(
            statics.StaticLost,
            twin,
            (trip,),
            ("act",),
            "a static restored from the class's default",
        ),
        Planted(statics.StaticsSwapped, twin, (trip,), ("rate", "width"), "jax#19547"),
        Planted(statics.StaticInChildsPlace, twin, (trip,), ("w", "width"), "jax#19547"),
        Planted(
            statics.StaticRounded, twin, (trip,), ("rate",), "a converter that runs at unflatten"
        ),
        Planted(statics.FirstOneKept, twin, (trip,), ("rate", "width"), "jax#9283"),
        Planted(
            statics.StaticNotInKey,
            twin,
            (values, trip),
            ("width",),
            "jax_dataclasses, tjax: statics with init=False",
        ),
        Planted(
            statics.TypesShared, twin, (types,), every, "jax#9273; every library with raw statics"
        ),
        Planted(statics.TextCompared, twin, (types,), every, "keys made with str()"),
        Planted(statics.HashCompared, twin, (types, values), every, "keys made with hash()"),
        Planted(
            statics.ZerosShared, twin, (types, values), ("rate",), "every library with raw statics"
        ),
        Planted(
            statics.NanNeverEqual,
            statics.Filled,
            (types, Law.RECOMPILATION),
            ("fill",),
            "every library with raw statics",
        ),
        Planted(statics.RateRounded, twin, (values,), ("rate",), "tolerance in =="),
        Planted(
            statics.EqIgnoresField, twin, (values,), ("act",), "compare=False in a static config"
        ),
        Planted(statics.AllEqual, twin, (values,), every, "jax#1984"),
        Planted(
            statics.EqOneSided, twin, (values, equality), ("rate",), "== that asks for a subset"
        ),
        Planted(statics.EqRaises, twin, (equality,), every, "jax#28659"),
        Planted(
            statics.HashIgnoresField,
            twin,
            (hashes,),
            ("act",),
            "a __hash__ written before the field was added",
        ),
        Planted(
            statics.HashKnowsMore,
            twin,
            (hashes, equality),
            ("act",),
            "a __hash__ and an __eq__ of two authors",
        ),
        Planted(statics.HashById, twin, (hashes, equality), (), "jax#4712, jax#2813"),
        Planted(statics.EqWithoutHash, twin, (hashes,), (), "jax#13027, flax#4870"),
        Planted(statics.FreshEachTime, twin, (stable, values), (), "optax#353, flax#5548"),
        Planted(statics.FreshLambda, twin, (stable, values), (), "optax#197"),
        Planted(statics.CountsFlattens, twin, (stable,), (), "a version number in the structure"),
    ]


def _containers() -> list[Planted]:
    twin = containers.Filter
    values, hashes, equality = Law.STATIC_VALUES, Law.AUX_DATA_HASH, Law.TREEDEF_EQUALITY
    window = ("window",)
    return [
        Planted(containers.AuxHasArray, twin, (equality, hashes), window, "jax#28659"),
        Planted(
            containers.AuxHasJaxArray, twin, (equality, hashes), window, "jax#19547, jax#24204"
        ),
        Planted(containers.AuxIsArray, twin, (equality, hashes), (), "jax#13027"),
        Planted(containers.AuxIsList, twin, (hashes,), (), "flax#4870, jax#28418"),
        Planted(containers.AuxIsDict, twin, (hashes,), (), "jax#15338: `return (), {}`"),
        Planted(containers.ListInAux, twin, (hashes,), ("options", ""), "jax#13992"),
        Planted(containers.IdOfStatic, twin, (values,), ("shape",), "jax#4712"),
        Planted(containers.ZipStopsEarly, twin, (values,), ("shape",), "zip without strict"),
        Planted(containers.OrderIgnored, twin, (values,), ("shape",), "axes compared as a set"),
        Planted(containers.BytesCompared, twin, (values,), window, "keys made with tobytes()"),
        Planted(
            containers.ArrayValuesIgnored,
            twin,
            (values,),
            window,
            "static arrays described by shape and dtype",
        ),
        Planted(containers.ArrayByIdentity, twin, (values, Law.COPIES), window, "jax#4572"),
    ]


def _children() -> list[Planted]:
    twin = children.Body
    trip, leaf, same = Law.ROUND_TRIP, Law.ANY_LEAF, Law.IDENTITY_MAP
    transformed, state = Law.TRANSFORMATIONS, Law.NO_HIDDEN_STATE
    return [
        Planted(children.Reordered, twin, (trip, leaf), ("pos", "vel"), "jax#19547"),
        Planted(children.SortedByName, twin, (trip, leaf), children.NAMES, "jax#4085"),
        Planted(children.NoneDropped, twin, (trip,), ("drag", "vel", "mass"), "numpyro#1778"),
        Planted(children.NoneFilled, twin, (trip, leaf), ("drag",), "numpyro#1778"),
        Planted(children.ChildTwice, twin, (state, leaf), ("pos", "vel"), "a copied line"),
        Planted(
            children.NeverFlattened,
            twin,
            (state, trip),
            ("mass",),
            "subclasses that eight libraries flatten as their base",
        ),
        Planted(
            children.ComesBackAsDefault,
            twin,
            (state,),
            ("mass",),
            "subclasses that eight libraries flatten as their base",
        ),
        Planted(children.CastToFloat, twin, (transformed,), (), "jax#14033"),
        Planted(children.CastToNumpy, twin, (transformed, leaf), (), "NumPy functions in flatten"),
        Planted(children.CopiedWithPlus, twin, (leaf,), (), "copies against aliasing"),
        Planted(children.CastAtUnflatten, twin, (same, trip), ("pos",), "jax#25486"),
        Planted(children.Renormalised, twin, (same, trip), ("pos",), "kUPS#290"),
        Planted(children.RefusesNone, twin, (leaf,), (), "kUPS#270"),
        Planted(
            children.StoppedGradient, twin, (leaf, transformed), ("pos",), "frozen parts of a model"
        ),
        Planted(children.ShapeInAux, twin, (leaf,), (), "batch shapes as statics"),
        Planted(
            children.ValueInAux,
            twin,
            (Law.RECOMPILATION, transformed),
            ("mass",),
            "Python numbers that are static",
        ),
        Planted(children.ChildHidden, twin, (Law.STATIC_VALUES, Law.COPIES), ("vel",), "jax#14033"),
    ]


def _paths() -> list[Planted]:
    twin, laws = children.Body, (Law.KEY_PATHS,)
    every = children.NAMES
    return [
        Planted(paths.NamesShifted, twin, laws, every, "torch#116786"),
        Planted(paths.NameTwice, twin, laws, ("vel", "pos"), "a copied line"),
        Planted(paths.NameOfNothing, twin, laws, ("pos", "position"), "renamed attributes"),
        Planted(paths.OtherOrder, twin, laws, (), "torch#117656"),
        Planted(paths.OneLess, twin, laws, (), "jax#15071"),
        Planted(paths.OtherAux, twin, laws, (), "jax#15071"),
    ]


def _construction() -> list[Planted]:
    grid, weights, derived = construction.Grid, construction.Weights, construction.Derived
    leaf, post, level = Law.ANY_LEAF, Law.POST_INIT, ("level",)
    return [
        Planted(construction.InitCounts, grid, (Law.ROUND_TRIP, leaf), level, "jax#12319"),
        Planted(construction.InitValidates, grid, (leaf,), (), "jax#4673, jax#14619"),
        Planted(construction.InitConverts, grid, (leaf,), (), "jax#25486"),
        Planted(construction.NewWithArguments, grid, (Law.ROUND_TRIP,), (), "equinox#296"),
        Planted(construction.PostInitRuns, weights, (post,), (), "jax#25486: register_dataclass"),
        Planted(
            construction.PostInitAppends,
            weights,
            (post, Law.ROUND_TRIP),
            (),
            "jax#25486: register_dataclass",
        ),
        Planted(construction.PostInitNormalises, weights, (post,), (), "kUPS#290"),
        Planted(
            construction.PostInitLists,
            weights,
            (Law.NO_TRACER_LEAKS, post),
            (),
            "registries of instances",
        ),
        Planted(
            construction.PostInitConverts,
            weights,
            (leaf, post),
            (),
            "jax#25486: register_dataclass",
        ),
        Planted(
            construction.PostInitAtReplace,
            weights,
            (Law.REPLACE,),
            ("tags",),
            "dataclasses.replace",
        ),
        Planted(
            construction.InitFalseDropped,
            derived,
            (Law.NO_HIDDEN_STATE,),
            ("area",),
            "jax_dataclasses, tjax: statics with init=False",
        ),
    ]


def _inheritance() -> list[Planted]:
    twin = inheritance.Ball
    state, equality, hashes = Law.NO_HIDDEN_STATE, Law.TREEDEF_EQUALITY, Law.AUX_DATA_HASH
    return [
        Planted(
            inheritance.NewStaticLost,
            twin,
            (state,),
            ("sides",),
            "subclasses that eight libraries flatten as their base",
        ),
        Planted(
            inheritance.NewChildLost,
            twin,
            (state,),
            ("radius",),
            "subclasses that eight libraries flatten as their base",
        ),
        Planted(inheritance.LeafTurnedStatic, twin, (equality, hashes), ("radius",), "jax#24204"),
        Planted(
            inheritance.StaticTurnedLeaf,
            twin,
            (state,),
            ("name",),
            "a subclass that overrides only a static's default",
        ),
        Planted(
            inheritance.BaseComesBack,
            twin,
            (Law.ROUND_TRIP,),
            (),
            "an unflatten that names its class",
        ),
        Planted(
            inheritance.ClassAsked,
            twin,
            (state,),
            ("sides",),
            "a field and a class variable of one name",
        ),
    ]


def _caches() -> list[Planted]:
    twin, stable, values = caches.Gaussian, Law.STABLE_TREEDEF, Law.STATIC_VALUES
    return [
        Planted(caches.CachedInAux, twin, (stable,), ("volume",), "equinox#539"),
        Planted(caches.CachedIsChild, twin, (stable,), ("precision",), "numpyro#1778, netket#835"),
        Planted(caches.LazyInAux, twin, (stable,), ("label", "_label"), "numpyro#1778"),
        Planted(caches.FlattenedOnce, twin, (values,), (), "stored results of flatten"),
        Planted(caches.KeyStoredOnce, twin, (values,), ("dims",), "stored keys"),
    ]


def _copying() -> list[Planted]:
    twin, copies, replaced = copying.Model, Law.COPIES, Law.REPLACE
    far = Law.FRESH_PROCESS
    elsewhere = registrations.RegisteredElsewhere
    return [
        Planted(
            copying.StateWithoutStatic,
            twin,
            (copies,),
            ("act",),
            "a __getstate__ written before the field was added",
        ),
        Planted(copying.StateWithDefault, twin, (copies,), ("act",), "pickles of an older version"),
        Planted(
            copying.ReduceRunsInit, twin, (copies,), ("depth",), "a __reduce__ that calls the class"
        ),
        Planted(copying.DeepcopyLosesStatic, twin, (copies,), ("act",), "copiers written by hand"),
        Planted(copying.CopyIsBase, twin, (copies,), (), "copiers written by hand"),
        Planted(copying.CopyCastsLeaf, twin, (copies,), ("w",), "compressed checkpoints"),
        Planted(
            copying.FrozenUnpickled, copying.Frozen, (copies,), (), "cpython#80605, tensordict#1774"
        ),
        Planted(
            copying.ReplaceToDefault,
            twin,
            (replaced,),
            ("act",),
            "flax#4312: replace with **kwargs",
        ),
        Planted(
            copying.ReplaceRunsInit, twin, (replaced,), ("depth",), "a replace that calls the class"
        ),
        Planted(copying.ReplaceDropsClass, twin, (replaced,), (), "a replace that names its class"),
        Planted(
            copying.HashOfStaticTravels,
            copying.Length,
            (far,),
            ("unit",),
            "a hash that an object keeps",
        ),
        Planted(copying.HashTravels, twin, (far,), (), "a hash that an object keeps"),
        Planted(elsewhere, twin, (far,), (), "equinox#231: classes that arrive unregistered"),
    ]


def _leaks() -> list[Planted]:
    twin, laws = children.Body, (Law.NO_TRACER_LEAKS,)
    return [
        Planted(leaks.KeepsInstances, twin, laws, (), "jax#9283"),
        Planted(leaks.KeepsLeaves, twin, laws, (), "tinygp#139"),
        Planted(leaks.KeepsLast, twin, laws, (), "numpyro#1651"),
        Planted(leaks.SharedDict, twin, laws, (), "jax#9283"),
        Planted(leaks.InstanceInAux, twin, laws, (), "awkward#3405"),
    ]


def _confusion() -> list[Planted]:
    twin = confusion.Point
    return [
        Planted(confusion.Cartesian, twin, (Law.DISTINCT_CLASSES,), (), "jax: register_dataclass"),
        Planted(
            confusion.PlainNode,
            twin,
            (Law.STATIC_TYPES,),
            ("unit",),
            "jax#9273: register_dataclass",
        ),
    ]


FAULTS: Final[list[Planted]] = [
    *_statics(),
    *_containers(),
    *_children(),
    *_paths(),
    *_construction(),
    *_inheritance(),
    *_caches(),
    *_copying(),
    *_leaks(),
    *_confusion(),
]

TWINS: Final[list[Any]] = [
    *dict.fromkeys(planted.twin for planted in FAULTS),
    construction.InitFalseNotCompared,
]
