#!/usr/bin/env python3
"""Writes ggml's public C functions and the plugin's own as declarations that cffi reads, made from the headers themselves: the Python
package needs neither headers nor a compiler.

    ggml_declarations.py CLANG OUTPUT HEADER...
"""
import pathlib
import subprocess
import sys
import tempfile

SYSTEM_HEADERS = ("stdio.h", "stdint.h", "stddef.h", "stdbool.h", "stdarg.h", "string.h")  # of which cffi knows the types


def declarations(clang: str, headers: list[pathlib.Path]) -> str:
    """The headers after preprocessing, without what cffi cannot read. Raises CalledProcessError if clang fails."""
    with tempfile.TemporaryDirectory() as empty:
        for name in SYSTEM_HEADERS:
            (pathlib.Path(empty) / name).touch()
        folders = [flag for folder in dict.fromkeys(header.parent for header in headers) for flag in ("-I", str(folder))]
        command = [clang, "-E", "-P", "-x", "c", "-nostdinc", "-I", empty, *folders, "-D__attribute__(x)=", "-"]
        source = "".join(f'#include "{header}"\n' for header in headers)
        text = subprocess.run(command, input=source, check=True, stdout=subprocess.PIPE, text=True).stdout
    text = text.replace("sizeof(int32_t)", "4")
    return "\n".join(line for line in text.splitlines() if "static const size_t" not in line) + "\n"


def main() -> None:
    clang, output, *headers = sys.argv[1:]
    pathlib.Path(output).write_text(declarations(clang, [pathlib.Path(header) for header in headers]))


if __name__ == "__main__":
    main()
