"""Models and reference scores, each made once a session."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import scoring  # noqa: E402
from strata_hip.scores import Scores  # noqa: E402


@pytest.fixture(scope="session")
def model():
    """model(name, device): a loaded scoring.Model; only the last one of each device stays loaded."""
    kept = {}

    def get(name: str, device: str = scoring.DEVICE) -> scoring.Model:
        if device not in kept or kept[device][0] != name:
            if device in kept:
                kept.pop(device)[1].close()
            kept[device] = (name, scoring.Model(name, device))
        return kept[device][1]

    yield get
    for _, loaded in kept.values():
        loaded.close()


@pytest.fixture(scope="session")
def scores(model):
    """scores(name, device, n_ubatch, flash_attn, n_seq, n_tokens), computed once."""
    kept = {}

    def get(name: str, device: str, *case) -> Scores:
        if (name, device, case) not in kept:
            kept[name, device, case] = model(name, device).score(*case)
        return kept[name, device, case]

    return get
