"""The effect of each rule on recorded traffic.

Every recorded exchange is replayed once for each part of the guardrails, without this part, and
once for each other value of `close_out`. A rule has an effect if the response to the client
changes, or if Temper would send a retry. The reply to such a retry is unknown.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from msgspec.structs import replace

from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from proxy.guardrails.close_out import CloseOut
from proxy.guardrails.offer import Part
from proxy.observability.recording import RecordedExchange, RecordedPolicy, read_recording
from proxy.observability.replay import ReplayResult
from proxy.observability.replay import replay as replay_exchange
from proxy.observability.sentences import cut, escape
from proxy.profiles.files import load_profiles
from temper_evals.arms import PARTS

_MOST_SHOWN = 3


def _unchanged(policy: RecordedPolicy) -> RecordedPolicy:
    return policy


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule to test: a part of the guardrails to turn off, or a setting to change."""

    name: str
    without: frozenset[Part] = frozenset()
    change: Callable[[RecordedPolicy], RecordedPolicy] = _unchanged


@dataclass(slots=True)
class RuleEffect:
    """The exchanges that a rule changes, among the `count` exchanges that it was tested on."""

    rule: Rule
    count: int = 0
    changed: list[ReplayResult] = field(default_factory=list)

    def sentences(self) -> Iterator[str]:
        """Yield the effect in lines that are safe for a terminal."""
        yield f"{self.rule.name}: {len(self.changed)} of {self.count} exchanges are not the same"
        for exchange in self.changed[:_MOST_SHOWN]:
            changes = (
                f"{change.what}: {cut(change.before) or '(nothing)'} -> "
                f"{cut(change.now) or '(nothing)'}"
                for change in exchange.changes
            )
            yield escape(f"    {exchange.id}  {'; '.join(changes)}")

    def document(self) -> JsonObject:
        changed: list[JsonValue] = [
            {"id": exchange.id, "changes": [asdict(change) for change in exchange.changes]}
            for exchange in self.changed
        ]
        return {"rule": self.rule.name, "exchanges": self.count, "changed": changed}


def _with_close_out(setting: CloseOut) -> Callable[[RecordedPolicy], RecordedPolicy]:
    return lambda policy: replace(policy, close_out=setting)


RULES = (
    *(Rule(f"without {part}", frozenset({part})) for part in PARTS),
    *(Rule(f"close_out {setting.value}", change=_with_close_out(setting)) for setting in CloseOut),
)


def try_rules(path: Path, folder: Path | None = None) -> list[RuleEffect]:
    """Replay all exchanges of a recording, once for each rule.

    An exchange is skipped if this version of Temper changes it even under the recorded rules.
    `temper replay` shows these exchanges. Raises `InvalidConfiguration` if the file is not a
    recording.
    """
    profiles = load_profiles(folder)
    effects = [RuleEffect(rule) for rule in RULES]
    try:
        with closing(read_recording(path)) as exchanges:
            same = [
                exchange
                for exchange in exchanges
                if replay_exchange(exchange, profiles).status == "same"
            ]
            for effect in effects:
                _try_rule(
                    effect,
                    same,
                    lambda exchange, rule: replay_exchange(exchange, profiles, rule.without),
                )
    except (ValueError, LookupError) as error:
        raise InvalidConfiguration(str(path), f"is not a valid recording: {error}") from error
    return effects


def _try_rule(
    effect: RuleEffect,
    exchanges: Sequence[RecordedExchange],
    judge: Callable[[RecordedExchange, Rule], ReplayResult],
) -> None:
    for exchange in exchanges:
        policy = effect.rule.change(exchange.policy)
        if policy == exchange.policy and not effect.rule.without:
            continue
        effect.count += 1
        result = judge(replace(exchange, policy=policy), effect.rule)
        if result.changes:
            effect.changed.append(result)
