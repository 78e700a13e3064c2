"""A llama-server that downloads its model: it shows a progress bar, and serves the file.

Its output is that of llama.cpp (common/download.cpp), with the bar on terminals only, and the path
of the model as in build 11549. While the folder contains a file `closed`, the download stays at 37
percent.
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
    """Write the program into a folder; its download is a copy of `model`."""
    program = folder / "llama-server"
    root = os.fspath(Path(__file__).parents[2])
    text = _SCRIPT.format(python=sys.executable, folder=str(folder), model=str(model), root=root)
    program.write_text(text, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program
