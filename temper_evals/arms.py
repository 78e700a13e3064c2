"""The arms: direct requests to a model, Temper with different settings, and other proxies.

An arm gets a backend and returns the target of the agent's requests: the backend itself, or a proxy
that the arm started. A control arm, such as `temper-again`, which repeats `temper`, must show
no effect. The arm `ceiling` shows the highest success that any proxy could reach.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import Part
from temper_evals.loop import Habits, ModelTarget
from temper_evals.temper_server import temper_in_front

DIRECT = "direct"
TEMPER = "temper"
OBSERVED = "temper-observe"  # forwards replies unchanged, and reports its findings
AGAIN = "temper-again"  # a control, equal to `temper`: a difference between them is noise
TUNED = "temper-tuned"
STRUCTURAL = "temper-structural"  # close-out check after failed tools
CEILING = "ceiling"
PARTS: tuple[Part, ...] = (
    "rescue",
    "repair",
    "nudge",
    "constrained",
    "respond",
    "loops",
    "compaction",
)

# Starts the proxy of an arm for a backend and returns its address; leaving the block stops it.
Opening = Callable[[ModelTarget], AbstractAsyncContextManager[ModelTarget]]


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to send requests to a model.

    In the ceiling arm, the model makes none of the errors that a proxy could correct.
    """

    name: str
    opening: Opening
    habits: Habits = field(default_factory=Habits)
    is_ceiling: bool = False


@asynccontextmanager
async def _use_directly(backend: ModelTarget) -> AsyncGenerator[ModelTarget, None]:
    yield backend


def _temper(environment: Mapping[str, str]) -> Opening:
    return lambda backend: temper_in_front(backend, environment)


def _without(parts: Iterable[str]) -> dict[str, str]:
    return {"TEMPER_GUARDRAILS__WITHOUT": json.dump_text([*parts])}


def _policy(name: str) -> dict[str, str]:
    return {"TEMPER_GUARDRAILS__TEXT_POLICY": name}


def _close_out(name: str) -> dict[str, str]:
    return {"TEMPER_GUARDRAILS__CLOSE_OUT": name}


def _mode(name: str) -> dict[str, str]:
    return {"TEMPER_GUARDRAILS__MODE": name}


def usual_arms() -> dict[str, Arm]:
    """Return the arms that need no other program, by name."""
    direct = {
        DIRECT: Arm(DIRECT, _use_directly),
        "direct-urged": Arm("direct-urged", _use_directly, Habits(urges=True)),
        "direct-required": Arm("direct-required", _use_directly, Habits(requires=True)),
        CEILING: Arm(CEILING, _use_directly, is_ceiling=True),
        TUNED: Arm(TUNED, lambda backend: temper_in_front(backend, {}, takes_tuned=True)),
    }
    environments: dict[str, dict[str, str]] = {
        TEMPER: {},
        AGAIN: {},
        "temper-accept": _policy("accept"),
        "temper-respond": _policy("respond"),
        "temper-off": _mode("off"),
        OBSERVED: _mode("observe"),
    }
    environments |= {
        STRUCTURAL: _close_out("structural"),
        "temper-always": _close_out("always"),
        "temper-always-twice": {**_close_out("always"), "TEMPER_GUARDRAILS__CLOSE_OUT_TRIES": "2"},
    }
    environments |= {f"temper-without-{part}": _without([part]) for part in PARTS}
    environments |= {
        f"temper-only-{part}": _without(other for other in PARTS if other != part) for part in PARTS
    }
    # the default text policy offers no answer tool, so the arm would have no effect
    environments["temper-only-respond"] |= _policy("respond")
    with_temper = {
        name: Arm(name, _temper(environment)) for name, environment in environments.items()
    }
    return direct | with_temper


# the two `direct-...` arms show how much a client achieves without any proxy
QUICK_ARMS = (DIRECT, "direct-urged", "direct-required", TEMPER, "temper-off", CEILING)
FULL_ARMS = (*QUICK_ARMS, "temper-accept", "temper-respond", "temper-observe")


def choose_arms(names: Iterable[str], extra: Mapping[str, Arm] | None = None) -> list[Arm]:
    """Return arms by their names; raises InvalidConfiguration."""
    known = usual_arms() | dict(extra or {})
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidConfiguration("--arms", f"no arm {unknown[0]!r}; known: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def names_without_parts(parts: Iterable[str]) -> list[str]:
    """Return for each part the name of the arm without it; raises InvalidConfiguration."""
    for part in parts:
        if part not in PARTS:
            known = ", ".join(PARTS)
            raise InvalidConfiguration("--without", f"no part {part!r}; known: {known}")
    return [f"temper-without-{part}" for part in parts]
