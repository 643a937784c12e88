"""Law: what the oracle predicts for a pair of calls is what JAX does."""

from typing import Any

import jax
from hypothesis import assume, event, given

from leafwise._events import count_events
from leafwise._explain import Explanation, explain
from leafwise._reasons import Outcome, Reason, ReasonKind
from leafwise._signature import Signature, signature

from .calls import CallRecipe, context, edits, fresh_paths


def observe(before: CallRecipe, after: CallRecipe) -> tuple[Outcome, Explanation, bool]:
    """Call a function that uses all of its arguments; return what JAX did, and the prediction."""

    def everything(*args: Any, **kwargs: Any) -> list[Any]:
        leaves = jax.tree.leaves((args[first:], kwargs))
        is_key = [jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
        return [
            jax.random.key_data(leaf) if key else leaf
            for leaf, key in zip(leaves, is_key, strict=True)
        ]

    first = before.offset
    statics = (0,) if first else ()
    function = jax.jit(everything, static_argnums=statics)
    with context(before.context):
        args, kwargs = before.build()
        earlier = sign(args, kwargs, statics)
        try:
            function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  # a call that cannot be made tells nothing
            event(f"first call raises {type(error).__name__}")
            assume(False)
    with context(before.context):
        args, kwargs = after.build()
    with context(after.context):
        later = sign(args, kwargs, statics)
        entries = function._cache_size()
        with count_events() as counts:
            try:
                function(*args, **kwargs)
                raised = False
            except Exception:  # noqa: BLE001  # whatever JAX raises
                raised = True
    if raised:
        seen = Outcome.ERROR
    elif counts.traces:
        seen = Outcome.RETRACE
    elif counts.lowerings or counts.compiles:
        seen = Outcome.RECOMPILE
    else:
        seen = Outcome.DISPATCH if function._cache_size() > entries else Outcome.REUSE
    return seen, explain(earlier, later), earlier == later


def sign(args: Any, kwargs: Any, statics: tuple[int, ...]) -> Signature:
    return signature(*args, static_argnums=statics, **kwargs)


@given(edits())
def test_prediction_is_what_jax_does(edit: tuple[CallRecipe, CallRecipe, set[str]]) -> None:
    """The predicted outcome is the observed one, and one change names its path alone."""
    before, after, paths = edit
    seen, explanation, equal = observe(before, after)
    event(f"{seen}")
    assert explanation.outcome is seen, str(explanation)
    assert equal == (seen in (Outcome.REUSE, Outcome.DISPATCH)), "equal signatures share a program"
    if seen is not Outcome.REUSE:
        assert explanation.reasons, "there is a reason"
    named = {path_of(reason) for reason in explanation.reasons}
    assert named <= paths | {"devices"} | fresh_paths(before) | fresh_paths(after), str(explanation)


def path_of(reason: Reason) -> str:
    """Return the path of a reason, of a kind that has one place only."""
    if reason.kind is ReasonKind.CONFIG:
        return "config"
    return "devices" if reason.kind is ReasonKind.DEVICES else reason.path
