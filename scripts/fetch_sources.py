#!/usr/bin/env python3
"""Fetches the pinned llama-cpp-python source distribution through pip and prints the folder of its llama.cpp.

The file is checked by sha256 and unpacked once into a cache outside the tree: $STRATA_CACHE, or
$XDG_CACHE_HOME/strata-hip, or ~/.cache/strata-hip. pip's own configuration decides where it comes from, so mirrors
and offline folders (`PIP_FIND_LINKS`, `PIP_NO_INDEX`) work.

    fetch_sources.py            print the path of llama.cpp
    fetch_sources.py --sdist    print the path of the source distribution file
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

NAME = "llama-cpp-python"
VERSION = "0.3.36"
FILE = f"llama_cpp_python-{VERSION}.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"


def cache_folder() -> pathlib.Path:
    """The cache folder, created if need be."""
    if "STRATA_CACHE" in os.environ:
        path = pathlib.Path(os.environ["STRATA_CACHE"])
    else:
        path = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "strata-hip"
    path.mkdir(parents=True, exist_ok=True)
    return path


def sha256_of(path: pathlib.Path) -> str:
    """Hex sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sdist() -> pathlib.Path:
    """The path of the source distribution, downloaded if it is not in the cache. Exits with a message on failure."""
    folder = cache_folder() / "sdist"
    folder.mkdir(exist_ok=True)
    path = folder / FILE
    if path.exists() and sha256_of(path) == SHA256:
        return path
    print(f"strata-hip: pip download {NAME}=={VERSION} (source, 76 MB)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        requirements = pathlib.Path(work) / "requirements.txt"
        requirements.write_text(f"{NAME}=={VERSION} --hash=sha256:{SHA256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", NAME,
                   "-r", str(requirements), "-d", work]
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            sys.exit(f"strata-hip: pip could not download the source distribution of {NAME} {VERSION}. "
                     f"Check the network or pip's index settings, or put {FILE} into {folder}")
        got = pathlib.Path(work) / FILE
        if sha256_of(got) != SHA256:
            sys.exit(f"strata-hip: {FILE} has an unexpected sha256")
        got.replace(path)
    return path


def llama_cpp() -> pathlib.Path:
    """The path of the unpacked, unmodified llama.cpp."""
    target = cache_folder() / f"llama.cpp-{VERSION}-{SHA256[:12]}"
    if target.exists():
        return target
    archive = sdist()
    work = pathlib.Path(tempfile.mkdtemp(dir=cache_folder()))
    prefix = f"{FILE.removesuffix('.tar.gz')}/vendor/llama.cpp/"
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.startswith(prefix) and (member.isfile() or member.isdir()):
                    member.name = member.name.removeprefix(prefix)
                    if member.name:
                        tar.extract(member, work, filter="data") if hasattr(tarfile, "data_filter") else tar.extract(member, work)
        try:
            work.rename(target)
        except OSError:
            if not target.exists():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdist", action="store_true", help="print the path of the source distribution instead")
    arguments = parser.parse_args()
    print(sdist() if arguments.sdist else llama_cpp())


if __name__ == "__main__":
    main()
