"""`stable_carry`: a carry that keeps its dtypes, weak types and placement from step to step."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._compare.explain import differences
from leafwise._compare.fixes import Advice
from leafwise._compare.leaf_differences import leaf_reasons
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._compare.signature import Signature, StaticArguments, labels_of, record
from leafwise._jax.compat import is_committed
from leafwise._objects.text import describe_array, got, shorten
from leafwise._statics.findings import is_tracer
from leafwise._trees.leaves import Leaf, LeafKind, weakly_typed
from leafwise.errors import TreeError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class CarryChange:
    """One leaf that `stable_carry` changed.

    Attributes:
        path: Where it stands in the carry.
        before: What it was.
        after: What it is now.
        outcome: What JAX would have done for the second call of the loop, because of it.
    """

    path: str
    before: Leaf
    after: Leaf
    outcome: Outcome

    def __str__(self) -> str:
        """Return the leaf before and after, and what that saves."""
        return f"{self.path}: {self.before} -> {self.after}. {_SAVED[self.outcome]}"


_SAVED: Final = {
    Outcome.DISPATCH: "Saves one slower call.",
    Outcome.RECOMPILE: "Saves a compile.",
    Outcome.RETRACE: "Saves a trace and a compile.",
}


_State: TypeAlias = tuple[Any, ...]
"""A `jax.ShapeDtypeStruct` for each leaf; with a sharding where it is committed."""


def stable_carry(
    step: Callable[..., Any], carry: T, *args: Any, has_aux: bool = False, **kwargs: Any
) -> tuple[T, tuple[CarryChange, ...]]:
    """Return a carry whose dtypes, weak types and placement a loop's step does not change.

    The second call of ``carry = step(carry, x)``, with a jitted step, then finds the program
    of the first; `jax.lax.scan` and `jax.lax.while_loop` take the carry. Python numbers and NumPy
    arrays become JAX arrays. Values stay what they are: a change that would round one is
    refused. Nothing is run: the step is traced, and a jitted step is compiled only where
    placement depends on it; the loop's first call reuses these traces and programs.

    Args:
        step: A function of the carry, and of other arguments, that returns the next carry. Pass
            the jitted function if that is what the loop calls.
        carry: The carry to start with: any tree of arrays and numbers.
        *args: Examples of the step's other arguments: arrays, or `jax.ShapeDtypeStruct`. Of
            `jax.lax.scan`'s ``xs`` that is one slice.
        has_aux: Whether the step returns a pair of the carry and something else, as that of
            `jax.lax.scan` does.
        **kwargs: Examples of keyword arguments.

    Returns:
        The carry, and a `CarryChange` for each leaf that was changed.

    Raises:
        TreeError: There is no such carry: its structure, class, statics or shapes change from
            step to step, its dtypes never settle, or a value would be rounded.
        TypeError: `step` cannot be called.
        Exception: What the step raises while it is traced, with a note.

    Examples:
        >>> import jax.numpy as jnp
        >>> carry, changes = stable_carry(lambda total, x: total + x, 0, jnp.ones(()))
        >>> print(*changes)
        total: int32[] (Python scalar, weakly typed) -> float32[] (jax array). Saves ...
    """
    if not callable(step):
        raise TypeError(
            f"stable_carry takes the function of a loop, got {got(step)}\n"
            f"  fix: carry, changes = lw.stable_carry(step, carry, x)"
        )
    before = _recorded(step, carry)
    _check_leaves(before)
    leaves: list[Any]
    treedef: Any
    leaves, treedef = jax.tree.flatten(carry)
    loop = _Loop(step, treedef, before, args, kwargs, has_aux)
    struct: Any = jax.ShapeDtypeStruct  # which JAX does not annotate
    start = tuple(
        struct(each.shape, each.dtype, sharding=each.lowered_sharding, weak_type=each.weak_type)
        for each in before.leaf_records
    )
    try:
        state = loop.place(loop.settle(start))
    except TreeError:
        raise
    except Exception as error:
        error.add_note("in lw.stable_carry, which traces the step with this carry")
        raise
    named = list(zip(before.leaves, leaves, state, strict=True))
    losses = [loss for path, leaf, spec in named if (loss := _loss_of(path, leaf, spec.dtype))]
    if losses:
        raise TreeError("\n".join(losses))
    stable: T = treedef.unflatten([_converted(leaf, spec) for _, leaf, spec in named])
    return stable, tuple(_carry_changes(before, _recorded(step, stable)))


def _recorded(step: Callable[..., Any], carry: Any, *, abstract: bool = False) -> Signature:
    labels = {"args[0]": "carry", **labels_of(step, (carry,), {})}
    return record((carry,), {}, StaticArguments(), abstract=abstract, labels=labels)


def _check_leaves(before: Signature) -> None:
    wrong = [
        f"{path}: not a leaf of a carry: {leaf.value if leaf.value is not None else leaf}"
        for path, leaf in before.leaves.items()
        if leaf.aval is None or leaf.kind in _NOT_LEAVES
    ]
    if wrong:
        wrong.append(
            "  fix: carry arrays and numbers only: make the rest static (`lw.static_field`), or "
            "keep it out of the carry"
        )
        raise TreeError("\n".join(wrong))


def _carry_changes(before: Signature, after: Signature) -> Iterator[CarryChange]:
    for (path, mine), its in zip(before.leaves.items(), after.leaf_records, strict=True):
        reasons = leaf_reasons(path, mine, its)
        outcomes = [reason.outcome for reason in reasons]
        if outcomes:
            worst = max(outcomes, key=lambda each: each.severity)
            yield CarryChange(path, mine, its, worst)


@dataclasses.dataclass(frozen=True, slots=True)
class _Loop:
    """A step, with its other arguments."""

    step: Any
    treedef: Any
    before: Signature
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    has_aux: bool

    def settle(self, state: _State) -> _State:
        """Return types that the step returns as it gets them."""
        before = state
        for _ in range(_MOST_ROUNDS):
            new = self._after(state)
            if new == state:
                return state
            before, state = state, new
        fix = "return it with one dtype: `.astype(carry.dtype)` in the step"
        raise TreeError(self._format_changes(before, state, "its type never settles", fix))

    def _after(self, state: _State) -> _State:
        """Return the types of the carry that the step returns."""
        carry = self.treedef.unflatten(state)
        out = self._carry_of(self._eval_shape(carry))
        self._check_structure(carry, out)
        pairs = zip(jax.tree.leaves(out), state, strict=True)
        new = tuple(leaf.update(sharding=spec.sharding) for leaf, spec in pairs)
        if any(one.shape != other.shape for one, other in zip(state, new, strict=True)):
            raise TreeError(self._format_changes(state, new, "its shape changes", _FIX_SHAPE))
        return new

    def _eval_shape(self, carry: Any) -> Any:
        is_jitted = isinstance(self.step, jax.stages.Wrapped)
        if is_jitted:
            return self.step.eval_shape(carry, *self.args, **self.kwargs)
        others: list[Any]
        structure: Any
        others, structure = jax.tree.flatten((self.args, self.kwargs))
        is_array = [hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in others]
        arrays = [leaf for leaf, traced in zip(others, is_array, strict=True) if traced]

        def call(carry: Any, arrays: list[Any]) -> Any:
            given = iter(arrays)
            pairs = zip(others, is_array, strict=True)
            leaves = [next(given) if traced else leaf for leaf, traced in pairs]
            args, kwargs = structure.unflatten(leaves)
            return self.step(carry, *args, **kwargs)

        return jax.eval_shape(call, carry, arrays)

    def _carry_of(self, out: Any) -> Any:
        if not self.has_aux:
            return out
        if _is_pair(out):
            return out[0]
        raise TreeError(
            f"has_aux=True: the step returns a pair of carry and result, got {got(out)}"
        )

    def _check_structure(self, carry: Any, out: Any) -> None:
        """Raise if the step returns a carry of another structure."""
        mine, its = (_recorded(self.step, each, abstract=True) for each in (carry, out))
        reasons = differences(mine, its).reasons
        wrong = [_format_reason(reason) for reason in reasons if reason.kind not in _OF_LEAVES]
        if not wrong:
            return
        name = next(iter(mine.labels.values()))
        if not self.has_aux and _is_pair(out) and jax.tree.structure(out[0]) == self.treedef:
            fix = f"the step returns a pair that begins with {name}: pass has_aux=True"
        else:
            fix = "start with the structure, class and statics that the step returns"
        head = f"{name}: the step returns another tree than it gets"
        raise TreeError("\n".join([head, *(f"  {each}" for each in wrong), f"  fix: {fix}"]))

    def _format_changes(self, state: _State, new: _State, what: str, fix: str) -> str:
        """Return a message with a line for each leaf that changes."""
        show = _format_type
        lines = [
            f"{path}: {what}: {show(one)} goes into the step, {show(other)} comes out"
            for path, one, other in zip(self.before.leaves, state, new, strict=True)
            if one != other
        ]
        return "\n".join([*lines, f"  fix: {fix}"])

    def place(self, state: _State) -> _State:
        """Return the types with the shardings that the step leaves its results with."""
        others = jax.tree.leaves((self.args, self.kwargs))
        kinds = {leaf.kind for leaf in self.before.leaf_records}
        kinds |= {LeafKind.TRACER for leaf in others if is_tracer(leaf)}
        if LeafKind.TRACER in kinds:  # the enclosing trace decides
            return state
        state = _committed(state, others)
        if not isinstance(self.step, jax.stages.Wrapped):
            return state
        for _ in range(_MOST_ROUNDS):
            carry = self.treedef.unflatten(state)
            lowered = self.step.lower(carry, *self.args, **self.kwargs)
            if not is_committed(lowered):
                return state
            shardings = jax.tree.leaves(self._carry_of(lowered.compile().output_shardings))
            pairs = zip(state, shardings, strict=True)
            new = tuple(spec.update(sharding=sharding) for spec, sharding in pairs)
            if new == state:
                return state
            state = new
        raise TreeError(
            "the step never leaves its results where it finds the carry\n"
            "  fix: give the step `out_shardings`, or `jax.lax.with_sharding_constraint`"
        )


def _committed(state: _State, others: Iterable[Any]) -> _State:
    """Commit all leaves to the one device that some leaf or argument is committed to."""
    given = [leaf.sharding for leaf in others if getattr(leaf, "committed", False)]
    given += [spec.sharding for spec in state if spec.sharding is not None]
    devices = {device for sharding in given for device in sharding.device_set}
    if len(devices) != 1:
        return state
    there = jax.sharding.SingleDeviceSharding(devices.pop())
    return tuple(spec.update(sharding=spec.sharding or there) for spec in state)


def _is_pair(out: Any) -> bool:
    return isinstance(out, tuple) and len(out) == 2  # noqa: PLR2004


def _format_type(spec: Any) -> str:
    return f"{describe_array(spec)}{', weakly typed' if spec.weak_type else ''}"


def _format_reason(reason: Reason) -> str:
    """Return a reason without its fix, which is about calls; tracers stand for arrays here."""
    text = str(reason._replace(cause=Advice()))
    return text.replace("(tracer)", "(array)").replace("(tracer, ", "(array, ")


_MOST_ROUNDS: Final = 16
"""More than enough: a chain of promotions is shorter than the number of dtypes."""

_OF_LEAVES: Final = frozenset(
    {
        *(ReasonKind.SHAPE, ReasonKind.DTYPE, ReasonKind.WEAK_TYPE, ReasonKind.SHARDING),
        *(ReasonKind.COMMITMENT, ReasonKind.LEAF_KIND, ReasonKind.INVALID, ReasonKind.CONFIG),
    }
)
_NOT_LEAVES: Final = (LeafKind.INVALID, LeafKind.SHAPE_DTYPE_STRUCT, LeafKind.OTHER)
_FIX_SHAPE: Final = (
    "start with the shape that it has in the end (`jnp.broadcast_to`), or write into an array "
    "of a fixed shape (`x.at[i].set(...)`)"
)


def _loss_of(path: str, leaf: Any, dtype: Any) -> str | None:
    """Return a message if a leaf's value would change in another dtype; None if not."""
    aval: Any = jax.typeof(leaf)
    old = aval.dtype
    if old == dtype or always_exact(old, dtype):
        return None
    why = "its value is not known here"
    if not is_tracer(leaf) and getattr(leaf, "is_fully_addressable", True):
        first = _first_lost(np.asarray(jnp.asarray(leaf)), dtype)
        if first is None:
            return None
        why = f"{first[0]} would become {first[1]}"
    name = np.dtype(dtype).name
    fix = f"x.astype('{name}')" if hasattr(leaf, "astype") else f"jnp.{name}({shorten(leaf, 40)})"
    return (
        f"{path}: the step makes {name} of {describe_array(aval)}, and {why}\n"
        f"  fix: convert it yourself, `{fix}`, if that is what you want; or return {old.name} "
        f"from the step"
    )


