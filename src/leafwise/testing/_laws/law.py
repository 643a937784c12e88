"""The laws of pytree classes, by name."""

from enum import StrEnum
from typing import Final, Self

_CARRY: Final = "let `__reduce__`, `__getstate__` and `__deepcopy__` carry every field"


class Law(StrEnum):
    """A law of pytree classes: its name, what must hold, and what to do if it is broken.

    Attributes:
        statement: What must hold.
        fix: What to do if it is broken, where a fault has no fix of its own.
    """

    statement: str
    fix: str

    def __new__(cls, name: str, statement: str, fix: str) -> Self:
        self = str.__new__(cls, name)
        self._value_ = name
        self.statement = statement
        self.fix = fix
        return self

    ROUND_TRIP = (
        "round-trip",
        "flatten, then unflatten, gives back the class, children and statics",
        "convert nothing in flatten, and restore in unflatten all that it returned, in order",
    )
    ANY_LEAF = (
        "any-leaf",
        "unflatten accepts sentinels, tracers, structs and None, unchanged",
        "unflatten with `object.__new__(cls)`, and set attributes without checks or conversion",
    )
    IDENTITY_MAP = (
        "identity-map",
        "jax.tree.map of the identity is the identity",
        "pass leaves through flatten and unflatten unchanged",
    )
    TREEDEF_EQUALITY = (
        "treedef-equality",
        "comparing treedefs never raises, and equal ones have equal hashes",
        "make aux_data a tuple of hashable, comparable values; arrays are children",
    )
    STATIC_VALUES = (
        "static-values",
        "equal statics give equal treedefs, different statics different ones",
        "put every static into aux_data, and compare all of them",
    )
    STATIC_TYPES = (
        "static-types",
        "statics are distinguished by type and value, not by == alone",
        "put the type of each static into aux_data, too, and a float as `str(x)`: 0.0 equals -0.0, "
        "and NaN not itself",
    )
    AUX_DATA_HASH = (
        "aux-data-hash",
        "aux_data has a hash that agrees with == and depends on every static",
        "make aux_data hashable: tuples for lists, `lw.freeze` for the rest",
    )
    SAME_ARGUMENTS = (
        "same-arguments",
        "instances from the same arguments have equal treedefs; unequal ones are a warning",
        "build the statics from the arguments alone: no new functions, no counters",
    )
    STABLE_TREEDEF = (
        "stable-treedef",
        "reading or flattening an instance does not change its treedef",
        "build aux_data from the declared statics alone: no caches, no new objects",
    )
    KEY_PATHS = (
        "key-paths",
        "key paths are in the order of the leaves, and lead to them",
        "pair each child with the key that leads to it",
    )
    COPIES = (
        "copies",
        "copy, deepcopy and pickle keep statics and leaves; another treedef is a warning",
        _CARRY,
    )
    FRESH_PROCESS = (
        "fresh-process",
        "a new process unpickles it whole, and its hashes agree there",
        _CARRY,
    )
    TRANSFORMATIONS = (
        "transformations",
        "jit, vmap, grad, scan, eval_shape, checkpoint keep class and statics",
        "restore class and statics in unflatten",
    )
    NO_TRACER_LEAKS = (
        "no-tracer-leaks",
        "no tracer outlives its trace",
        "store no leaf in flatten or unflatten: no caches, no class attributes",
    )
    REPLACE = (
        "replace",
        "replace without changes is the identity",
        "let `replace` start from the values of all fields, and let a converter and "
        "`__post_init__` keep what they have made",
    )
    POST_INIT = (
        "post-init",
        "unflatten does not run `__post_init__` again",
        "unflatten with `object.__new__(cls)`, and set each attribute unchanged",
    )
    NO_HIDDEN_STATE = (
        "no-hidden-state",
        "everything that an instance holds is a child or a static",
        "make it a child or a static",
    )
    DISTINCT_CLASSES = (
        "distinct-classes",
        "instances of distinct classes never have equal treedefs",
        "register the class with a flatten and unflatten of its own",
    )
    RECOMPILATION = (
        "recompilation",
        "a change retraces and recompiles as predicted, and as claimed",
        "compare the two calls with `lw.signature`, and look at aux_data",
    )
