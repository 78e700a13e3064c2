"""Writes the other files of a release from its programs.

    python deploy/install/packages.py FOLDER --version X.Y.Z --source https://HOST/OWNER/NAME

FOLDER holds the files of the release. Added are `checksums.txt` (SHA-256 of all of them),
`install.sh` with the address of the releases, `temper.rb` for Homebrew, and the manifests for
winget. The formula has the platforms whose program is in FOLDER; without a program for Windows
there are no manifests. The output depends only on the input.
"""

import argparse
import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template

HERE = Path(__file__).parent
IDENTIFIER = "TemperProxy.Temper"
WINDOWS = "temper-windows-x86_64.exe"
CHECKSUMS = "checksums.txt"
# system and processor in Homebrew's words: the program
PROGRAMS = {
    ("linux", "intel"): "temper-linux-x86_64",
    ("linux", "arm"): "temper-linux-aarch64",
    ("macos", "arm"): "temper-macos-arm64",
}
_EMPTY_ADDRESS = 'releases="${TEMPER_RELEASES:-}"'


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_all(folder: Path, version: str, source: str) -> None:
    """Write all files; raises `SystemExit` if FOLDER has no program."""
    project = tomllib.loads((HERE / "../../pyproject.toml").read_text("utf-8"))["project"]
    description = str(project["description"]).removeprefix("An ")  # Homebrew wants no article
    download = f"{source}/releases/download/v{version}"
    values = {"version": version, "source": source, "description": description}
    programs = {platform: name for platform, name in PROGRAMS.items() if (folder / name).exists()}
    if not programs:
        raise SystemExit(f"{folder} has no program: expected {', '.join(PROGRAMS.values())}")
    listed = sorted(path for path in folder.iterdir() if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{sha256(path)}  {path.name}\n" for path in listed]
    _write(folder / CHECKSUMS, "".join(lines))
    _write(folder / "install.sh", install_script(f"{source}/releases"))
    blocks = "\n".join(_platforms(programs, folder, download))
    _write(folder / "temper.rb", _filled("temper.rb", {**values, "platforms": blocks}))
    if (folder / WINDOWS).exists():
        more = {
            "identifier": IDENTIFIER,
            "url": f"{download}/{WINDOWS}",
            "sha256": sha256(folder / WINDOWS).upper(),
        }
        for kind in ("version", "installer", "locale.en-US"):
            name = IDENTIFIER if kind == "version" else f"{IDENTIFIER}.{kind}"
            text = _filled(f"winget/{kind}.yaml", {**values, **more})
            _write(folder / f"{name}.yaml", text)


def install_script(releases: str) -> str:
    """Return the script with an address, which TEMPER_RELEASES still overrides."""
    script = (HERE / "install.sh").read_text(encoding="utf-8")
    assert _EMPTY_ADDRESS in script  # noqa: S101 - both are files of this folder
    return script.replace(_EMPTY_ADDRESS, f'releases="${{TEMPER_RELEASES:-{releases}}}"')


def _platforms(
    programs: Mapping[tuple[str, str], str], folder: Path, download: str
) -> Iterator[str]:
    """Yield the lines of the formula that say what to download where."""
    for system in ("linux", "macos"):
        chosen = {processor: name for (at, processor), name in programs.items() if at == system}
        if not chosen:
            continue
        yield f"  on_{system} do"
        for processor, name in chosen.items():
            yield f"    on_{processor} do"
            yield f'      url "{download}/{name}"'
            yield f'      sha256 "{sha256(folder / name)}"'
            yield "    end"
        yield "  end\n"


def _filled(template: str, values: Mapping[str, str]) -> str:
    return Template((HERE / template).read_text(encoding="utf-8")).substitute(values)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--source", required=True, help="the repository, https://HOST/OWNER/NAME")
    given = parser.parse_args()
    write_all(given.folder, given.version, given.source.rstrip("/"))


if __name__ == "__main__":
    main()
