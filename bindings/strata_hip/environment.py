"""Variables of this process's environment, changed for a while."""
import contextlib
import os
from typing import Iterator


@contextlib.contextmanager
def changed(**variables: str) -> Iterator[None]:
    """Sets variables, which C code sees too, and sets them back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
