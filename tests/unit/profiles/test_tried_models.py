import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from proxy import bounds
from proxy.profiles import tried_models
from proxy.profiles.tried_models import TriedModel, TriedModels, cache_folder, digest


def tried_model(identity: str = "m.gguf", day: int = 1, **others: str) -> TriedModel:
    return TriedModel(
        name="m",
        identity=identity,
        template=others.get("template", digest("template")),
        server=others.get("server", "llama-server, build b1"),
        tried_at=f"2026-01-{day:02}T00:00:00+00:00",
        temper="1.0",
        measured={"window": 8192, "writes_per_second": 35.5, "capabilities": ["tools"]},
        failed=("overflow",),
    )


def test_a_saved_measurement_is_loaded_by_another_instance(tmp_path: Path) -> None:
    folder = tmp_path / "temper" / "tried"
    assert TriedModels(folder).all() == ()
    assert TriedModels(folder).save(tried_model())
    assert TriedModels(folder).all() == (tried_model(),)


def test_saving_a_measurement_replaces_the_older_one_of_the_same_model_and_server(
    tmp_path: Path,
) -> None:
    models = TriedModels(tmp_path)
    for attempt in (
        tried_model(day=1),
        tried_model(day=3),
        tried_model(day=2, server="b2"),
        tried_model("n.gguf", day=4),
    ):
        models.save(attempt)
    assert [model.tried_at[8:10] for model in models.all()] == ["04", "03", "02"]
    latest = models.latest("m.gguf", "template")
    assert latest is not None
    assert latest.tried_at.startswith("2026-01-03")
    assert models.latest("m.gguf", "another template") is None
    assert models.latest("x.gguf", "template") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"name":"m"}',
        b"\xff",
        b'{"name":"\xf1"}',
        msgspec.json.encode(tried_model()).ljust(bounds.TRIED_BYTES + 1),
        b'{"version":1}',
    ],
)
def test_a_corrupt_or_oversized_file_is_skipped(tmp_path: Path, content: bytes) -> None:
    models = TriedModels(tmp_path)
    models.save(tried_model())
    (tmp_path / "broken.json").write_bytes(content)
    (tmp_path / "folder.json").mkdir()
    assert models.all() == (tried_model(),)


def test_a_file_of_a_later_version_is_skipped_but_not_removed(tmp_path: Path) -> None:
    later = msgspec.structs.replace(tried_model(), version=2)
    TriedModels(tmp_path).save(later)
    assert TriedModels(tmp_path).all() == ()
    assert len([*tmp_path.iterdir()]) == 1


def test_concurrent_saves_leave_only_complete_files(tmp_path: Path) -> None:
    models = TriedModels(tmp_path)
    records = [tried_model(f"m{number % 5}.gguf", day=1 + number % 28) for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(models.save, records))
        assert all(len(listed) <= 5 for listed in pool.map(lambda _: models.all(), range(50)))
    assert {model.identity for model in models.all()} == {f"m{number}.gguf" for number in range(5)}
    assert {file.suffix for file in tmp_path.iterdir()} == {".json"}


def test_the_oldest_measurement_is_removed_above_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried_models, "_MOST", 3)
    models = TriedModels(tmp_path)
    for number in range(5):
        models.save(tried_model(f"m{number}.gguf", day=number + 1))
        for age, file in enumerate(
            sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime)
        ):
            os.utime(file, (age, age))
    assert [model.identity for model in models.all()] == ["m4.gguf", "m3.gguf", "m2.gguf"]


def test_save_returns_false_if_the_folder_is_none_or_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    for folder in (None, file / "tried"):
        assert not TriedModels(folder).save(tried_model())
        assert TriedModels(folder).all() == ()


def test_cache_folder_is_inside_xdg_cache_home_or_the_cache_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/temper/tried")
    monkeypatch.setenv("HOME", str(tmp_path))
    for environment in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_folder(environment) == tmp_path / ".cache" / "temper" / "tried"


def test_measurements_are_readable_only_by_the_owner(tmp_path: Path) -> None:
    TriedModels(tmp_path).save(tried_model())
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
