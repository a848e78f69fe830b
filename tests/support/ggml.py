"""ggml's C API and the loaded plugin, as the package has them; the runtime is the emulator unless the environment says otherwise."""
import functools
import os

from strata_hip import graph
from strata_hip import plugin as strata_plugin
from strata_hip.errors import DeviceError as PluginError
from strata_hip.ggml import TYPES, ffi, lib, plugin_functions

__all__ = ["TYPES", "PluginError", "backend", "counter", "device", "ffi", "last_error", "lib", "plugin"]


@functools.cache
def plugin():
    """The plugin's own functions, after ggml has loaded it."""
    os.environ.setdefault("STRATA_RUNTIME", "emulator")
    # As a program without the package would; the package then finds it registered.
    registry = lib.ggml_backend_load(os.fsencode(strata_plugin.library_folder() / strata_plugin.PLUGIN))
    functions = plugin_functions()
    if registry == ffi.NULL:
        raise PluginError(ffi.string(functions.strata_hip_last_error()).decode())
    strata_plugin.load()
    return functions


def last_error() -> str:
    """The plugin's newest message."""
    return ffi.string(plugin().strata_hip_last_error()).decode()


def counter(name: str) -> int:
    """One of the plugin's counters: launches, graphs_planned, graphs_replayed, copies, nodes, allocated_bytes, errors,
    graphs_captured, graph_launches."""
    return plugin().strata_hip_counter(name.encode())


def device(name: str = "STRATA0"):
    """The ggml device of that name; loads the plugin first."""
    plugin()
    found = lib.ggml_backend_dev_by_name(name.encode())
    if found == ffi.NULL:
        raise PluginError(f"no device {name}")
    return found


def backend(name: str = "STRATA0"):
    """One backend instance a device, shared by the tests of a process."""
    plugin()
    return graph.backend(graph.device_name(name))
