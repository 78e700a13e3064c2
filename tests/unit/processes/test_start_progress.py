import pytest

from proxy.processes.start_progress import StartLog, StartProgress


def progress_of(*lines: str) -> list[StartProgress]:
    log = StartLog("m")
    return [progress for line in lines if (progress := log.read(line)) is not None]


def test_while_loading_the_share_is_one_percent_for_each_dot() -> None:
    shares = [
        item.share for item in progress_of("main: loading model", "." * 50, "." * 100, "." * 300)
    ]
    assert shares == [None, 0.5, 1.0]


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        # loading
        ("0.00.007.004 I srv          init: loading model", StartProgress("m", "loading")),
        ("main: loading model", StartProgress("m", "loading")),
        (
            "0.00.007.061 I srv    load_model: loading model '/a b/c.gguf'",
            StartProgress("m", "loading"),
        ),
        # downloading
        (
            "Downloading Qwen3-0.6B-Q4_K_M.gguf ───╴          42%\\x1b[K",
            StartProgress("m", "downloading", 0.42),
        ),
        (
            " 42  378M   42  159M    0     0  10.2M      0  0:00:37  0:00:15  0:00:22 11.1M",
            StartProgress("m", "downloading", 0.42),
        ),
    ],
)
def test_progress_is_parsed_from_a_line_of_loading_or_downloading(
    line: str, progress: StartProgress
) -> None:
    assert progress_of(line) == [progress]


def test_lines_without_progress_and_unchanged_progress_are_not_reported() -> None:
    assert progress_of("", "build_info: b0-unknown", "n_slots = 2, 100% of it") == []
    assert len(progress_of("main: loading model", "srv load_model: loading model 'a'")) == 1


def test_the_path_of_the_model_is_read_from_the_load_model_line() -> None:
    log = StartLog("m")
    log.read("main: loading model")
    assert log.path == ""
    log.read("srv    load_model: loading model '/cache/model.gguf'")
    assert log.path == "/cache/model.gguf"
