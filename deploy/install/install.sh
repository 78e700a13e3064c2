#!/bin/sh
# Installs Temper's single-file program for this machine, or says in one sentence why it cannot.
#
#   sh install.sh [--prefix DIR] [--version X.Y.Z] [--from URL] [--dry-run]
#
# A release fills in `releases` (deploy/install/packages.py). All commands are in functions, so that
# a script of which only a part arrived does nothing.
set -eu

releases="${TEMPER_RELEASES:-}" # the address of the releases, such as https://HOST/OWNER/NAME/releases

usage() {
    cat <<'TEXT'
Usage: install.sh [--prefix DIR] [--version X.Y.Z] [--from URL] [--dry-run]

  --prefix DIR       install to DIR/bin (default: ~/.local)
  --version X.Y.Z    install this version (default: the latest release)
  --from URL         download from this folder, which has the program and checksums.txt
  --dry-run          show what would be done; download and write nothing
TEXT
}

refuse() { # MESSAGE: ends the script
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

has() { # PROGRAM
    command -v "$1" >/dev/null 2>&1
}

read_options() {
    prefix="${HOME:-}/.local" version="" from="" is_dry=false
    while [ $# -gt 0 ]; do
        case "$1" in
            --prefix | --version | --from)
                [ $# -gt 1 ] && [ -n "$2" ] || refuse "$1 needs a value."
                case "$1" in
                    --prefix) prefix="$2" ;;
                    --version) version="${2#v}" ;;
                    --from) from="${2%/}" ;;
                esac
                shift
                ;;
            --dry-run) is_dry=true ;;
            --help | -h)
                usage
                exit 0
                ;;
            *) refuse "Unknown option $1; see install.sh --help." ;;
        esac
        shift
    done
}

choose_program() { # sets `program`, the name of the file for this machine
    system="$(uname -s)" machine="$(uname -m)"
    case "$system $machine" in
        "Linux x86_64" | "Linux amd64") program="temper-linux-x86_64" ;;
        "Linux aarch64" | "Linux arm64") program="temper-linux-aarch64" ;;
        "Darwin arm64") program="temper-macos-arm64" ;;
        *) refuse "There is no single-file program for $system on $machine; install it with pip or uv (Python 3.11 or newer)." ;;
    esac
    if [ "$system" = Linux ] && has ldd && ldd --version 2>&1 | grep -qi musl; then
        refuse "The single-file program needs glibc, and this system has musl; install it with pip or uv (Python 3.11 or newer)."
    fi
}

choose_source() { # sets `source`, the folder to download from
    if [ -n "$from" ]; then
        source="$from"
    elif [ -z "$releases" ]; then
        refuse "This copy has no download address: add --from URL, or set TEMPER_RELEASES."
    elif [ -n "$version" ]; then
        source="$releases/download/v$version"
    else
        source="$releases/latest/download"
    fi
}

check_tools() {
    has curl || has wget || refuse "Neither curl nor wget was found: install one of them."
    has sha256sum || has shasum || has openssl ||
        refuse "No program for SHA-256 was found: install sha256sum, shasum or openssl."
}

download() { # URL FILE
    if has curl; then
        curl --fail --silent --show-error --location --retry 2 --output "$2" "$1" 2>"$folder/error" && return
    else
        wget -q -O "$2" "$1" 2>"$folder/error" && return
    fi
    refuse "Cannot download $1: $(tail -n 1 "$folder/error" | tr -d '\r')"
}

sha256() { # FILE
    if has sha256sum; then
        sha256sum "$1" | cut -d ' ' -f 1
    elif has shasum; then
        shasum -a 256 "$1" | cut -d ' ' -f 1
    else
        openssl dgst -sha256 -r "$1" | cut -d ' ' -f 1
    fi
}

verify() { # FILE: compares it with the published checksum
    published="$(awk -v name="$program" '{ sub(/^\*/, "", $2); if ($2 == name) print $1 }' "$folder/checksums.txt")"
    [ -n "$published" ] || refuse "The release has no $program: choose another --version, or install it with pip or uv."
    computed="$(sha256 "$1")"
    [ "$published" = "$computed" ] ||
        refuse "The checksum of $program is wrong ($computed instead of $published), so nothing was installed: download it again."
}

check_folder() { # DIR: refuses one that cannot be written to
    ancestor="$1"
    while [ ! -e "$ancestor" ]; do ancestor="$(dirname "$ancestor")"; done
    [ -d "$ancestor" ] && [ -w "$ancestor" ] || refuse_folder
}

refuse_folder() {
    refuse "There is no permission to write to $prefix/bin: choose another folder with --prefix DIR."
}

main() {
    read_options "$@"
    choose_program
    choose_source
    check_tools
    target="$prefix/bin/temper"
    check_folder "$prefix/bin"
    if $is_dry; then
        echo "Would download $source/$program"
        echo "Would verify it by $source/checksums.txt (SHA-256)"
        echo "Would install it as $target"
        exit 0
    fi
    folder="$(mktemp -d)"
    trap 'rm -rf "$folder"' EXIT
    trap 'exit 130' INT TERM
    download "$source/checksums.txt" "$folder/checksums.txt"
    download "$source/$program" "$folder/temper"
    verify "$folder/temper"
    chmod 755 "$folder/temper"
    installed="$("$folder/temper" --version 2>/dev/null)" ||
        refuse "The program does not start on this machine (it needs a newer glibc, or a /tmp that allows execution); install it with pip or uv."
    mkdir -p "$prefix/bin" 2>/dev/null || refuse_folder
    # A copy beside the target and a rename: a running Temper keeps its file.
    cp "$folder/temper" "$target.new" 2>/dev/null && mv -f "$target.new" "$target" || refuse_folder
    echo "Installed $installed as $target (SHA-256 verified)."
    echo "Remove it with: rm $target"
    case ":$PATH:" in
        *":$prefix/bin:"*) echo "Try it: temper demo" ;;
        *) echo "$prefix/bin is not on your PATH; try it: $target demo" ;;
    esac
}

main "$@"
