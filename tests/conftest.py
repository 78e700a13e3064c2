"""Property tests try the same examples in every run.

HYPOTHESIS_PROFILE=searching tries others, and HYPOTHESIS_PROFILE=thorough 100,000 of them.
"""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("searching", max_examples=20_000)
settings.register_profile("thorough", max_examples=100_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
