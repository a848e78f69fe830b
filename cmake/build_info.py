#!/usr/bin/env python3
"""Writes what a build is made from as JSON: the given facts, and the commit of the source tree. Leaves a file that says the same alone.

    build_info.py OUTPUT.json SOURCE_TREE NAME=VALUE...
"""
import json
import pathlib
import subprocess
import sys
from typing import Optional


def git(tree: pathlib.Path, *arguments: str) -> Optional[str]:
    """What git prints, or None: it is not installed, or refuses."""
    try:
        return subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def commit(tree: pathlib.Path) -> Optional[str]:
    """The commit that is checked out, with "+changes" if tracked files differ from it. None if the tree is not the top of a git clone, as
    after unpacking an archive inside of another one."""
    top = git(tree, "rev-parse", "--show-toplevel")
    if top is None or pathlib.Path(top) != tree.resolve():
        return None
    name = git(tree, "rev-parse", "--short=12", "HEAD")
    changes = git(tree, "status", "--porcelain", "--untracked-files=no")
    return name and name + ("+changes" if changes else "")


def main() -> None:
    output, tree, *facts = sys.argv[1:]
    info: "dict[str, Optional[str]]" = dict(fact.split("=", 1) for fact in facts)  # type: ignore[misc]
    info["commit"] = commit(pathlib.Path(tree))
    text = json.dumps(info, indent=2) + "\n"
    path = pathlib.Path(output)
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