_IINFO: Final[Any] = jnp.iinfo
_FINFO: Final[Any] = jnp.finfo


def always_exact(old: Any, new: Any) -> bool:
    """Return whether the new dtype has all values of the old one."""
    if old == np.bool_:
        return True
    if jnp.issubdtype(old, jnp.integer):
        mine = _IINFO(old)
        if jnp.issubdtype(new, jnp.integer):
            its = _IINFO(new)
            return bool(its.min <= mine.min and mine.max <= its.max)
        if jnp.issubdtype(new, jnp.inexact):
            widest = max(abs(int(mine.min)), int(mine.max))
            return bool(widest <= min(2 ** (_FINFO(new).nmant + 1), _FINFO(new).max))
        return False
    if not (jnp.issubdtype(old, jnp.inexact) and jnp.issubdtype(new, jnp.inexact)):
        return False
    if jnp.issubdtype(old, jnp.complexfloating) and not jnp.issubdtype(new, jnp.complexfloating):
        return False
    mine, its = _FINFO(old), _FINFO(new)
    return bool(mine.nmant <= its.nmant and mine.maxexp <= its.maxexp and its.minexp <= mine.minexp)


def _first_lost(array: Any, dtype: Any) -> tuple[str, str] | None:
    """Return the first element that changes in another dtype, and what it becomes."""
    with np.errstate(all="ignore"):
        new = np.asarray(_cast(jnp.asarray(array), dtype))
    mine, its = _comparable(array), _comparable(new)
    same = (mine == its) | ((mine != mine) & (its != its))  # noqa: PLR0124  # NaN
    lost = np.flatnonzero(~np.asarray(same, bool))
    if not lost.size:
        return None
    return shorten(array.flat[lost[0]].item(), 40), shorten(new.flat[lost[0]].item(), 40)


