"""The laws that a pytree class is to keep, by name."""

from enum import StrEnum
from typing import Self


class Law(StrEnum):
    """A law of pytree classes: its name, what it says, and what to do where it is broken.

    Attributes:
        statement: What must hold.
        fix: What to do where it does not.
    """

    statement: str
    fix: str

    def __new__(cls, name: str, statement: str, fix: str) -> Self:
        """Make a member that is its name."""
        self = str.__new__(cls, name)
        self._value_ = name
        self.statement = statement
        self.fix = fix
        return self

    ROUND_TRIP = (
        "round-trip",
        "flatten, then unflatten, gives the same class, children and statics",
        "give unflatten all that flatten took apart, in the same order",
    )
    ANY_LEAF = (
        "any-leaf",
        "unflatten takes sentinels, tracers, structs and None, as they are",
        "unflatten with `object.__new__(cls)`, and set attributes without checks or conversion",
    )
    IDENTITY_MAP = (
        "identity-map",
        "jax.tree.map of the identity is the identity",
        "flatten and unflatten must hand leaves on as they are",
    )
    EQUALITY = (
        "equality",
        "comparing treedefs never raises, and equal ones have equal hashes",
        "let aux_data be a tuple of hashable, comparable values; arrays are children",
    )
    STATIC_VALUES = (
        "static-values",
        "equal statics give equal treedefs, other statics give others",
        "put every static in the aux_data, and compare all of them",
    )
    STATIC_TYPES = (
        "static-types",
        "statics are told apart by type and value, not by == alone",
        "put each static's type into the aux_data, too",
    )
    STATIC_HASH = (
        "static-hash",
        "aux_data has a hash that agrees with == and depends on every static",
        "let aux_data be hashable: tuples for lists, `leafwise.freeze` for the rest",
    )
    STABLE_KEY = (
        "stable-key",
        "reading or flattening an instance does not change its treedef",
        "make aux_data of the declared statics alone: no caches, no fresh objects",
    )
    KEY_PATHS = (
        "key-paths",
        "key paths come in the order of the leaves, and lead to them",
        "pair each child with the key that leads to it: `GetAttrKey('name')`",
    )
    COPIES = (
        "copies",
        "copy, deepcopy and pickle keep statics and leaves",
        "let `__reduce__`, `__getstate__` and `__deepcopy__` carry every field",
    )
    FRESH_PROCESS = (
        "fresh-process",
        "a new process unpickles it whole, with hashes that agree there",
        "pickle no hash and no id: they differ in each process",
    )
    TRANSFORMATIONS = (
        "transformations",
        "jit, vmap, grad, scan, eval_shape, checkpoint keep class and statics",
        "keep class and statics at unflatten",
    )
    NO_LEAKS = (
        "no-leaks",
        "no tracer outlives the trace that it belongs to",
        "keep no leaf beyond flatten and unflatten: no caches, no class attributes",
    )
    REPLACE = (
        "replace",
        "replace with no change is the identity",
        "let `replace` start from the values of all fields",
    )
    POST_INIT = (
        "post-init",
        "__post_init__ does not run again at unflatten",
        "unflatten with `object.__new__(cls)` and set each attribute as it comes",
    )
    STATE = (
        "state",
        "everything that an instance holds is a child or a static",
        "make it a child or a static",
    )
    TOLD_APART = (
        "told-apart",
        "instances of two classes never have equal treedefs",
        "register the class with a flatten and unflatten of its own",
    )
    RECOMPILATION = (
        "recompilation",
        "a change traces and compiles as predicted, and as claimed",
        "look at the aux_data: see `leafwise.explain` for what JAX compares",
    )
