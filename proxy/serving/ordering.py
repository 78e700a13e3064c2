"""Which of the operator's rules of order hold for a request: those of its model, by any name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.conversation.requests import Request
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.errors import UnknownModel
from proxy.facts import RuleSkipped
from proxy.guardrails.steps import feasible
from proxy.guardrails.transcript import completed_calls
from proxy.profiles.known_model import KnownModel
from proxy.serving.services import Service, Services


@dataclass(frozen=True, slots=True)
class Ordering:
    """The rules of all models, each by one of the model's names.

    A rule holds if a client that asked by its name would get the same model.
    """

    services: Services
    rules: Mapping[str, Workflow] = field(default_factory=dict)

    async def rules_for(
        self, request: Request, service: Service, known: KnownModel
    ) -> tuple[Workflow, tuple[RuleSkipped, ...]]:
        """Return the rules that the model can keep, and which it cannot with what is offered."""
        if not self.rules or not request.tools or request.workflow != NO_RULES:
            return NO_RULES, ()
        rules = await self._rules_of(request.model, service, known)
        offered = [tool.name for tool in request.tools]
        rules, missing = feasible(rules, offered, completed_calls(request.messages))
        return rules, tuple(map(RuleSkipped, missing))

    async def _rules_of(self, model: str, service: Service, known: KnownModel) -> Workflow:
        if model in self.rules:
            return self.rules[model]
        for name, rules in self.rules.items():
            if self._leads_to(service, name):
                other = known if service.name else await service.look_up(name)
                if other.identity == known.identity:
                    return rules
        return NO_RULES

    def _leads_to(self, service: Service, name: str) -> bool:
        try:
            return self.services.find(name) is service
        except UnknownModel:
            return False
