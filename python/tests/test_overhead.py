"""The price of the call itself, measured on an empty batch: all checks, no attention."""

from __future__ import annotations

import importlib
import time
import timeit
from collections.abc import Callable

import numpy as np
import pytest
import qattn
from support import make_problem

NUMPY_BOUND_US = 5.0
TORCH_BOUND_US = 12.0


def microseconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call, the best of many rounds."""
    rounds = timeit.repeat(call, number=500, repeat=40, timer=time.thread_time)
    return min(rounds) / 500 * 1e6


def test_numpy() -> None:
    arrays = [x[:0] if x.ndim == 4 else x for x in make_problem().arrays]
    assert microseconds(lambda: qattn.forward(*arrays)) < NUMPY_BOUND_US


def test_torch_operator() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    importlib.import_module("qattn.torch")
    tensors = [torch.from_numpy(x[:0] if x.ndim == 4 else x) for x in make_problem().arrays]
    operator = torch.ops.qattn.forward
    with torch.inference_mode():
        assert microseconds(lambda: operator(*tensors)) < TORCH_BOUND_US
    assert operator(*tensors).shape == (0, *np.shape(tensors[0])[1:])