def _comparable(array: Any) -> Any:
    """Return an array in which numbers of all dtypes compare exactly."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return array.astype(np.complex128)
    if jnp.issubdtype(array.dtype, jnp.integer) and array.dtype.itemsize > 4:  # noqa: PLR2004
        return array.astype(object)
    return array.astype(np.float64)


def _converted(leaf: Any, spec: Any) -> Any:
    """Return a leaf as a JAX array of a dtype and weak type, committed to a sharding if given."""
    aval = jax.typeof(leaf)
    # `jnp.array` copies: a NumPy array may be changed later.
    array = leaf if isinstance(leaf, jax.Array) else jnp.array(leaf)
    if array.dtype != spec.dtype or bool(getattr(aval, "weak_type", False)) != spec.weak_type:
        array = _cast(array, spec.dtype)
        array = weakly_typed(array) if spec.weak_type else jnp.asarray(array, spec.dtype)
    sharding = spec.sharding
    if sharding is not None and not is_tracer(array):
        committed = array.committed and array.sharding == sharding
        array = array if committed else jax.device_put(array, sharding)
    return array


def _cast(array: jax.Array, dtype: Any) -> jax.Array:
    """Return an array in another dtype; complex to real without NumPy's warning."""
    drops = jnp.iscomplexobj(array) and not jnp.issubdtype(dtype, jnp.complexfloating)
    return (array.real if drops else array).astype(dtype)
