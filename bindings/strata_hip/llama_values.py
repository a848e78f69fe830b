"""Values of llama.cpp's parameters by the names that its programs take. Needs nothing, so that --help is quick."""
import os

# enum ggml_type, those that KV caches can have
CACHE_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "iq4_nl": 20}
# Enums of llama.h and ggml-cpu.h
FLASH_ATTN = {"auto": -1, "off": 0, "on": 1, "-1": -1, "0": 0, "disabled": 0, "false": 0, "1": 1, "enabled": 1, "true": 1}
SPLIT_MODES = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
LOAD_MODES = {"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4}
LAZY_MODES = {"off": 0, "auto": 1, "on": 2}
NUMA = {"distribute": 1, "isolate": 2, "numactl": 3}
NICENESS = {-1: 5, 0: 0, 1: -5, 2: -10, 3: -20}  # of --prio, as llama.cpp has it


def default_threads() -> int:
    """The CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
