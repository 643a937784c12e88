"""Checking the laws of one class."""

import warnings
from collections.abc import Collection, Iterable
from typing import Any, Final

import hypothesis
import hypothesis.errors

from leafwise._objects.text import got
from leafwise.errors import LawViolation, did_you_mean
from leafwise.testing import _recompilation
from leafwise.testing._laws import keys, structure, travel
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.libraries import ANOTHER_TREEDEF
from leafwise.testing._laws.run import LawTest, LawTrial, run_law, strategy_of

_TESTS: Final[dict[Law, LawTest]] = {
    Law.FRESH_PROCESS: LawTest(travel.fresh_process, 0.2),  # first: nothing has been hashed yet
    Law.ROUND_TRIP: LawTest(structure.round_trip),
    Law.ANY_LEAF: LawTest(structure.any_leaf, 0.2),
    Law.IDENTITY_MAP: LawTest(structure.identity_map),
    Law.NO_HIDDEN_STATE: LawTest(structure.no_hidden_state),
    Law.KEY_PATHS: LawTest(structure.key_paths),
    Law.STABLE_TREEDEF: LawTest(structure.stable_treedef),
    Law.REPLACE: LawTest(structure.replace),
    Law.POST_INIT: LawTest(structure.post_init, 0.2),
    Law.TREEDEF_EQUALITY: LawTest(keys.treedef_equality, on="edits"),
    Law.STATIC_VALUES: LawTest(keys.static_values, on="edits"),
    Law.STATIC_TYPES: LawTest(keys.static_types, on="edits"),
    Law.AUX_DATA_HASH: LawTest(keys.aux_data_hash, on="edits"),
    Law.SAME_ARGUMENTS: LawTest(keys.same_arguments, 0.05, on="draws"),
    Law.DISTINCT_CLASSES: LawTest(keys.distinct_classes, 0.2),
    Law.COPIES: LawTest(travel.copies),
    Law.TRANSFORMATIONS: LawTest(travel.transformations, 0.1),
    Law.NO_TRACER_LEAKS: LawTest(travel.no_tracer_leaks, 0.02),
    Law.RECOMPILATION: LawTest(_recompilation.as_predicted, 0.1, on="draws"),
}


def check_pytree(
    cls_or_strategy: Any,
    *,
    laws: Iterable[Law | str] | Law | str | None = None,
    without: Iterable[Law | str] | Law | str = (),
    settings: hypothesis.settings | None = None,
    seed: int | None = None,
) -> None:
    """Check that a pytree class, of any library, keeps the laws of pytrees.

    Hypothesis draws the instances; if a law is broken, the smallest instance that breaks it
    is shown. A law that does not apply to a class passes: it has no statics, cannot be
    pickled by name, or its leaves are not numbers.

    Args:
        cls_or_strategy: The class, or a strategy for its instances.
        laws: The laws to check; None for all.
        without: Laws to leave out, such as those that another library does not keep.
        settings: Hypothesis' settings; None for the current profile. Some laws use only a
            share of `max_examples`.
        seed: The seed of the draws; None to leave it to the settings.

    Raises:
        LawViolation: A law is broken; the first one if there are several.
        CannotBuildError: No instance can be made; the message names the field and the fix.
        TypeError: `cls_or_strategy` is neither a class nor a strategy, or `laws` are not names.
        ValueError: A law is unknown (the message lists all laws), or `laws` is empty.

    Warns:
        UserWarning: A static compares by identity, so that each copy of an instance, or
            each new instance, retraces.

    Examples:
        >>> check_pytree(Params)  # doctest: +SKIP
        >>> check_pytree(instances(Params, act=st.just("relu")))  # doctest: +SKIP
        >>> check_pytree(Params, laws=["round-trip", "static-types"])  # doctest: +SKIP
        >>> check_pytree(FlaxState, without=["distinct-classes"])  # doctest: +SKIP
    """
    strategy = strategy_of(cls_or_strategy, "check_pytree")
    left_out = chosen_laws("without", without)
    chosen = list(Law) if laws is None else chosen_laws("laws", laws)
    if not chosen:
        raise ValueError("check_pytree(laws=...) is empty; None means all laws")
    for law in (law for law in chosen if law not in left_out):
        test = _TESTS[law]
        try:
            run_law(law, strategy, test.check, settings=settings, seed=seed, share=test.share)
        except LawViolation as violation:
            if ANOTHER_TREEDEF not in violation.message:
                raise
            warnings.warn(violation.message, stacklevel=2)


def try_each(cls_or_strategy: Any, laws: Collection[Law], **options: Any) -> str:
    """Test laws on the same instances, with the options of `LawTrial`, and return its note."""
    tests = {law: test for law, test in _TESTS.items() if law in laws}
    return LawTrial(tests, strategy_of(cls_or_strategy, "check_pytree"), **options).run()


def smallest_failure(
    cls_or_strategy: Any, law: Law, error: BaseException, **options: Any
) -> BaseException | None:
    """Return the error from the smallest instance that breaks a law; `error` if none is found."""
    if not isinstance(error, Exception | SystemExit | GeneratorExit):
        return error  # out of time
    test = _TESTS[law]
    strategy = strategy_of(cls_or_strategy, "check_pytree")
    try:
        run_law(law, strategy, test.check, share=test.share, **options)
    except (Exception, SystemExit, GeneratorExit) as failure:  # noqa: BLE001  # user code
        return failure
    # Hypothesis raises for a class that is not deterministic.
    return None if isinstance(error, hypothesis.errors.HypothesisException) else error


def chosen_laws(option: str, laws: Any) -> list[Law]:
    """Return the laws with these names, in the order of `Law`."""
    names: Any = [laws] if isinstance(laws, str) else laws
    if not isinstance(names, Iterable):
        raise TypeError(f"{option} takes names of laws, got {got(laws)}")
    names = list(names)
    for name in names:
        if name not in set(Law):
            hint = did_you_mean(str(name), map(str, Law), 0.5)
            unknown = f"there is no law {name!r}{hint}; the laws are {', '.join(Law)}"
            raise ValueError(f"{option}: {unknown}")
    return [law for law in Law if law in names]
