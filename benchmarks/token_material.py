"""What tokens are counted in: chat templates, a vocabulary, models too small to speak, histories.

The model has weights of zero and answers nothing: counting needs only its tokenizer and template.
"""

import argparse
import inspect
import json as standard_json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.vocabulary import byte_alphabet

_CHATML = r"""
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {{- messages[0].content if messages[0].role == 'system' else 'You are a helpful assistant.' }}
  {{- '\n\n# Tools\n\nYou may call one or more functions.\n\n<tools>' }}
  {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{% endfor %}
  {{- '\n</tools>\n\nReturn each call as JSON within <tool_call></tool_call> tags.<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
  {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- else %}
  {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
  {%- elif message.role == 'assistant' %}
    {{- '<|im_start|>assistant' }}
    {%- if message.content %}{{- '\n' + message.content }}{% endif %}
    {%- for call in message.tool_calls or [] %}
      {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
      {{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- elif message.role == 'tool' %}
    {%- if messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
    {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{% endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""

_LLAMA = r"""
{{- bos_token }}
{%- set ns = namespace(system='', told=false) %}
{%- if messages[0].role == 'system' %}{% set ns.system = messages[0].content %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}
{%- if tools %}{{- 'Environment: ipython\n' }}{% endif %}
{{- 'Cutting Knowledge Date: December 2023\n\n' + ns.system + '<|eot_id|>' }}
{%- for message in messages %}
  {%- if message.role == 'user' %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' }}
    {%- if tools and not ns.told %}
      {%- set ns.told = true %}
      {{- 'Given these functions, answer with JSON for a call.\n\n' }}
      {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\n\n' }}{% endfor %}
    {%- endif %}
    {{- message.content + '<|eot_id|>' }}
  {%- elif message.role == 'assistant' %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
    {%- if message.content %}{{- message.content }}{% endif %}
    {%- for call in message.tool_calls or [] %}
      {{- '{"name": "' + call.function.name + '", "parameters": ' }}
      {{- call.function.arguments | tojson }}{{- '}' }}
    {%- endfor %}
    {{- '<|eot_id|>' }}
  {%- elif message.role == 'tool' %}
    {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}"""

TEMPLATES = {"demo": chat_template(), "chatml": _CHATML.strip(), "llama3": _LLAMA.strip()}
_CONTROL = (
    "<|begin_of_text|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
_MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_WIDTH = 32

SENTENCES = (
    "Look at the failing test first and tell me what it expects.",
    "Le fichier a été supprimé hier, où est passée la sauvegarde ?",
    "Größere Änderungen übernehmen wir erst nächste Woche.",
    "请先列出目录里的文件。告诉我哪个最大。",
    "このエラーはなぜ起きるのですか。ログを見てください。",
    "Проверь, пожалуйста, почему сборка падает на втором шаге.",
    "Done ✅ — 3 of 4 passed 🎉, the last one is flaky 😅.",
    "The weather in São Paulo: 21 °C, 63 % humidity.",
    "ERROR 2026-03-14T09:26:53.589Z worker-7 f3a9c1e0b7 connection reset by peer",
    "/usr/lib/python3/site-packages/reader/scanner.py:118: in feed",
    '{"id": 4711, "tags": ["a", "b"], "price": 19.99, "stock": null}',
    "    return [value for value in values if value is not None]",
)
_NAMES = ("read_file", "list_folder", "run_tests", "search_code", "get_weather", "edit_file")


@dataclass(frozen=True, slots=True)
class Words:
    """A byte-level vocabulary; `merges` are pairs of tokens, the first to be joined first."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]


def spoken_words(most: int = 3000) -> Words:
    """Make a vocabulary of the commonest words of the standard library's own words.

    A word is joined letter by letter from its front, so texts come at three to four characters
    a token, as with a vocabulary that was trained.
    """
    text = "\n".join([inspect.getsource(argparse), inspect.getsource(inspect), *SENTENCES])
    found = Counter(re.findall(r" ?[A-Za-z]+| {2,}|\n+|[^\sA-Za-z]+", text))
    tokens = dict.fromkeys(_ALPHABET.values())
    merges: dict[str, None] = {}
    for word, _ in found.most_common(most):
        spelled = "".join(_ALPHABET[byte] for byte in word.encode()[:16])
        for end in range(1, len(spelled)):
            tokens[spelled[: end + 1]] = None
            merges[f"{spelled[:end]} {spelled[end]}"] = None
    return Words(tuple(tokens), tuple(merges))


_ALPHABET = byte_alphabet()


def build_silent_model(path: Path, template: str, words: Words, *, context_tokens: int) -> None:
    """Write a model that can count but has nothing to say."""
    kinds = [TokenType.NORMAL] * len(words.tokens)
    kinds += [TokenType.CONTROL] * len(_CONTROL) + [TokenType.USER_DEFINED] * len(_MARKERS)
    tokens = [*words.tokens, *_CONTROL, *_MARKERS]
    writer = GGUFWriter(path, "qwen2")
    writer.add_context_length(context_tokens)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_merges(list(words.merges))
    writer.add_bos_token_id(tokens.index("<|begin_of_text|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(value="bos_token" in template)
    writer.add_chat_template(template)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), _WIDTH), np.float16))
    writer.add_tensor("output_norm.weight", np.ones(_WIDTH, np.float32))
    for name, shape in _LAYER.items():
        writer.add_tensor(f"blk.0.{name}", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_LAYER: dict[str, tuple[int, ...]] = {
    "attn_norm.weight": (_WIDTH,),
    "attn_q.weight": (_WIDTH, _WIDTH),
    "attn_q.bias": (_WIDTH,),
    "attn_k.weight": (_WIDTH, _WIDTH),
    "attn_k.bias": (_WIDTH,),
    "attn_v.weight": (_WIDTH, _WIDTH),
    "attn_v.bias": (_WIDTH,),
    "attn_output.weight": (_WIDTH, _WIDTH),
    "ffn_norm.weight": (_WIDTH,),
    "ffn_gate.weight": (_WIDTH, _WIDTH),
    "ffn_up.weight": (_WIDTH, _WIDTH),
    "ffn_down.weight": (_WIDTH, _WIDTH),
}


class Histories:
    """Makes up histories of agents; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - material, not secrets
        self._calls = 0

    def body(self) -> JsonObject:
        """Make a request."""
        messages: list[JsonValue] = []
        if self._random.random() < 0.7:
            messages.append({"role": "system", "content": self._text(4000)})
        for _ in range(self._random.randint(0, 5)):
            messages += [self._user(), *self._rounds(), self._assistant()]
        messages += [self._user(), *self._rounds()]
        body: JsonObject = {"messages": messages}
        if tools := [self._tool(number) for number in range(self._random.randint(0, 12))]:
            body["tools"] = tools
        return body

    def _user(self) -> JsonValue:
        return {"role": "user", "content": self._text(1500)}

    def _assistant(self) -> JsonValue:
        return {"role": "assistant", "content": self._text(1500)}

    def _rounds(self) -> list[JsonValue]:
        """Make calls and their results."""
        made: list[JsonValue] = []
        for _ in range(self._random.choice((0, 0, 1, 1, 2, 4))):
            calls = [self._call() for _ in range(self._random.choice((1, 1, 1, 2, 3)))]
            content = self._text(200) if self._random.random() < 0.4 else None
            made.append({"role": "assistant", "content": content, "tool_calls": list(calls)})
            made += [
                {"role": "tool", "tool_call_id": call["id"], "content": self._text(6000)}
                for call in calls
            ]
        return made

    def _call(self) -> JsonObject:
        self._calls += 1
        arguments: JsonObject = {"path": f"src/{self._text(20)}"}
        if self._random.random() < 0.5:
            arguments |= {"lines": [1, self._calls], "new_text": self._text(1000), "dry": False}
        separators = self._random.choice(((",", ":"), (", ", ": ")))
        text = standard_json.dumps(arguments, ensure_ascii=False, separators=separators)
        name = self._random.choice(_NAMES)
        return {
            "id": f"call_{self._calls}",
            "type": "function",
            "function": {"name": name, "arguments": text},
        }

    def _tool(self, number: int) -> JsonValue:
        properties: JsonObject = {
            f"option_{place}": {"type": "string", "description": self._text(120)}
            for place in range(self._random.randint(0, 6))
        }
        parameters: JsonObject = {"type": "object", "properties": properties}
        name = f"{self._random.choice(_NAMES)}_{number}"
        described: JsonObject = {"name": name, "description": self._text(400)}
        return {"type": "function", "function": {**described, "parameters": parameters}}

    def _text(self, most: int) -> str:
        """Make a text of up to `most` characters, short ones as often as long ones."""
        length = int(8 * (most / 8) ** self._random.random())
        return "".join(self._pieces(length))[:length]

    def _pieces(self, length: int) -> Sequence[str]:
        pieces: list[str] = []
        while length > 0:
            pieces += (self._random.choice(SENTENCES), self._random.choice((" ", "\n", "\n\n")))
            length -= len(pieces[-2]) + 1
        return pieces
