"""The embedded llama-server: xllamacpp, with the flags of llama-server that a launch plan uses.

It runs in a separate process (`python -m proxy.processes.embedded`), because an abort in C++ would
otherwise end the proxy. It has the same HTTP API as llama-server.
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
# flag of llama-server -> member of `CommonParams.sampling`
_SAMPLING = {
    "--temp": "temp",
    "--top-p": "top_p",
    "--top-k": "top_k",
    "--min-p": "min_p",
    "--repeat-penalty": "penalty_repeat",
    "--presence-penalty": "penalty_present",
}

_LOG_SECONDS = 0.2  # time for llama.cpp to write its log before the process ends
# value of --flash-attn -> the end of an enumerator's name in xllamacpp
_FLASH_ATTENTION = {"on": "enabled", "off": "disabled", "auto": "auto"}


def arguments(command_line: Sequence[str]) -> argparse.Namespace:
    """Parse the flags into values for xllamacpp's `CommonParams`.

    Each `dest` is the name of a member of `CommonParams`, or of its member `sampling`.
    """
    parser = argparse.ArgumentParser(prog="embedded llama-server")
    add = parser.add_argument
    add("-m", "--model", dest="path", required=True)
    add("-c", "--ctx-size", dest="n_ctx", type=int, default=0)
    add("-np", "--parallel", dest="n_parallel", type=int, default=1)
    add("-a", "--alias", dest="model_alias", type=lambda name: {name}, default=set())
    add("--host", dest="hostnames", type=lambda name: [name], default=["127.0.0.1"])
    add("--port", type=int, default=0)
    add("-ngl", "--gpu-layers", dest="n_gpu_layers", type=int)
    add("-t", "--threads", type=int)
    add("-fa", "--flash-attn", dest="flash_attn_type", choices=tuple(_FLASH_ATTENTION))
    add("-ctk", "--cache-type-k")
    add("-ctv", "--cache-type-v")
    for flag, name in _SAMPLING.items():
        add(flag, dest=name, type=int if flag == "--top-k" else float)
    add("--slots", dest="endpoint_slots", action="store_true")
    add("--metrics", dest="endpoint_metrics", action="store_true")
    # llama.cpp appends the file name to this value without a separator
    add("--slot-save-path", default="", type=lambda folder: f"{folder}{os.sep}")
    add("--jinja", dest="use_jinja", action="store_true")
    add("--no-webui", dest="ui", action="store_false")
    add("--context-shift", dest="ctx_shift", action="store_true")
    add("--embedding", "--embeddings", action="store_true")
    add("--pooling", dest="pooling_type", choices=("none", "mean", "cls", "last"))
    add("--sleep-idle-seconds", type=int, default=-1)
    add("--chat-template", default="")
    return parser.parse_args(command_line)


def serve(options: argparse.Namespace, api_key: str) -> None:
    """Serve until SIGTERM; raises RuntimeError or ValueError if the model cannot be loaded."""
    import xllamacpp  # an optional package; parsing flags does not need it

    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.path
    values: dict[str, object] = {**vars(options), **resolve_enumerators(options)}
    values |= {"api_keys": [api_key] if api_key else [], "cors_origins": "localhost"}
    for name, value in values.items():
        target = parameters.sampling if name in _SAMPLING.values() else parameters
        if value is not None and hasattr(target, name):  # some versions of xllamacpp lack a member
            setattr(target, name, value)

    # as in llama-server, --threads applies to generating tokens and to reading prompts (batches)
    if options.threads is not None:
        parameters.cpuparams.n_threads = options.threads
        parameters.cpuparams_batch.n_threads = options.threads

    server = xllamacpp.Server(parameters)  # returns when the model is loaded
    # The handler is installed only now. While C++ loads the model, a Python handler would not run,
    # and the default action of SIGTERM is better: it ends the process at once.
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    sys.stderr.write(f"listening on {server.listening_address}\n")
    sys.stderr.flush()
    stop.wait()
    # an orderly shutdown would wait minutes for running generations
    os._exit(0)


def list_devices() -> None:
    import xllamacpp

    processor = xllamacpp.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    devices = (item for item in xllamacpp.get_device_info() if item["type"] != processor)
    lines = (f"  {device['name']}: {device['description']}" for device in devices)
    sys.stdout.write("\n".join([DEVICES_TITLE, *lines, ""]))


def resolve_enumerators(options: argparse.Namespace) -> dict[str, object]:
    """Convert the options that are enumerations in xllamacpp; omit options that are not set."""
    from xllamacpp import ggml_type, llama_flash_attn_type, llama_pooling_type

    kinds = {
        "flash_attn_type": (llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE"),
        "pooling_type": (llama_pooling_type, "LLAMA_POOLING_TYPE"),
        "cache_type_k": (ggml_type, "GGML_TYPE"),
        "cache_type_v": (ggml_type, "GGML_TYPE"),
    }
    return {
        name: getattr(kind, f"{prefix}_{_FLASH_ATTENTION.get(word, word)}".upper())
        for name, (kind, prefix) in kinds.items()
        if (word := getattr(options, name)) is not None
    }


def main() -> None:
    if sys.argv[1:] == [DEVICES_FLAG]:
        list_devices()
        return
    options = arguments(sys.argv[1:])
    try:
        serve(options, os.environ.get("LLAMA_API_KEY", ""))
    except (ImportError, RuntimeError, ValueError) as problem:
        # llama.cpp logs from a separate thread, and only its log has the reason
        time.sleep(_LOG_SECONDS)
        sys.exit(f"embedded llama-server: {problem}")


if __name__ == "__main__":
    main()
