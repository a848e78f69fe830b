"""What is told at the end of a run: how many of test-backend-ops' cases were run, since a sample is not all of them."""
import collections

import pytest

_TOLD = pytest.StashKey[collections.Counter]()


@pytest.fixture(scope="session")
def told(request) -> collections.Counter:
    """Numbers of cases: "run", "failed", "all" (those that can be compared with the CPU backend)."""
    return request.config.stash.setdefault(_TOLD, collections.Counter())


def pytest_terminal_summary(terminalreporter, config):
    if counts := config.stash.get(_TOLD, None):
        terminalreporter.write_line(f"test-backend-ops: {counts['run']} of {counts['all']} cases were run, {counts['failed']} failed")
