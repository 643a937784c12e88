"""Law: what the oracle predicts for a pair of calls is what JAX does."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import pytest
from hypothesis import assume, event, given, settings
from tests.compare.pairs import everything, observed
from tests.kit.inside import Explanation, Outcome, Reason, ReasonKind, count_events

import leafwise as lw

from .calls import CONTEXTS, CallRecipe, edits, fresh_paths, histories


@pytest.fixture(autouse=True, scope="module")
def no_storm_guard() -> Iterator[None]:
    """Let thousands of traces pass without a warning."""
    with lw.storm_guard(None):
        yield


def fresh() -> Any:
    """Return a function that JAX has not seen."""
    return lambda *args, **kwargs: everything(*args, **kwargs)


def observe(before: CallRecipe, after: CallRecipe) -> tuple[Outcome, Explanation, bool]:
    """Make two calls; return what JAX did for the second, the prediction, and equality."""
    statics = (0,) if before.offset else ()
    function = jax.jit(fresh(), static_argnums=statics)
    with CONTEXTS[before.context]():
        args, kwargs = before.build()
        earlier = lw.signature(*args, static_argnums=statics, **kwargs)
        assume(observed(function, (args, kwargs)) is not Outcome.ERROR)
        try:
            args, kwargs = after.build()
        except ValueError:  # JAX refuses to put it there under this mesh
            assume(False)
    with CONTEXTS[after.context]():
        later = lw.signature(*args, static_argnums=statics, **kwargs)
        seen = observed(function, (args, kwargs))
    return seen, later.explain(earlier), earlier == later


pytestmark = [
    # Equinox takes a NumPy scalar for an array, which should not be static.
    pytest.mark.filterwarnings("ignore:A JAX array is being set as static"),
    # JAX has no 64 bits unless they are asked for, and says so.
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype"),
]
EXAMPLES = {"ci": 60, "thorough": 20_000}
many = settings(max_examples=EXAMPLES.get(settings.get_current_profile_name(), 25))


@pytest.mark.slow
@many
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


@pytest.mark.nightly
@given(histories())
def test_history_decides(history: list[CallRecipe]) -> None:
    """Of several earlier calls the least costly decides, and `lw.jit` remembers enough to say."""
    statics = (0,) if history[0].offset else ()
    function = lw.jit(fresh(), static_argnums=statics)
    signatures: list[lw.types.Signature] = []
    for call in history:
        args, kwargs = call.build()
        later = lw.signature(*args, static_argnums=statics, **kwargs)
        remembered = function.explain(*args, **kwargs)
        entries, made = function.cache_size(), len(function.traces) + len(function.recompiles)
        seen = observed(function, (args, kwargs))
        predicted = later.explain(signatures)
        assert predicted.outcome is seen, str(predicted)
        if signatures:
            each = [later.explain(before) for before in signatures]
            costs = [(one.outcome.severity, len(one.reasons)) for one in each]
            assert predicted.nearest is not None
            assert costs[predicted.nearest] == min(costs)
            assert predicted.reasons == each[predicted.nearest].reasons
        if remembered.outcome is Outcome.UNKNOWN:  # an entry that JAX did not tell of
            assert seen in (Outcome.DISPATCH, Outcome.REUSE)
            assert entries > made
        else:
            assert remembered.outcome is seen, str(remembered)
        if seen is not Outcome.ERROR:
            signatures.append(later)
    event(f"{len(function.traces)} traces")


@pytest.mark.nightly
@given(edits())
def test_filter_jit(edit: tuple[CallRecipe, CallRecipe, set[str]]) -> None:
    """Under `equinox.filter_jit` the prediction holds too: leaves that are no arrays are static."""
    before, after, _ = edit
    function = eqx.filter_jit(fresh())
    assume(before.static is None)
    with CONTEXTS[before.context]():
        args, kwargs = before.build()
        earlier = lw.signature(*args, filter_jit=True, **kwargs)
        with count_events() as counts:
            assume(can(function, args, kwargs))
        assume(counts.traces)
        args, kwargs = after.build()
    with CONTEXTS[after.context]():
        later = lw.signature(*args, filter_jit=True, **kwargs)
        with count_events() as counts:
            raised = not can(function, args, kwargs)
    found = later.explain(earlier).outcome
    event(f"{found}")
    if raised:
        assert found is Outcome.ERROR
    elif counts.traces:
        assert found is Outcome.RETRACE
    elif counts.compiles:
        assert found is Outcome.RECOMPILE
    else:
        assert found in (Outcome.DISPATCH, Outcome.REUSE)


def can(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call does not raise."""
    try:
        function(*args, **kwargs)
    except Exception:  # noqa: BLE001  # whatever JAX raises
        return False
    return True


def path_of(reason: Reason) -> str:
    """Return the path of a reason, of a kind that has one place only."""
    if reason.kind is ReasonKind.CONFIG:
        return "config"
    return "devices" if reason.kind is ReasonKind.DEVICES else reason.path
