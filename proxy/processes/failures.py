"""Why a llama-server did not start: its log in, one sentence with a remedy out. Pure."""

from collections.abc import Sequence

# What llama.cpp writes in each case, and what it means for whoever wanted the server. All these
# failures exit with 1, so the words are the only thing that tells them apart.
_MEANINGS = (
    (
        "couldn't bind HTTP server socket",
        "could not open a port on 127.0.0.1: allow this user to listen on loopback",
    ),
    (
        "failed to open GGUF file",
        "could not open the model file: check the path and the read permission",
    ),
    (
        "invalid magic characters",
        "was given a model file that is not a GGUF file: convert it or download the GGUF version",
    ),
    (
        "failed to read magic",
        "was given an empty model file: download it again",
    ),
    (
        "not within the file bounds",
        "found the model file cut off: download it again",
    ),
    (
        "failed to read key-value pairs",
        "found the model file cut off or damaged: download it again",
    ),
    (
        "unknown model architecture",
        "is too old for this model's architecture: update llama.cpp or the embedded server",
    ),
    (
        "failed to allocate buffer for kv cache",
        "ran out of memory for the context: use a smaller context or fewer slots",
    ),
    (
        "unable to allocate",
        "ran out of memory for the model: use a smaller model or quantisation",
    ),
    (
        "error: invalid argument",
        "did not understand one of its arguments: update llama.cpp",
    ),
)


def explain_failure(log_lines: Sequence[str]) -> str:
    """Say in one sentence, without its subject, why the server that wrote `log_lines` ended."""
    for needle, meaning in _MEANINGS:
        # several complaints follow one another; the first is the cause
        if any(needle.lower() in line.lower() for line in log_lines):
            return meaning
    if log_lines:
        return f"ended before it was ready; its last words: {log_lines[-1]}"
    return "ended before it was ready without a word"
