#!/usr/bin/env python3
"""The series of patches against the pinned llama.cpp (patches/series, in the order of quilt), and the files it makes.

    patches.py FOLDER   makes FOLDER, which must not be there, with the patched copies of the files that the series touches
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import fetch_sources

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "patches"


def series() -> "list[pathlib.Path]":
    """The patches in the order in which they are applied."""
    lines = (line.partition("#")[0].strip() for line in (FOLDER / "series").read_text().splitlines())
    return [FOLDER / line for line in lines if line]


def digest() -> str:
    """Hex sha256 of the series."""
    return hashlib.sha256(b"\0".join(patch.read_bytes() for patch in series())).hexdigest()


def git(folder: pathlib.Path, *arguments: str) -> str:
    """What `git apply` prints, run in a folder that it takes for no part of any repository (in one it would leave out files silently).
    Exits with a message on failure."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_CEILING_DIRECTORIES"] = str(folder.resolve().parent)
    try:
        result = subprocess.run(["git", "apply", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("strata-hip: git was not found; it applies the patches to llama.cpp: apt-get install git")
    if result.returncode != 0:
        sys.exit(f"{result.stderr}strata-hip: {arguments[-1]} does not apply to llama.cpp of llama-cpp-python {fetch_sources.VERSION}")
    return result.stdout


def touched(patch: pathlib.Path) -> "list[str]":
    """The files that a patch changes, relative to llama.cpp's folder."""
    return [line.split("\t")[2] for line in git(FOLDER, "--numstat", str(patch)).splitlines()]


def apply(target: pathlib.Path) -> None:
    """Makes the folder `target` with the files that the series touches, patched. Exits with a message if one does not apply as it is."""
    source = fetch_sources.llama_cpp()
    target.parent.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(dir=target.parent))
    try:
        for patch in series():
            for name in touched(patch):
                copy = work / name
                if not copy.exists() and (source / name).exists():
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source / name, copy)
            git(work, str(patch))
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    apply(pathlib.Path(sys.argv[1]))
