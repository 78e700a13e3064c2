"""The embedded llama-server: xllamacpp behind the few flags that a launch plan uses.

Run as `python -m proxy.processes.embedded`, in a process of its own because an abort in C++ would
take the proxy along. It speaks the same HTTP as llama-server, so nobody else need know it.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

DEVICES_FLAG = "--list-devices"
DEVICES_TITLE = "Available devices:"
_SAMPLING = {
    "--temp": "temp",
    "--top-p": "top_p",
    "--top-k": "top_k",
    "--min-p": "min_p",
    "--repeat-penalty": "penalty_repeat",
    "--presence-penalty": "penalty_present",
}

_LAST_WORDS_SECONDS = 0.2
_FLASH_ATTENTION = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}


def arguments(command_line: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="embedded llama-server")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-c", "--ctx-size", type=int, default=0)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("-a", "--alias", default="")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("-ngl", "--gpu-layers", type=int)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("-fa", "--flash-attn", choices=tuple(_FLASH_ATTENTION))
    parser.add_argument("-ctk", "--cache-type-k")
    parser.add_argument("-ctv", "--cache-type-v")
    for flag in _SAMPLING:
        parser.add_argument(flag, type=int if flag == "--top-k" else float)
    for flag in ("--slots", "--metrics", "--jinja", "--no-webui", "--context-shift"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--embedding", "--embeddings", action="store_true")
    parser.add_argument("--pooling", choices=("none", "mean", "cls", "last"))
    parser.add_argument("--sleep-idle-seconds", type=int, default=-1)
    parser.add_argument("--chat-template", default="")
    return parser.parse_args(command_line)


def serve(options: argparse.Namespace, api_key: str) -> None:
    """Serve until SIGTERM; raises RuntimeError or ValueError if the model cannot be loaded."""
    import xllamacpp  # an extra: the flags can be read without it

    wanted: dict[str, object] = {
        "hostnames": [options.host],
        "port": options.port,
        "n_ctx": options.ctx_size,
        "n_parallel": options.parallel,
        "use_jinja": options.jinja,
        "endpoint_slots": options.slots,
        "endpoint_metrics": options.metrics,
        "api_keys": [api_key] if api_key else [],
        "model_alias": {options.alias} if options.alias else set(),
        "ui": not options.no_webui,
        "embedding": options.embedding,
        "cors_origins": "localhost",
        "sleep_idle_seconds": options.sleep_idle_seconds,
        "ctx_shift": options.context_shift,
        "chat_template": options.chat_template,
    }
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    for name, value in {**wanted, **tuning(options)}.items():
        if hasattr(parameters, name):  # builds differ
            setattr(parameters, name, value)

    for flag, name in _SAMPLING.items():
        value = getattr(options, flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            setattr(parameters.sampling, name, value)

    if options.threads is not None:
        parameters.cpuparams.n_threads = options.threads
        parameters.cpuparams_batch.n_threads = options.threads

    server = xllamacpp.Server(parameters)  # returns when the model is loaded
    # until here SIGTERM ends the process at once; C++ would keep a Python handler waiting
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    sys.stderr.write(f"listening on {server.listening_address}\n")
    sys.stderr.flush()
    stop.wait()
    # an orderly end waits for running generations, for minutes; their clients see the stream end
    os._exit(0)


def list_devices() -> None:
    import xllamacpp

    processor = xllamacpp.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    found = (one for one in xllamacpp.get_device_info() if one["type"] != processor)
    lines = (f"  {one['name']}: {one['description']}" for one in found)
    sys.stdout.write("\n".join([DEVICES_TITLE, *lines, ""]))


def tuning(options: argparse.Namespace) -> dict[str, object]:
    from xllamacpp import ggml_type, llama_flash_attn_type, llama_pooling_type

    chosen: dict[str, object] = {}
    if options.gpu_layers is not None:
        chosen["n_gpu_layers"] = options.gpu_layers
    if options.flash_attn is not None:
        word = _FLASH_ATTENTION[options.flash_attn]
        chosen["flash_attn_type"] = getattr(llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{word}")
    if options.pooling is not None:
        word = options.pooling.upper()
        chosen["pooling_type"] = getattr(llama_pooling_type, f"LLAMA_POOLING_TYPE_{word}")
    for name in ("cache_type_k", "cache_type_v"):
        if (kind := getattr(options, name)) is not None:
            chosen[name] = getattr(ggml_type, f"GGML_TYPE_{kind.upper()}")
    return chosen


def main() -> None:
    if sys.argv[1:] == [DEVICES_FLAG]:
        list_devices()
        return
    options = arguments(sys.argv[1:])
    try:
        serve(options, os.environ.get("LLAMA_API_KEY", ""))
    except (ImportError, RuntimeError, ValueError) as problem:
        # llama.cpp writes its log from a thread of its own, and the reason stands there alone
        time.sleep(_LAST_WORDS_SECONDS)
        sys.exit(f"embedded llama-server: {problem}")


if __name__ == "__main__":
    main()
