import pytest

from proxy.processes.failures import explain_failure


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("E srv init: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 0", "a port"),
        ("gguf_init_from_file: failed to open GGUF file 'm.gguf'", "read permission"),
        ("E gguf_init: invalid magic characters: 'garb', expected 'GGUF'", "not a GGUF file"),
        ("gguf_init_from_file_impl: failed to read magic", "empty model file"),
        ("tensor 'output.weight' data is not within the file bounds", "cut off"),
        ("E gguf_init_from_reader: failed to read key-value pairs", "cut off or damaged"),
        ("error loading model: unknown model architecture: 'new'", "update llama.cpp"),
        ("llama_init: failed to allocate buffer for kv cache", "smaller context or fewer slots"),
        ("llama_model_load: error loading model: unable to allocate CPU buffer", "smaller model"),
        ("error: invalid argument: --no-webui", "did not understand"),
    ],
)
def test_a_known_complaint_becomes_a_sentence_with_a_remedy(line: str, meaning: str) -> None:
    assert meaning in explain_failure(["loading model", line, "exiting"])


def test_an_unknown_complaint_is_quoted() -> None:
    sentence = explain_failure(["one", "the dog ate it"])
    assert sentence == "ended before it was ready; its last words: the dog ate it"


def test_silence_is_called_silence() -> None:
    assert explain_failure([]) == "ended before it was ready without a word"
