#!/usr/bin/env python3
"""Compiles the unmodified ggml-hip backend of the pinned llama.cpp for gfx1151, without a GPU and without ROCm, and prints the
path of libggml-hip.so. What our kernels are compared with.

    build_stock_hip.py [--jobs N] [--only REGEX] [--folder FOLDER]

llama.cpp's own CMake files choose sources, definitions and options. They are shown a ROCm tree that is put together from
Debian 12's packages rocm-device-libs and libamdhip64-dev (fetched by apt-get and unpacked, not installed), from the headers in
include/, and from CMake packages of a few lines. Nothing of HIP or hipBLAS is linked: the library's open symbols are those
that libstrata-emulator.so and libstrata-hipblas.so define.

About 9 minutes on 2 cores, 0.5 GB in the cache; a second run compiles only what has changed.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "scripts"))

import fetch_sources  # noqa: E402
import progress  # noqa: E402

ARCH = "gfx1151"
LIBRARY = "libggml-hip.so"
DEBS = {"rocm-device-libs": "5.2.3-2", "libamdhip64-dev": "5.2.3-8"}
# Program -> Debian package
TOOLS = {"clang++-19": "clang-19", "ld.lld-19": "lld-19", "clang-offload-bundler-19": "clang-tools-19", "cmake": "cmake",
         "ninja": "ninja-build", "dpkg-deb": "dpkg", "nm": "binutils"}
# What ROCm 6.2 and later say in these files, as far as ggml's build asks. No libraries: the symbols stay open.
CMAKE_PACKAGES = {
    "hip-lang": """if(NOT TARGET hip-lang::device)
    add_library(hip-lang::device INTERFACE IMPORTED)
    set_target_properties(hip-lang::device PROPERTIES
        INTERFACE_COMPILE_DEFINITIONS "$<$<COMPILE_LANGUAGE:HIP>:__HIP_ROCclr__=1>")
endif()
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET hip-lang::device)
""",
    "hip": """set(hip_VERSION 7.1.0)
if(NOT TARGET hip::host)
    add_library(hip::host INTERFACE IMPORTED)
    set_target_properties(hip::host PROPERTIES INTERFACE_COMPILE_DEFINITIONS __HIP_PLATFORM_AMD__=1)
