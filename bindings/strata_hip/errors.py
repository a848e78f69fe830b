"""What this package raises. Every class also derives from the built-in exception that stock llama_cpp raises there."""


class StrataError(Exception):
    """Base of all errors of strata-hip."""


class DeviceError(StrataError, RuntimeError):
    """The backend or its device cannot be used, or failed while it computed."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The device cannot give as much memory as was asked for."""


class ModelFileError(StrataError, ValueError):
    """The model file cannot be loaded."""


class ModelNotFoundError(StrataError, FileNotFoundError, ValueError):
    """The model file does not exist."""


class CpuWorkWarning(UserWarning):
    """Part of a model that was to compute on the device computes on the CPU."""
