import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.errors import InvalidConfiguration
from proxy.state.opening_files import examine_file, open_database

SCHEMA = ("CREATE TABLE IF NOT EXISTS things (name TEXT)",)


def write_database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def test_a_new_file_is_its_owners_alone_and_can_be_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    for expected in (1, 2):
        with closing(open_database(path, SCHEMA)) as connection:
            connection.execute("INSERT INTO things VALUES ('one')")
            files = [*tmp_path.iterdir()]
            assert len(files) == 3  # with the log of what was written, and its index
            assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
            assert connection.execute("SELECT count(*) FROM things").fetchone() == (expected,)
    examine_file(path, SCHEMA)


def test_a_file_that_everybody_could_read_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    path.touch(0o644)
    open_database(path, SCHEMA).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_examining_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    examine_file(path, SCHEMA)
    assert not path.exists()


def test_a_file_that_is_no_database_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    path.write_bytes(b"no database at all" * 1000)
    for use in (open_database, examine_file):
        with pytest.raises(InvalidConfiguration) as caught:
            use(path, SCHEMA)
        assert str(caught.value) == (
            f"responses.path: {path} is damaged (file is not a database); remove it, or name "
            "another file"
        )


def test_a_file_with_a_damaged_page_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    with closing(open_database(path, SCHEMA)) as connection:
        rows = [("x" * 500,)] * 100
        connection.executemany("INSERT INTO things VALUES (?)", rows)
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])
    with pytest.raises(InvalidConfiguration, match=r"is damaged \(.+\); remove it"):
        open_database(path, SCHEMA)


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = write_database(tmp_path / "other.sqlite", "CREATE TABLE songs (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(InvalidConfiguration, match="is the database of another program"):
        open_database(path, SCHEMA)
    assert path.read_bytes() == before


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    open_database(path, SCHEMA).close()
    write_database(path, "PRAGMA user_version = 99")
    with pytest.raises(InvalidConfiguration, match="written by a newer version of Temper"):
        open_database(path, SCHEMA)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    for use in (open_database, examine_file):
        with pytest.raises(InvalidConfiguration, match="cannot be opened: Is a directory"):
            use(tmp_path, SCHEMA)


def test_a_folder_that_is_not_there_is_no_place_for_a_file(tmp_path: Path) -> None:
    path = tmp_path / "none" / "kept.sqlite"
    with pytest.raises(InvalidConfiguration, match="cannot be made: No such file"):
        examine_file(path, SCHEMA)
    with pytest.raises(InvalidConfiguration, match="cannot be opened: No such file"):
        open_database(path, SCHEMA)


def test_a_file_that_somebody_has_locked_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    open_database(path, SCHEMA).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InvalidConfiguration, match="cannot be used: database is locked"):
            open_database(path, SCHEMA, 0.01)
