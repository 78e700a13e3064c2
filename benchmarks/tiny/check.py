"""Compares the network in PyTorch with its file in llama-server: the same model, or not."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch
from tokenizers import Tokenizer

from benchmarks.tiny.model import Shape, Weights, logits
from benchmarks.tiny.sizes import Sample
from proxy.conversation.json import JsonObject
from proxy.processes.launch import LaunchPlan, find_program
from proxy.processes.llama_server import start_llama_server

_TOKENS = 20
_MOST = 0.02
_OPENING = "<|im_start|>assistant\n"


@dataclass(slots=True)
class Agreement:
    """On how many prompts both agree: on the text, its tokens, and what they say greedily.

    `worst` is the largest difference of the first token's log-probability.
    """

    prompts: int = 0
    texts: int = 0
    tokens: int = 0
    replies: int = 0
    worst: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether they agree on everything."""
        return self.is_near and self.replies == self.prompts

    @property
    def is_near(self) -> bool:
        """Whether they agree but for rounding: llama-server rounds what matrices are given, too."""
        return self.texts == self.tokens == self.prompts and self.worst <= _MOST


async def compare(
    network: tuple[Weights, Shape], tokenizer: Tokenizer, model: Path, samples: Iterable[Sample]
) -> Agreement:
    """Ask both for the same; the weights are those that the file holds, rounded as it is."""
    weights, shape = network
    found = Agreement()
    async with AsyncExitStack() as stack:
        plan = LaunchPlan(find_program(), model, shape.window, gpu_layers=0, alias="tiny")
        running = await stack.enter_async_context(start_llama_server(plan))
        client = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=running.base_url,
                headers={"authorization": f"Bearer {running.api_key}"},
                trust_env=False,
                timeout=60,
            )
        )
        for sample in samples:
            prompt = sample.text + _OPENING
            numbers = tokenizer.encode(prompt).ids
            found.prompts += 1
            found.texts += prompt == await _template_text(client, sample)
            asked: JsonObject = {"content": prompt, "parse_special": True}
            cut = (await client.post("/tokenize", json=asked)).json()["tokens"]
            found.tokens += numbers == cut
            said, first = await _greedy(client, numbers)
            own, own_first = _own_greedy(weights, shape, numbers, len(said))
            found.replies += said == own
            found.worst = max(found.worst, abs(first - own_first))
    return found


async def _template_text(client: httpx.AsyncClient, sample: Sample) -> str:
    asked: JsonObject = {
        "messages": [{"role": "user", "content": sample.user}],
        "tools": sample.tools,
    }
    return str((await client.post("/apply-template", json=asked)).json()["prompt"])


async def _greedy(client: httpx.AsyncClient, numbers: list[int]) -> tuple[list[int], float]:
    asked = {
        "prompt": numbers,
        "n_predict": _TOKENS,
        "temperature": 0,
        "n_probs": 1,
        "cache_prompt": False,
        "return_tokens": True,
    }
    answer = (await client.post("/completion", json=asked)).json()
    return answer["tokens"], answer["completion_probabilities"][0]["logprob"]


def _own_greedy(
    weights: Weights, shape: Shape, numbers: list[int], count: int
) -> tuple[list[int], float]:
    known, first = [*numbers], 0.0
    for place in range(count):
        with torch.no_grad():
            chances = logits(weights, shape, torch.tensor([known]))[0, -1].log_softmax(-1)
        best = int(chances.argmax())
        first = float(chances[best]) if place == 0 else first
        known.append(best)
    return known[len(numbers) :], first
