"""Whole models on the emulator against llama.cpp's CPU backend: perplexity, likeliest tokens, splits, equal bytes."""
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import scoring
from conftest import DEVICE

LENGTHS = [pytest.param(192, id="192"), pytest.param(1024, id="1024", marks=[pytest.mark.full, pytest.mark.timeout(3600)])]
NAMES = ["smollm2", "gemma3"]
# Cases of a short run: every ubatch and both attention paths appear, but not all pairs.
SHORT = {(64, True, 1), (64, False, 1), (128, True, 1), (512, False, 1), (64, True, 4), (128, False, 4)}


def check(got: scoring.Scores, cpu: scoring.Scores) -> None:
    """Done-when 2: perplexity within 1 %, the likeliest token the same at 95 % of the positions."""
    print(f"perplexity {got.perplexity:.4f}, CPU {cpu.perplexity:.4f}; likeliest token agrees at {got.agreement(cpu):.2%}")
    assert abs(got.perplexity / cpu.perplexity - 1) < 0.01
    assert got.agreement(cpu) >= 0.95


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("n_tokens", LENGTHS)
@pytest.mark.parametrize("n_seq", [1, 4], ids=["1seq", "4seq"])
@pytest.mark.parametrize("flash_attn", [True, False], ids=["fa", "nofa"])
@pytest.mark.parametrize("n_ubatch", [64, 128, 512])
@pytest.mark.parametrize("name", NAMES)
def test_perplexity(scores, name, n_ubatch, flash_attn, n_seq, n_tokens, request):
    case = (n_ubatch, flash_attn, n_seq)
    if n_tokens == 192 and case not in SHORT:
        request.applymarker(pytest.mark.full)
    check(scores(name, DEVICE, *case, n_tokens), scores(name, "cpu", *case, n_tokens))
