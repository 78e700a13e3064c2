import pytest

from proxy.processes.failures import explain_exit, explain_failure


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
        ("ggml_cuda: cudaMalloc failed: out of memory", "fewer GPU layers"),
        ("init: V cache quantization requires flash_attn", "cache_type_v to f16"),
        ("quantized V cache was requested, but this requires Flash Attention", "to f16"),
        ("embedded llama-server: error: unrecognized arguments: -x", "not these (-x)"),
        ("W get_repo_files: failed to resolve commit for owner/name", "check hf_repo"),
        ("error: invalid argument: --no-webui", "an argument (--no-webui)"),
    ],
)
def test_a_known_violation_becomes_a_sentence_with_a_remedy(line: str, meaning: str) -> None:
    cause = explain_failure("s", ("loading model", line, "exiting"))
    assert meaning in cause.problem
    assert cause.is_lasting


@pytest.mark.parametrize("lines", [["one", "the dog ate it"], ["error: the dog ate it", "0x1"]])
def test_an_unknown_violation_is_quoted_and_may_be_gone_the_next_time(lines: list[str]) -> None:
    cause = explain_failure("s", tuple(lines))
    assert cause.problem.startswith("ended before it was ready; its last words: ")
    assert cause.problem.endswith("the dog ate it")
    assert not cause.is_lasting


def test_silence_is_called_silence() -> None:
    assert explain_failure("s", ()).problem == "ended before it was ready without a word"


@pytest.mark.parametrize(
    ("exit_code", "lines", "sentence"),
    [
        (-9, ["slot 1 is busy"], "was killed (SIGKILL), by somebody or because the machine ran"),
        (-9, ["cudaMalloc failed: out of memory"], "ran out of memory: use a smaller context"),
        (-6, ["GGML_ASSERT(n > 0) failed", "#1 0x77"], "crashed (SIGABRT); its last words: GGML"),
        (1, ["goodbye"], "crashed (exit code 1); its last words: goodbye"),
        (0, [], "crashed (exit code 0)"),
        (-250, [], "crashed (signal 250)"),
        (-6, ["out of memory, trying less", *["fine"] * 20], "crashed (SIGABRT); its last words"),
    ],
)
def test_the_end_of_a_server_that_was_ready_is_explained_too(
    exit_code: int, lines: list[str], sentence: str
) -> None:
    assert explain_exit(exit_code, lines).startswith(sentence)
