"""What this package raises. Every class also derives from the built-in exception that stock llama_cpp raises there."""


class StrataError(Exception):
    """Base of all errors of strata-hip."""


class DeviceError(StrataError, RuntimeError):
    """The backend or its device cannot be used, or failed while it computed."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The device cannot give as much memory as was asked for."""


class ArgumentError(StrataError, ValueError):
    """An argument that does not fit: a wrong shape, type or number of arguments."""


class CompileError(StrataError, RuntimeError):
    """There is no compiler for device code, or it refused the source."""


class ModelFileError(StrataError, ValueError):
    """The model file cannot be loaded."""


class ModelNotFoundError(StrataError, FileNotFoundError, ValueError):
    """The model file does not exist."""


class CpuWorkWarning(UserWarning):
    """Part of a model that was to compute on the device computes on the CPU."""
