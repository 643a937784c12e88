"""Hypothesis profiles for tests that compile."""

import os
from typing import Any, Final

import hypothesis
import hypothesis.errors
from hypothesis import HealthCheck, Phase

# Compiling makes one example slow and the next one fast: time per example means nothing.
_COMPILES: Final[dict[str, Any]] = {
    "deadline": None,
    "suppress_health_check": (HealthCheck.too_slow,),
}
_PROFILES: Final[dict[str, dict[str, Any]]] = {
    "dev": {"max_examples": 25},
    # The same examples on every run: a red build can be repeated, and is never bad luck.
    "ci": {"max_examples": 50, "derandomize": True, "database": None, "print_blob": True},
    "thorough": {"max_examples": 1000, "phases": tuple(Phase)},
}
# What Hypothesis' documentation says of the profile `ci` that it comes with.
_BUILT_IN: Final[dict[str, Any]] = {**_PROFILES["ci"], **_COMPILES, "max_examples": 100}


def register_profiles() -> None:
    """Register profiles of Hypothesis for tests that compile, and load one of them.

    ``dev`` has 25 examples, ``ci`` has 50, the same ones on every run, ``thorough`` has 1000;
    none has a deadline. The one named by the variable ``HYPOTHESIS_PROFILE`` is loaded, else
    ``ci`` where ``CI`` is set and ``dev`` elsewhere. ``pytest --hypothesis-profile`` wins over
    both, if this is called in the outermost ``conftest.py``.

    A profile of one of these names that was registered before stays as it is, but for the
    ``ci`` that Hypothesis comes with.

    Raises:
        hypothesis.errors.InvalidArgument: `HYPOTHESIS_PROFILE` names a profile that is not
            registered.

    Examples:
        >>> leafwise.testing.register_profiles()  # doctest: +SKIP
    """
    # Not what is loaded: where `CI` is set, that is Hypothesis' own profile for it.
    parent = hypothesis.settings.get_profile("default")
    for name, options in _PROFILES.items():
        if _is_free(name):
            hypothesis.settings.register_profile(name, parent, **options, **_COMPILES)
    wanted = os.environ.get("HYPOTHESIS_PROFILE")
    hypothesis.settings.load_profile(wanted or ("ci" if os.environ.get("CI") else "dev"))


def _is_free(name: str) -> bool:
    """Return whether nobody but Hypothesis has registered a profile of a name."""
    try:
        known = hypothesis.settings.get_profile(name)
    except hypothesis.errors.InvalidArgument:
        return True
    return name == "ci" and all(
        getattr(known, option) == value for option, value in _BUILT_IN.items()
    )
