"""`stable_carry`: a carry whose types and placement stay the same from step to step."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._compare.diff import Diff, compare
from leafwise._compare.signature import labels_of
from leafwise._findings.reasons import Reason, ReasonKind
from leafwise._jax.compat import is_committed, vary, varying_axes
from leafwise._objects.text import describe_array, got, shorten
from leafwise._statics.findings import is_tracer
from leafwise._trees.leaves import Leaf, LeafKind, LeafRecorder, weakly_typed
from leafwise._trees.nodes import FlatTree
from leafwise.errors import TreeError

T = TypeVar("T")


def stable_carry(
    step: Callable[..., Any], carry: T, *args: Any, has_aux: bool = False, **kwargs: Any
) -> tuple[T, Diff]:
    """Return a carry whose dtypes, weak types and placement a loop's step does not change.

    With a jitted step, the second call of ``carry = step(carry, x)`` then reuses the program
    of the first, and `jax.lax.scan` and `jax.lax.while_loop` accept the carry. Python numbers and
    NumPy arrays become JAX arrays. Values do not change: a conversion that would round one is an
    error. Nothing is run: the step is traced, and a jitted step is compiled only if
    placement depends on it; the loop's first call reuses these traces and programs.

    Args:
        step: A function of the carry, and of other arguments, that returns the next carry. Pass
            the jitted function if that is what the loop calls.
        carry: The initial carry: any tree of arrays and numbers.
        *args: Examples of the step's other arguments: arrays or `jax.ShapeDtypeStruct`. For the
            ``xs`` of `jax.lax.scan`, pass one slice.
        has_aux: Whether the step returns a pair of the carry and something else, like the
            function passed to `jax.lax.scan`.
        **kwargs: Examples of keyword arguments.

    Returns:
        The carry, and its differences from the initial one, as from `leafwise.diff`.

    Raises:
        TreeError: No stable carry exists: its structure, class, statics or shapes change from
            step to step, its dtypes never settle, or a value would be rounded.

    Examples:
        >>> import jax.numpy as jnp
        >>> carry, changes = stable_carry(lambda total, x: total + x, 0, jnp.ones(()))
        >>> print(changes)
        total: dtype int32 -> float32
    """
    label = next(iter(labels_of(step, (carry,), {}).values()), "carry")
    flat = FlatTree(carry)
    paths = [label + "".join(steps) for steps in flat.paths]
    loop = _Loop(step, label, flat, args, kwargs, has_aux)
    leaves = zip(paths, flat.leaves, map(LeafRecorder(), flat.leaves), strict=True)
    types = list(itertools.starmap(_type_of, leaves))
    named = zip(paths, flat.leaves, loop.place(loop.settle(types)), strict=True)
    stable: T = flat.treedef.unflatten([_converted(*leaf) for leaf in named])
    return stable, Diff(compare(label, carry, stable))


def _type_of(path: str, value: Any, leaf: Leaf) -> Any:
    """Return the type of a leaf, with its sharding if it is committed."""
    if leaf.kind in (LeafKind.OTHER, LeafKind.INVALID, LeafKind.SHAPE_DTYPE_STRUCT):
        raise TreeError(
            f"{path}: expected an array or a number, got {got(value)}\n"
            f"  fix: make it static (`lw.static_field`), or keep it out of the carry"
        )
    if varying_axes(value):
        return jax.eval_shape(jnp.asarray, value)
    struct: Any = jax.ShapeDtypeStruct  # JAX does not annotate it
    return struct(leaf.shape, leaf.dtype, sharding=leaf.lowered_sharding, weak_type=leaf.weak_type)


@dataclasses.dataclass(frozen=True, slots=True)
class _Loop:
    """A step with its initial carry and its other arguments."""

    step: Any
    label: str
    flat: FlatTree
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    has_aux: bool

    def settle(self, types: list[Any]) -> list[Any]:
        """Return the types that the step returns unchanged."""
        reasons: list[Reason] = []
        of_types = {ReasonKind.DTYPE, ReasonKind.WEAK_TYPE, ReasonKind.VARYING}
        for _ in range(_MOST_ROUNDS):
            carry = self.flat.treedef.unflatten(types)
            returned = self._eval_shape(carry)
            reasons = compare(self.label, carry, returned)
            if any(reason.kind not in of_types for reason in reasons):
                fix = "start with the structure, statics and shapes that the step returns"
                is_pair = isinstance(returned, tuple) and len(returned) == 2  # noqa: PLR2004
                if is_pair and jax.tree.structure(returned[0]) == self.flat.treedef:
                    fix = f"the step returns {self.label} and something else: pass has_aux=True"
                raise self._error("the step changes it", reasons, fix)
            pairs = zip(jax.tree.leaves(returned), types, strict=True)
            # The enclosing `jax.shard_map` determines the sharding of values that vary.
            new = [
                leaf if varying_axes(leaf) else leaf.update(sharding=old.sharding)
                for leaf, old in pairs
            ]
            if new == types:
                return types
            types = new
        fix = "return it with one dtype: `.astype(carry.dtype)` in the step"
        raise self._error("its type never settles", reasons, fix)

    def _error(self, what: str, reasons: Iterable[Reason], fix: str) -> TreeError:
        lines = "".join(f"\n  {reason}" for reason in reasons)
        return TreeError(f"{self.label}: {what}{lines}\n  fix: {fix}")

    def _eval_shape(self, carry: Any) -> Any:
        leaves: list[Any]
        structure: Any
        leaves, structure = jax.tree.flatten((self.args, self.kwargs))
        # Numbers stay as they are: the step may branch on them.
        arrays = {place: leaf for place, leaf in enumerate(leaves) if hasattr(leaf, "dtype")}

        def call(carry: Any, arrays: dict[int, Any]) -> Any:
            arguments = [arrays.get(place, leaf) for place, leaf in enumerate(leaves)]
            args, kwargs = structure.unflatten(arguments)
            return self.step(carry, *args, **kwargs)

        return self._carry_of(jax.eval_shape(call, carry, arrays))

    def _carry_of(self, returned: Any) -> Any:
        return returned[0] if self.has_aux else returned

    def place(self, types: list[Any]) -> list[Any]:
        """Return the types with shardings that the step returns unchanged."""
        others = jax.tree.leaves((self.args, self.kwargs))
        # The enclosing trace decides.
        if any(map(varying_axes, types)) or any(map(is_tracer, (*self.flat.leaves, *others))):
            return types
        types = _committed(types, others)
        for _ in range(_MOST_ROUNDS if isinstance(self.step, jax.stages.Wrapped) else 0):
            carry = self.flat.treedef.unflatten(types)
            lowered = self.step.lower(carry, *self.args, **self.kwargs)
            if not is_committed(lowered):
                break
            shardings = jax.tree.leaves(self._carry_of(lowered.compile().output_shardings))
            pairs = zip(types, shardings, strict=True)
            new = [leaf.update(sharding=sharding) for leaf, sharding in pairs]
            if new == types:
                break
            types = new
        return types


def _committed(types: list[Any], others: Iterable[Any]) -> list[Any]:
    """Commit all leaves to the one device that some leaf or argument is committed to."""
    shardings = [leaf.sharding for leaf in others if getattr(leaf, "committed", False)]
    shardings += [leaf.sharding for leaf in types if leaf.sharding is not None]
    devices = {device for sharding in shardings for device in sharding.device_set}
    if len(devices) != 1:
        return types
    there = jax.sharding.SingleDeviceSharding(devices.pop())
    return [leaf.update(sharding=leaf.sharding or there) for leaf in types]


_MOST_ROUNDS: Final = 16
"""More than enough, since a chain of promotions is shorter than the number of dtypes."""


def _converted(path: str, leaf: Any, wanted: Any) -> Any:
    """Return a leaf as a JAX array of the type, committed to the type's sharding if it has one."""
    # `jnp.array` copies, as a NumPy array may be changed later.
    array = leaf if isinstance(leaf, jax.Array) else jnp.array(leaf)
    aval: Any = jax.typeof(leaf)
    if aval.dtype != wanted.dtype or bool(getattr(aval, "weak_type", False)) != wanted.weak_type:
        array = _cast(path, leaf, array, wanted.dtype)
        array = weakly_typed(array) if wanted.weak_type else jnp.asarray(array, wanted.dtype)
    axes, wanted_axes = varying_axes(array), varying_axes(wanted)
    lost = tuple(axis for axis in axes if axis not in wanted_axes)
    if lost:
        raise TreeError(
            f"{path}: it varies along {axes}, but the step returns it varying along {wanted_axes}\n"
            f"  fix: return `jax.lax.pcast(x, {lost}, to='varying')` from the step"
        )
    if wanted_axes:
        return vary(array, tuple(axis for axis in wanted_axes if axis not in axes))
    sharding = wanted.sharding
    if sharding is None or is_tracer(array) or (array.committed and array.sharding == sharding):
        return array
    return jax.device_put(array, sharding)


