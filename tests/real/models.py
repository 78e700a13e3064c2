"""The models for tests with real models, in the folder TEMPER_REAL_MODELS."""

import os
from dataclasses import dataclass
from pathlib import Path

FOLDER = "TEMPER_REAL_MODELS"
ALL = "TEMPER_REAL_ALL"
NEEDING_A_MODEL = ("after_results", "commands", "constraints", "streams_and_cache")


@dataclass(frozen=True)
class RealModel:
    """A model file; `calls_tools` is true if its template and its training support tools."""

    id: str
    file: str
    calls_tools: bool = True

    @property
    def path(self) -> Path:
        return Path(os.environ[FOLDER]) / self.file


SMALLEST = RealModel("0.5b", "qwen2.5-coder-0.5b-q4.gguf")
MODELS = (
    SMALLEST,
    RealModel("1.5b", "qwen2.5-coder-1.5b-q4.gguf"),
    RealModel("smollm2", "smollm2-135m-instruct-q4_1.gguf", calls_tools=False),
)


def chosen() -> list[RealModel]:
    """Return the models to test: the smallest one, or with TEMPER_REAL_ALL=1 all that exist."""
    if not os.environ.get(FOLDER):
        return []
    models = MODELS if os.environ.get(ALL) == "1" else (SMALLEST,)
    return [model for model in models if model.path.is_file()]


def missing() -> str:
    """Return why no model can be tested."""
    if not os.environ.get(FOLDER):
        return f"{FOLDER} is not set: name a folder with the models of docs/guides/real-models.md"
    return f"{FOLDER} has no {SMALLEST.file}: docs/guides/real-models.md says where to get it"
