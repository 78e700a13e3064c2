"""What clients of any language got, in the same words, and what the chat completions SDK gets."""

from dataclasses import dataclass
from typing import cast

import openai
from openai import omit
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam

from proxy.conversation import json
from tests.fakes.scripts import TOOLS

POLICY_HEADER = "x-temper-text-policy"


@dataclass(frozen=True)
class SdkAnswer:
    """An answer without the ids in it; `reason` is that of chat completions."""

    text: str = ""
    thoughts: str = ""
    calls: tuple[tuple[str, json.JsonValue], ...] = ()
    reason: str = "stop"


@dataclass(frozen=True)
class SdkQuestion:
    """What is asked, by whichever SDK."""

    prompt: str
    policy: str = "respond"
    has_tools: bool = True
    max_tokens: int = 400

    @property
    def headers(self) -> dict[str, str]:
        """The headers of Temper's own."""
        return {POLICY_HEADER: self.policy}


def chat_answer(url: str, asked: SdkQuestion) -> SdkAnswer:
    """Ask by chat completions."""
    offered = cast("list[ChatCompletionToolUnionParam]", list(TOOLS))
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": asked.prompt}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        completion = client.chat.completions.create(
            model="any",
            messages=messages,
            max_tokens=asked.max_tokens,
            tools=offered if asked.has_tools else omit,
            extra_headers=asked.headers,
        )
    (choice,) = completion.choices
    calls = [call for call in choice.message.tool_calls or [] if call.type == "function"]
    return SdkAnswer(
        choice.message.content or "",
        str((choice.message.model_extra or {}).get("reasoning_content", "")),
        tuple((call.function.name, json.parse(call.function.arguments)) for call in calls),
        choice.finish_reason,
    )
