"""Begins the one-file program: the command, or one of the modules that it starts as a process.

Temper starts some of its modules as `PYTHON OPTIONS -m MODULE ARGUMENTS`, and here the program is
its own Python. What only some commands need lies in it packed (`temper.spec`), and is unpacked
beside the rest when it is first imported: else every start would take as long as the longest.
"""

import importlib
import multiprocessing
import runpy
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

OURS = ("proxy", "temper_evals")


class PackedPackages(MetaPathFinder):
    """Unpacks a package when it is looked for; whoever looks next finds it."""

    def __init__(self, folder: Path) -> None:
        self._packed = folder / "packed"
        self._unpacked = folder / "unpacked"
        self._unpacked.mkdir(exist_ok=True)
        sys.path.append(str(self._unpacked))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        archive = self._packed / f"{fullname}.zip"
        if path is None and archive.exists() and not (self._unpacked / fullname).exists():
            self._unpack(archive)
            importlib.invalidate_caches()

    def _unpack(self, archive: Path) -> None:
        """Unpack aside: a process that we started may look for the same, and finds all of it."""
        aside = Path(tempfile.mkdtemp(dir=self._unpacked))
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(aside)
        libraries_first = sorted(aside.iterdir(), key=lambda one: one.name == archive.stem)
        for one in libraries_first:
            try:
                one.rename(self._unpacked / one.name)
            except OSError:  # another process was faster
                shutil.rmtree(one)
        aside.rmdir()


def main() -> None:
    multiprocessing.freeze_support()  # the workers of `temper serve --workers`
    sys.meta_path.insert(0, PackedPackages(Path(__file__).parent))
    options = next((at for at, word in enumerate(sys.argv[1:], 1) if word not in ("-P", "-S")), 0)
    module = sys.argv[options + 1 : options + 2] if sys.argv[options] == "-m" else []
    if module and module[0].partition(".")[0] in OURS:
        sys.argv[1 : options + 2] = []
        runpy.run_module(module[0], run_name="__main__", alter_sys=True)
        return
    from temper.__main__ import main as command

    command()


if __name__ == "__main__":
    main()
