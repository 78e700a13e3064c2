"""A llama-server that downloads: it shows a bar, keeps a file, and serves that file.

Writes what llama.cpp's source (common/download.cpp) writes, a bar for terminals only, and as build
11549 where the model lies that it loads.
While a file `closed` lies in its folder it stays at 37 percent.
"""

import os
import stat
import sys
from pathlib import Path

_SCRIPT = """#!{python}
import os, shutil, sys, time

arguments = sys.argv[1:]
repository = arguments.pop(arguments.index("-hf") + 1)
arguments.remove("-hf")
if repository.startswith("nobody/"):
    sys.exit("W get_repo_files: failed to resolve commit for " + repository)
for percent in (0, 37, 100):
    if sys.stdout.isatty():
        bar = "-" * (percent // 10)
        sys.stdout.write("\\rDownloading m.gguf %s %d%%\\x1b[K\\r" % (bar, percent))
        sys.stdout.flush()
    while percent == 37 and os.path.exists({folder!r} + "/closed"):
        time.sleep(0.01)
path = {folder!r} + "/m.gguf"
shutil.copy({model!r}, path)
print("0.00.007.061 I srv    load_model: loading model '" + path + "'", flush=True)
os.environ["PYTHONPATH"] = {root!r}
command = [sys.executable, "-P", "-m", "proxy.processes.embedded", "-m", path]
os.execv(sys.executable, command + arguments)
"""


def downloading_server(folder: Path, model: Path) -> Path:
    """Write the program into a folder; what it "downloads" is a copy of `model`."""
    program = folder / "llama-server"
    root = os.fspath(Path(__file__).parents[2])
    text = _SCRIPT.format(python=sys.executable, folder=str(folder), model=str(model), root=root)
    program.write_text(text, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program
