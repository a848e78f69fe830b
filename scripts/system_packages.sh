#!/bin/sh
# Looks for what the build needs from the system. What is missing is installed on Debian as root; anyone else is told
# what to install. Prints nothing when all is there. $PYTHON names the Python to use (default python3).
set -eu

python="${PYTHON:-python3}"
missing=""
need() { missing="$missing $*"; }
have() { command -v "$1" >/dev/null 2>&1; }

have g++ || need g++
have git || need git  # applies patches/ to a copy of llama.cpp's sources
"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || need python3 python3-venv

# A clang with the AMDGPU target: the order of cmake/DeviceClang.cmake.
device_clang() {
    for candidate in "${STRATA_CLANG:-}" "${ROCM_PATH:+$ROCM_PATH/llvm/bin/clang++}" \
                     clang++-19 clang++-20 clang++-21 clang++-22 clang++; do
        if [ -n "$candidate" ] && have "$candidate" && "$candidate" --print-targets 2>/dev/null | grep -q amdgcn; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}
if clang="$(device_clang)"; then
    have "$("$clang" -print-prog-name=ld.lld)" || need lld-19
else
    need clang-19 lld-19
fi

# The emulator decodes with LLVM's disassembler, which is linked statically, with what it unpacks debug sections with.
[ -e /usr/lib/llvm-19/lib/libLLVMAMDGPUDisassembler.a ] || need llvm-19-dev
have_library() { [ -e "$("${clang:-cc}" -print-file-name="$1" 2>/dev/null)" ]; }
have_library libz.a || need zlib1g-dev
have_library libzstd.a || need libzstd-dev

[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && have apt-get; then
    echo "strata-hip: installing Debian packages (a minute or so):$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # the list is meant to be split
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "strata-hip: these packages are missing:$missing" >&2
    echo "strata-hip: install them, on Debian with:  sudo apt-get install$missing" >&2
    exit 1
fi
