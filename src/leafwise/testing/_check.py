"""Checking the laws of one class."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final

import hypothesis

from leafwise._objects.text import got
from leafwise.testing import _recompilation
from leafwise.testing._laws import copies, keys, programs, structure
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.law import Law, unknown_law
from leafwise.testing._laws.run import run_law, strategy_of


@dataclasses.dataclass(frozen=True)
class _Test:
    """How a law is tested.

    Attributes:
        check: Raises `LawViolation` for a case.
        share: What share of the examples it gets: those that compile are slow.
    """

    check: Callable[[Case], None]
    share: float = 1.0


_TESTS: Final[dict[Law, _Test]] = {
    Law.ROUND_TRIP: _Test(structure.round_trip),
    Law.ANY_LEAF: _Test(structure.any_leaf, 0.2),
    Law.IDENTITY_MAP: _Test(structure.identity_map),
    Law.NO_HIDDEN_STATE: _Test(structure.state),
    Law.KEY_PATHS: _Test(structure.key_paths),
    Law.STABLE_TREEDEF: _Test(structure.stable_key),
    Law.REPLACE: _Test(structure.replace),
    Law.POST_INIT: _Test(structure.post_init, 0.2),
    Law.TREEDEF_EQUALITY: _Test(keys.equality),
    Law.STATIC_VALUES: _Test(keys.static_values),
    Law.STATIC_TYPES: _Test(keys.static_types),
    Law.AUX_DATA_HASH: _Test(keys.static_hash),
    Law.DISTINCT_CLASSES: _Test(keys.told_apart_from_others, 0.2),
    Law.COPIES: _Test(copies.copies),
    Law.FRESH_PROCESS: _Test(copies.fresh_process, 0.2),
    Law.TRANSFORMATIONS: _Test(programs.transformations, 0.1),
    Law.NO_TRACER_LEAKS: _Test(programs.no_leaks, 0.02),
    Law.RECOMPILATION: _Test(_recompilation.as_predicted, 0.1),
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

    Instances are drawn by Hypothesis; where a law is broken, the smallest instance that
    breaks it is shown. A law that says nothing about a class (there are no statics, it
    cannot be pickled by name, its leaves are not numbers) passes.

    Args:
        cls_or_strategy: The class, or a strategy for its instances.
        laws: The laws to check; None for all of them.
        without: Laws to leave out, such as those that another library does not keep.
        settings: Hypothesis' settings; the profile in force if None. Laws that compile get
            a share of `max_examples`.
        seed: Of the draws; what the settings say if None.

    Raises:
        LawViolation: A law is broken; of several, the first.
        CannotBuildError: No instance can be made; it says which field, and what to give.
        TypeError: It is neither a class nor a strategy, or `laws` are not names.
        ValueError: There is no such law (the message lists them all), or none at all.

    Example:
        >>> check_pytree(Params)  # doctest: +SKIP
        >>> check_pytree(instances(Params, act=st.just("relu")))  # doctest: +SKIP
        >>> check_pytree(Params, laws=["round-trip", "static-types"])  # doctest: +SKIP
        >>> check_pytree(FlaxState, without=["distinct-classes"])  # doctest: +SKIP
    """
    __tracebackhide__ = True
    strategy = strategy_of(cls_or_strategy, "check_pytree")
    left_out = chosen_laws("without", without)
    chosen = list(Law) if laws is None else chosen_laws("laws", laws)
    if not chosen:
        msg = "check_pytree(laws=...): no law is named; None stands for all"
        raise ValueError(msg)
    for law in (each for each in chosen if each not in left_out):
        test = _TESTS[law]
        run_law(law, strategy, test.check, settings=settings, seed=seed, share=test.share)


def chosen_laws(option: str, laws: Any) -> list[Law]:
    """Return the laws that are named, in their order.

    Raises:
        TypeError: They are not names.
        ValueError: There is no such law.
    """
    names: Any = [laws] if isinstance(laws, str) else laws
    if not isinstance(names, Iterable):
        msg = f"{option} takes names of laws, got {got(laws)}"
        raise TypeError(msg)
    names = list(names)
    for name in names:
        if name not in set(Law):
            msg = f"{option}: {unknown_law(name)}"
            raise ValueError(msg)
    return [law for law in Law if law in names]
