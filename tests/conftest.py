"""Hypothesis profiles, and which one is in force.

`--hypothesis-profile` wins, then the variable `HYPOTHESIS_PROFILE`, then `ci` where `CI`
is set and `dev` elsewhere.
"""

import os

# Read when JAX first needs a device: shardings are tried on eight of them.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from hypothesis import HealthCheck, Phase, settings

# Compiling makes one example slow and the next one fast: time per example means nothing.
_COMPILES = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("dev", max_examples=25, **_COMPILES)
# The same examples on every run: a red build can be repeated, and is never bad luck.
settings.register_profile(
    "ci", max_examples=50, derandomize=True, database=None, print_blob=True, **_COMPILES
)
settings.register_profile("thorough", max_examples=1000, phases=tuple(Phase), **_COMPILES)

settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)
