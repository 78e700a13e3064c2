"""Builds a GGUF of about a megabyte with handwritten answers, for the demonstration and tests.

It is not a language model, and its answers show nothing about language models. But a real
llama-server runs it like any other model, so templates, tool parsers, grammars, the cache and
cancellation can be observed. Requires gguf and numpy from the `embedded` extra.
"""

# Theory of operation
# -------------------
# The file is a qwen2 transformer with one layer and a residual stream of 192 dimensions:
#
#   0 .. 127    CODE      the current chunk of a script, as a random unit vector
#   128 .. 189  TRIGGER   one dimension for each trigger word
#   190         START     the current token belongs to the prompt, so an answer begins next
#   191         END       the current token is the last chunk of a script, so the answer ends
#
# Vocabulary. 256 bytes and a few merges, so that any prompt can be written; ChatML's control
# tokens; every trigger word as a user-defined token, which the tokenizer finds anywhere in a
# prompt, even in the middle of a word; and every chunk of every script as an ordinary token that
# no merge produces, so that it occurs in answers only. No two tokens may have the same text: if a
# chunk would repeat the text of another token, the chunk is extended until its text is unique.
#
# Attention finds the last trigger. The keys of all tokens but triggers are zero, and the query is
# the same at every position. Rotary position encoding turns a key by an angle that grows with its
# position, so the score of a trigger at distance d is T * cos(_NEAR + d * step), with step so
# small that the angle stays below a right angle over the whole context: every trigger beats every
# other token (score 0), and the nearest trigger beats the others. The value carries the trigger's
# own dimension into the stream. All 32 pairs of the head turn at the same low rate (frequency base
# 1 and a linear scale), but start at different phases. The rounding errors of the cache's 16-bit
# keys therefore differ between the pairs and average out, so that triggers a few tokens apart have
# distinguishable scores.
#
# The output matrix is a Markov chain. Row y holds the code of the chunk before y, so chunk x makes
# its successor the likeliest token by far; END makes the end-of-turn token the likeliest. A script
# that never stops has its last chunk as its own successor. At START the fetched trigger makes the
# first chunk of its script win; without a trigger, that of `default` wins. Two random codes of 128
# dimensions have a cosine below one half, so the highest logit is far above the others (by dozens
# or more), and no temperature in use changes an answer.
#
# If a grammar masks the next chunk, the remaining logits are noise. So an attempt under a grammar
# needs a script that satisfies the grammar; its trigger is a phrase that only the prompt of this
# attempt contains.

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter, RopeScalingType

from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.vocabulary import (
    DEFAULT,
    END_OF_TEXT,
    END_OF_TURN,
    MERGES,
    TokenScript,
    Vocabulary,
    basic_vocabulary,
    trigger_token,
    write_scripts,
)

FloatArray = npt.NDArray[np.float32]

_CODE = 128
_MOST_TRIGGERS = 62
_START = _CODE + _MOST_TRIGGERS
_END = _START + 1
_WIDTH = _END + 1
_HEAD = 64
_HEADS = _WIDTH // _HEAD
_PAIRS = _HEAD // 2
_FEED_FORWARD = 32

_NEAR = 0.4  # angle between a query and the key of a trigger at distance 0
_SPAN = 1.1  # growth of the angle over the whole context; _NEAR + _SPAN is below a right angle
_QUERY = 5e3  # length of the query in each pair
_SHARPNESS = 300.0  # logit of the next chunk if the stream has only the code of its predecessor


