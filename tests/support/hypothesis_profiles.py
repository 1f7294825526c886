"""How many examples hypothesis tries: `POP_TEST_PROFILE` names `local`, `ci` or `long`.

Importing it loads the profile. `ci`, the default where `CI` is set, tries the same examples on
every run.
"""

import os

from hypothesis import HealthCheck, settings

# Time limits per example would fail on a busy machine, not on a wrong program.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("local", max_examples=60, stateful_step_count=40, **_COMMON)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.register_profile("long", max_examples=1_000, stateful_step_count=80, **_COMMON)
settings.load_profile(
    os.environ.get("POP_TEST_PROFILE", "ci" if "CI" in os.environ else "local")
)
