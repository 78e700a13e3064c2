"""Cards for the tests."""

from collections.abc import Mapping
from datetime import UTC, datetime

from temper_evals.cards.card import (
    ArmCounts,
    Card,
    Engine,
    Environment,
    Family,
    Gpu,
    Hardware,
    Model,
)

FAMILIES = {"chain": (1, 2)}
MADE = datetime(2026, 11, 29, 9, 30, tzinfo=UTC)


def make_arm(
    arm: str, families: Mapping[str, tuple[int, int]] = FAMILIES, **counts: int
) -> ArmCounts:
    """Make an arm with the right runs and all runs of each family; other counts are 0."""
    sums = {
        "right": sum(right for right, _ in families.values()),
        "runs": sum(runs for _, runs in families.values()),
    }
    names = ("damage", "failed", "generations", "prompt_tokens", "generated_tokens", "seconds")
    return ArmCounts.model_validate(
        {
            "arm": arm,
            **dict.fromkeys(names, 0),
            **sums,
            **counts,
            "families": {
                name: Family(right=right, runs=runs) for name, (right, runs) in families.items()
            },
        }
    )


def make_card(
    *,
    model: str = "qwen3-8b-q4",
    suite: str = "quick",
    engine: str = "llama.cpp",
    build: str = "b11669-2f0a35c",
    made: datetime = MADE,
    arms: tuple[ArmCounts, ...] = (make_arm("direct"), make_arm("temper", helped=1, harmed=1)),
) -> Card:
    """Make a card that uses every field."""
    environment = Environment(
        model=Model(name=model, quantization="Q4_K_M", sha256="0" * 64),
        engine=Engine.model_validate({"name": engine, "build": build}),
        hardware=Hardware(
            system="Linux",
            architecture="x86_64",
            processor="AMD",
            cores=16,
            memory_gib=64,
            gpus=(Gpu(name="NVIDIA GeForce RTX 4090", memory_gib=16),),
        ),
    )
    return Card(
        made=made,
        temper="0.2.0",
        guardrails="1b92465c14338cb5",
        environment=environment,
        suite=suite,
        protocol="689aee30de2525bd",
        tasks=2,
        seeds=1,
        tasks_digest="aaa7a6f7e40b8098",
        arms=arms,
    )
