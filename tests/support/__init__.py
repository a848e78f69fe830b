"""Helpers for the tests: ggml through cffi, one-op graphs on the device, paths of what was built."""
