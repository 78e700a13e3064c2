"""Any engine that speaks OpenAI's chat completions."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from proxy.backends.capabilities import directives
from proxy.backends.http_backend import HttpBackend, OutgoingQuestion
from proxy.backends.reply_reading import ReplyReading
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonValue
from proxy.conversation.requests import Question
from proxy.dialects.openai_chat.encode import encode_question

Directives: TypeAlias = Callable[[Question], Mapping[str, JsonValue]]

CHAT = "/v1/chat/completions"


class OpenAICompatible(HttpBackend):
    """An engine behind `/v1/chat/completions`; `directives` are what its adapter adds."""

    def __init__(self, connection: BackendClient, directives: Directives = directives) -> None:
        super().__init__(connection)
        self._directives = directives

    async def prepare(self, question: Question) -> OutgoingQuestion:
        return OutgoingQuestion(CHAT, self.body_of(question), question, question)

    def new_reading(self) -> ReplyReading:
        return ReplyReading()

    def body_of(self, question: Question) -> bytes:
        """Write what is sent for a question."""
        return encode_question(question, self._directives(question))
