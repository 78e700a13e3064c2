"""Why a llama-server did not start or ended: its log in, a sentence with a remedy out. Pure."""

import signal
from collections.abc import Sequence

from proxy.errors import LaunchFailed

# What llama.cpp writes in each case, and what it means for whoever wanted the server. All these
# failures exit with 1, so the words are the only thing that tells them apart. Several violations
# follow one another: the first in this order is the cause.
_MEANINGS = {
    "couldn't bind HTTP server socket": (
        "could not open a port on 127.0.0.1: allow this user to listen on loopback"
    ),
    "failed to open GGUF file": (
        "could not open the model file: check the path and the read permission"
    ),
    "invalid magic characters": (
        "was given a model file that is not a GGUF file: convert it or download the GGUF version"
    ),
    "failed to read magic": "was given an empty model file: download it again",
    "not within the file bounds": "found the model file cut off: download it again",
    "failed to read key-value pairs": "found the model file cut off or damaged: download it again",
    "unknown model architecture": (
        "is too old for this model's architecture: update llama.cpp or the embedded server"
    ),
    "failed to allocate buffer for kv cache": (
        "ran out of memory for the context: use a smaller context or fewer slots"
    ),
    "out of memory": "ran out of memory: use a smaller context, fewer slots or fewer GPU layers",
    "unable to allocate": "ran out of memory for the model: use a smaller model or quantisation",
    "requires flash": (  # "V cache quantization requires flash_attn", and newer words
        "needs flash attention for a quantised V cache: set flash_attention to on, or "
        "cache_type_v to f16"
    ),
    "error: invalid argument": (
        "did not understand an argument ({said}): correct extra_arguments, or update llama.cpp"
    ),
    "unrecognized arguments": (
        "knows only a few arguments where it is embedded, and not these ({said}): remove them "
        "from extra_arguments, or install llama-server"
    ),
    "failed to resolve commit": (
        "could not download the model: check hf_repo and the network, and HF_TOKEN for a private "
        "repository"
    ),
}

# what a start has complained of has been overcome when the server became ready
_AT_THE_END = 20
_COMPLAINTS = ("assert", "error", "terminate called", "fatal")


def explain_failure(program: str, log_lines: tuple[str, ...]) -> LaunchFailed:
    """Say why the server that wrote `log_lines` ended before it was ready."""
    meaning, problem = _find_meaning(log_lines), "ended before it was ready without a word"
    if log_lines:
        problem = f"ended before it was ready; its last words: {_last_words(log_lines)}"
    return LaunchFailed(program, meaning or problem, log_lines, is_lasting=meaning is not None)


def explain_exit(exit_code: int, log_lines: Sequence[str]) -> str:
    """Say without its subject how a ready server ended; `exit_code` is negative for a signal."""
    if (meaning := _find_meaning(log_lines[-_AT_THE_END:])) is not None:
        return meaning
    if exit_code == -signal.SIGKILL:
        return "was killed (SIGKILL), by somebody or because the machine ran out of memory"
    signals = {-one.value: one.name for one in signal.Signals}
    unnamed = f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"
    said = f"; its last words: {_last_words(log_lines)}" if log_lines else ""
    return f"crashed ({signals.get(exit_code, unnamed)}){said}"


def _find_meaning(log_lines: Sequence[str]) -> str | None:
    for needle, meaning in _MEANINGS.items():
        for line in log_lines:
            _, found, said = line.lower().partition(needle.lower())
            if found:
                words = line[len(line) - len(said) :].strip(" :")
                return meaning.replace("{said}", words)
    return None


def _last_words(log_lines: Sequence[str]) -> str:
    """Find the violation: behind it a crashing program often lists where it was."""
    for line in reversed(log_lines[-_AT_THE_END:]):
        if any(word in line.lower() for word in _COMPLAINTS):
            return line
    return log_lines[-1]
