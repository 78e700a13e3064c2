"""Fuzz targets of replies whose text resembles a call; `replies` judges them."""

from hypothesis import strategies as st

from tests.fuzz.replies import fuzz_one, mutations
from tests.fuzz.targets import Target

TARGETS = (
    Target("texts of models", st.integers(0, 2**32).map(lambda n: next(mutations(1, n))), fuzz_one),
)