endif()
""",
    "hipblas": "add_library(roc::hipblas INTERFACE IMPORTED)\n",
    "rocblas": "add_library(roc::rocblas INTERFACE IMPORTED)\n",
}


def say(text: str) -> None:
    print(f"strata-hip: {text}", file=sys.stderr, flush=True)


def peer_folder() -> pathlib.Path:
    """Where the peer is built unless told otherwise."""
    return fetch_sources.cache_folder() / "peer"


def need_tools() -> None:
    """Installs what is missing, as root on Debian; otherwise says what to install and ends."""
    missing = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"strata-hip: these packages are missing: apt-get install --no-install-recommends {' '.join(missing)}")
    say(f"apt-get install {' '.join(missing)}")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(install, stdout=subprocess.DEVNULL, env=environment).returncode != 0:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(install, stdout=subprocess.DEVNULL, env=environment, check=True)


def unpack_debs(folder: pathlib.Path) -> pathlib.Path:
    """The two packages, unpacked into one tree."""
    tree = folder / "debian"
    for package, version in DEBS.items():
        done = folder / f"{package}-{version}.unpacked"
        if done.exists():
            continue
        say(f"apt-get download {package}={version}")
        download = ["apt-get", "-q", "download", f"{package}={version}"]
        if subprocess.run(download, cwd=folder, capture_output=True).returncode != 0:
            subprocess.run(["apt-get", "update", "-qq"])
            if subprocess.run(download, cwd=folder, stdout=sys.stderr).returncode != 0:
                sys.exit(f"strata-hip: apt-get offers no {package} {version}: this wants Debian 12")
        archive = next(folder.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, tree], check=True)
        archive.unlink()
        done.touch()
    return tree


def mend_half2(header: pathlib.Path) -> None:
    """In HIP 5.2 the members x and y of __half2 are its bits as integers; since HIP 6 they are halves, and ggml assigns floats to them
    (quantizing to q4_1 and q5_1)."""
    text = header.read_text()
    start = text.index("struct __half2 {")
    for member in "xy":
        old, new = f"unsigned short {member};", f"__half {member};"
        at = text.index(old, start)
        text = text[:at] + new + text[at + len(old):]
    header.write_text(text)


def rocm_tree(folder: pathlib.Path) -> pathlib.Path:
    """A ROCm tree, as far as clang and CMake look at one."""
    rocm = folder / "rocm"
    done = rocm / "complete"
    if done.exists():
        return rocm
    shutil.rmtree(rocm, ignore_errors=True)
    debian = unpack_debs(folder) / "usr"
    bitcode = rocm / "amdgcn" / "bitcode"
    shutil.copytree(debian / "lib" / "x86_64-linux-gnu" / "amdgcn" / "bitcode", bitcode)
    shutil.copytree(debian / "include", rocm / "include")
    mend_half2(rocm / "include" / "hip" / "amd_detail" / "amd_hip_fp16.h")
    # Device libraries of 2022 do not know this processor. They hold one constant a processor: its number in decimal digits.
    subprocess.run(["clang-19", "-x", "cl", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O0", "-emit-llvm", "-c", "-",
                    "-o", bitcode / "oclc_isa_version_1151.bc"],
                   input=b"const __constant int __oclc_ISA_version = 11501;\n", check=True)
    (rocm / "share" / "hip").mkdir(parents=True)
    (rocm / "share" / "hip" / "version").write_text("HIP_VERSION_MAJOR=7\nHIP_VERSION_MINOR=1\nHIP_VERSION_PATCH=0\n")
    for name, text in CMAKE_PACKAGES.items():
        package = rocm / "lib" / "cmake" / name
        package.mkdir(parents=True)
        (package / f"{name}-config.cmake").write_text(text)
    # CMake links an empty program to learn about the compiler, and clang then wants the HIP library.
    subprocess.run(["clang-19", "-shared", "-x", "c", "/dev/null", "-o", rocm / "lib" / "libamdhip64.so"], check=True)
    done.touch()
    return rocm


def copy_headers(folder: pathlib.Path) -> pathlib.Path:
    """Our headers in the folder, by content: a fresh checkout does not compile everything again."""
    target = folder / "include"
    for source in (HERE / "include").rglob("*.h"):
        copy = target / source.relative_to(HERE / "include")
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
    return target


def configure(folder: pathlib.Path, rocm: pathlib.Path, headers: pathlib.Path) -> pathlib.Path:
    """The build folder, configured."""
    build = folder / "build"
    if (build / "build.ninja").exists():
        return build
    source = fetch_sources.llama_cpp()
    prefix_map = f"-ffile-prefix-map={folder}/= -ffile-prefix-map={source}/=llama.cpp/"
    options = {
        "CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "ON", "GGML_BACKEND_DL": "ON", "GGML_CPU": "OFF", "GGML_OPENMP": "OFF",
        "GGML_CCACHE": "OFF", "LLAMA_BUILD_COMMON": "OFF", "LLAMA_BUILD_TOOLS": "OFF", "LLAMA_BUILD_TESTS": "OFF",
        "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_BUILD_SERVER": "OFF", "GGML_HIP": "ON", "GPU_TARGETS": ARCH,
        "CMAKE_C_COMPILER": "clang-19", "CMAKE_CXX_COMPILER": "clang++-19", "CMAKE_HIP_COMPILER": "clang++-19",
        "CMAKE_C_FLAGS": prefix_map, "CMAKE_CXX_FLAGS": prefix_map, "CMAKE_HIP_COMPILER_ROCM_ROOT": str(rocm),
        "CMAKE_HIP_FLAGS": f"--rocm-path={rocm} -isystem {headers} {prefix_map}",
        "CMAKE_MODULE_LINKER_FLAGS": f"-Wl,-soname,{LIBRARY}", "CMAKE_SKIP_RPATH": "ON",
    }
    environment = os.environ | {"ROCM_PATH": str(rocm), "GIT_CEILING_DIRECTORIES": str(source.parent)}
    command = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), *(f"-D{name}={value}" for name, value in options.items())]
    progress.run("configuring stock ggml-hip", command, folder / "configure.log", env=environment)
    return build


def targets(build: pathlib.Path, only: str | None) -> list[str]:
    """Ninja targets: the library, or the objects of the sources whose name (mmq-instance-q8_0) matches."""
    if not only:
        return ["ggml-hip"]
    listed = subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    objects = dict(re.findall(r"^(ggml/src/ggml-hip/.*/([^/]+)\.cu\.o): ", listed, re.MULTILINE))
    chosen = [target for target, name in objects.items() if re.search(only, name)]
    if not chosen:
        sys.exit(f"strata-hip: none of the {len(objects)} sources matches {only}")
    return chosen


def check(library: pathlib.Path) -> None:
    """Ends with a message unless the library is what the emulator can be put under."""
    symbols = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    undefined = sorted(re.findall(r" U ((?:__)?hip\w+)$", symbols, re.MULTILINE))
    (library.parent / "abi.txt").write_text("\n".join(undefined) + "\n")
    if not re.search(r" T ggml_backend_init$", symbols, re.MULTILINE) or "hipLaunchKernel" not in undefined:
        sys.exit(f"strata-hip: {library} is no ggml backend with open HIP symbols")


def build(folder: pathlib.Path, jobs: int, only: str | None = None) -> pathlib.Path:
    """The path of the library (with `only`: of the build folder)."""
    if re.search(r"\s", str(folder)):
        sys.exit(f"strata-hip: a folder with spaces in its name does not survive the compiler's options: {folder}")
    need_tools()
    folder.mkdir(parents=True, exist_ok=True)
    tree = configure(folder, rocm_tree(folder), copy_headers(folder))
    command = ["ninja", "-C", str(tree), "-j", str(jobs), *targets(tree, only)]
    progress.run("compiling stock ggml-hip (9 minutes on 2 cores the first time)", command, folder / "compile.log")
    if only:
        return tree
    built, library = tree / "bin" / LIBRARY, folder / LIBRARY
    if not library.exists() or library.stat().st_mtime < built.stat().st_mtime:
        shutil.copyfile(built, folder / f"{LIBRARY}.new")
        (folder / f"{LIBRARY}.new").replace(library)
    check(library)
    return library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="compilations at a time (default: all cores)")
    parser.add_argument("--only", metavar="REGEX", help="compile only the sources whose name matches; nothing is linked")
    parser.add_argument("--folder", type=pathlib.Path, default=None, help="where to build (default: peer in strata-hip's cache)")
    arguments = parser.parse_args()
    try:
        print(build((arguments.folder or peer_folder()).resolve(), arguments.jobs, arguments.only))
    except progress.Failed as failure:
        sys.exit(str(failure))
    except subprocess.CalledProcessError as failure:
        sys.exit(f"strata-hip: {failure}")


if __name__ == "__main__":
    main()