def _cast(path: str, leaf: Any, array: jax.Array, dtype: Any) -> jax.Array:
    """Return an array in another dtype, or raise if a value would change."""
    old: Any = np.dtype(array.dtype)
    new = np.dtype(dtype)
    drops = old.kind == "c" and not jnp.issubdtype(new, jnp.complexfloating)
    if is_tracer(leaf) or not getattr(leaf, "is_fully_addressable", True):
        wide = old in (np.int64, np.uint64) and jnp.issubdtype(new, jnp.inexact)
        why = "" if np.can_cast(old, new) and not wide else "its value is not known here"
    else:
        # In NumPy: inside a trace, JAX has no concrete values, even for a Python number.
        before: Any = np.asarray(leaf).astype(old)
        with np.errstate(all="ignore"):
            why = _first_lost(before, (before.real if drops else before).astype(new))
    if not why:
        return (array.real if drops else array).astype(new)
    code = f"x.astype('{new}')" if hasattr(leaf, "astype") else f"jnp.{new}({shorten(leaf, 40)})"
    raise TreeError(
        f"{path}: the step turns {describe_array(array)} into {new}, and {why}\n"
        f"  fix: convert it yourself, `{code}`, if that is what you want; or return {old} "
        f"from the step"
    )


def _first_lost(before: Any, after: Any) -> str:
    """Return a text on the first element that the conversion changes, or an empty string."""
    exact: Any = object if before.dtype in (np.int64, np.uint64) else np.complex128
    one, other = before.astype(exact), after.astype(exact)
    are_nan = (one != one) & (other != other)  # noqa: PLR0124
    lost = np.flatnonzero((one != other) & ~are_nan)
    texts = [shorten(array.flat[place].item()) for place in lost[:1] for array in (before, after)]
    return " would become ".join(texts)