def build_scripted_model(
    path: Path,
    scripts: Mapping[str, str | Sequence[str]],
    *,
    context_tokens: int = 8192,
    template: str | None = None,
) -> None:
    r"""Write a model to `path` that answers with the script of the last trigger in the prompt.

    The keys of `scripts` are the triggers; a trigger can be any text. The key `default` is
    required: its script answers prompts without a trigger. A script is a text, or a sequence of
    chunks if a test depends on the streamed deltas (neighboring chunks are joined if another
    token has the same text). A script that ends in "\0" never stops. Raises ValueError for
    scripts that cannot be built.
    """
    if DEFAULT not in scripts or len(scripts) - 1 > _MOST_TRIGGERS:
        raise ValueError(f"there must be a default and at most {_MOST_TRIGGERS} triggers")
    vocabulary = basic_vocabulary()
    triggers = {
        trigger: trigger_token(vocabulary, trigger) for trigger in scripts if trigger != DEFAULT
    }
    token_scripts = write_scripts(vocabulary, scripts)
    embedding, output = _markov_chain(vocabulary, triggers, token_scripts)

    writer = GGUFWriter(path, "qwen2")
    _describe_architecture(writer, context_tokens)
    _describe_tokenizer(writer, vocabulary, template or chat_template())
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", np.ones(_WIDTH, np.float32))
    writer.add_tensor("output.weight", output)
    for name, weights in (_attention(len(triggers)) | _idle_feed_forward()).items():
        writer.add_tensor(f"blk.0.{name}", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _markov_chain(
    vocabulary: Vocabulary, triggers: Mapping[str, int], scripts: Mapping[str, TokenScript]
) -> tuple[FloatArray, FloatArray]:
    """Return the embedding and the output matrix, one row per token."""
    size = len(vocabulary.tokens)
    end_of_turn = vocabulary.number(END_OF_TURN)
    codes = np.random.default_rng(11).standard_normal((size, _CODE)).astype(np.float32)
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    embedding = np.zeros((size, _WIDTH), np.float32)
    output = np.zeros((size, _WIDTH), np.float32)

    embedding[:, _START] = 1.0
    output[end_of_turn, _END] = 1.5
    for script in scripts.values():
        for index, chunk in enumerate(script.chunks):
            embedding[chunk, _START] = 0.0
            embedding[chunk, :_CODE] = codes[chunk]
            if index > 0:
                output[chunk, :_CODE] += codes[script.chunks[index - 1]]
        if script.chunks and script.repeats:
            output[script.chunks[-1], :_CODE] += codes[script.chunks[-1]]
        elif script.chunks:
            embedding[script.chunks[-1], _END] = 1.0

    for dimension, (trigger, token) in enumerate(triggers.items(), start=_CODE):
        embedding[token, :] = 0.0
        embedding[token, dimension] = 1.0
        output[_first(scripts[trigger], end_of_turn), dimension] = 0.5
    output[_first(scripts[DEFAULT], end_of_turn), _START] = 0.25
    # the norm before this matrix scales a vector of length 1 to the length sqrt(_WIDTH)
    return embedding, output * np.float32(_SHARPNESS / np.sqrt(_WIDTH))


def _first(script: TokenScript, end_of_turn: int) -> int:
    return script.chunks[0] if script.chunks else end_of_turn


def _attention(trigger_count: int) -> dict[str, FloatArray]:
    """Return weights: the first head fetches the last trigger's dimension, the others are zero."""
    phases = np.arange(_PAIRS) * (2 * np.pi / _PAIRS)
    triggers = slice(_CODE, _CODE + trigger_count)
    unit = 1 / np.sqrt(_WIDTH)  # undoes the norm, see _markov_chain

    query = np.zeros(_HEADS * _HEAD, np.float32)
    query[:_HEAD] = _QUERY * np.hstack([np.cos(phases + _NEAR), np.sin(phases + _NEAR)])
    key = np.zeros((_HEAD, _WIDTH), np.float32)
    key[:, triggers] = np.hstack([np.cos(phases), np.sin(phases)])[:, None] * unit
    value = np.zeros((_HEAD, _WIDTH), np.float32)
    result = np.zeros((_WIDTH, _HEADS * _HEAD), np.float32)
    for index in range(trigger_count):
        value[index, _CODE + index] = unit
        result[_CODE + index, index] = 1.0
    return {
        "attn_norm.weight": np.ones(_WIDTH, np.float32),
        "attn_q.weight": np.zeros((_HEADS * _HEAD, _WIDTH), np.float32),
        "attn_q.bias": query,
        "attn_k.weight": key,
        "attn_k.bias": np.zeros(_HEAD, np.float32),
        "attn_v.weight": value,
        "attn_v.bias": np.zeros(_HEAD, np.float32),
        "attn_output.weight": result,
    }


def _idle_feed_forward() -> dict[str, FloatArray]:
    return {
        "ffn_norm.weight": np.ones(_WIDTH, np.float32),
        "ffn_gate.weight": np.zeros((_FEED_FORWARD, _WIDTH), np.float32),
        "ffn_up.weight": np.zeros((_FEED_FORWARD, _WIDTH), np.float32),
        "ffn_down.weight": np.zeros((_WIDTH, _FEED_FORWARD), np.float32),
    }


def _describe_architecture(writer: GGUFWriter, context_tokens: int) -> None:
    writer.add_name("scripted")
    writer.add_context_length(context_tokens)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1.0)
    writer.add_rope_scaling_type(RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(context_tokens / _SPAN)
    writer.add_file_type(0)


def _describe_tokenizer(writer: GGUFWriter, vocabulary: Vocabulary, template: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types([int(kind) for kind in vocabulary.kinds])
    writer.add_token_merges(list(MERGES))
    writer.add_eos_token_id(vocabulary.number(END_OF_TURN))
    writer.add_pad_token_id(vocabulary.number(END_OF_TEXT))
    writer.add_bos_token_id(vocabulary.number(END_OF_TEXT))
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(template)
