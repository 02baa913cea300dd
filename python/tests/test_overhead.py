"""The price of the call itself, measured on an empty batch: all checks, no attention.

The bounds hold on a quiet machine, for the best of many short rounds. On one that is busy or slower
the same instructions take longer, so a call that misses its bound is judged beside a yardstick: an
operation of the same kind, without this package, whose rounds take turns with the call's. By the
factor that the yardstick takes longer than on a quiet machine the call may take longer too; the
median of the pairs counts. No factor is below 1.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import statistics
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import qattn
from support import make_problem

Call = Callable[[], object]

CALLS_PER_ROUND = 50  # a fraction of a millisecond: most rounds end before they are interrupted
SECONDS = 3.0
REGRESSION_US = 10.0

# What the yardsticks take on a quiet 3 GHz core.
NUMPY_YARDSTICK_US = 2.0
TORCH_YARDSTICK_US = 4.0


@dataclass(frozen=True)
class Subject:
    """A call with its bound, and its yardstick with the time that takes on a quiet machine."""

    call: Call
    bound_us: float
    yardstick: Call
    yardstick_us: float


def round_us(call: Call) -> float:
    """Return the processor time of a call, the mean of one round."""
    return timeit.timeit(call, number=CALLS_PER_ROUND, timer=time.thread_time) / (
        CALLS_PER_ROUND * 1e-6
    )


def excess(subject: Subject) -> float:
    """Return the time of the call over what it may take here; 1 or less is good."""
    best = math.inf
    beside_yardstick = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yardstick, taken = round_us(subject.yardstick), round_us(subject.call)
        beside_yardstick.append(taken / max(1.0, yardstick / subject.yardstick_us))
        best = min(best, taken)
        if best <= subject.bound_us:
            break
    usual = statistics.median(beside_yardstick)
    print(
        f"{best:.2f} us at best, {usual:.2f} us beside the yardstick; bound {subject.bound_us} us"
    )
    return min(best, usual) / subject.bound_us


def numpy_subject() -> Subject:
    """Return `qattn.forward` on NumPy arrays."""
    arrays = [x[:0] if x.ndim == 4 else x for x in make_problem().arrays]

    def yardstick() -> object:
        for array in arrays:  # as many arrays, and memory for a result
            np.from_dlpack(array)
        return np.empty(arrays[0].shape, np.float32)

    return Subject(lambda: qattn.forward(*arrays), 5.0, yardstick, NUMPY_YARDSTICK_US)


@functools.cache
def do_nothing() -> Any:
    """Return a PyTorch operator in Python with as many tensors, and memory for a result."""
    import torch

    library = torch.library.Library("qattn_test", "DEF")
    library.define("nothing(" + ", ".join(f"Tensor x{i}" for i in range(6)) + ") -> Tensor")
    library.impl("nothing", lambda x, *_: torch.empty_like(x, dtype=torch.float32), "CPU")
    return library, torch.ops.qattn_test.nothing  # the operator lives as long as its library


def torch_subject() -> Subject:
    """Return the PyTorch operator, in inference mode."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    importlib.import_module("qattn.torch")
    tensors = [torch.from_numpy(x[:0] if x.ndim == 4 else x) for x in make_problem().arrays]
    operator = torch.ops.qattn.forward
    nothing = do_nothing()[1]
    assert operator(*tensors).shape == (0, *np.shape(tensors[0])[1:])
    return Subject(lambda: operator(*tensors), 12.0, lambda: nothing(*tensors), TORCH_YARDSTICK_US)


def slower(subject: Subject) -> Subject:
    """Return the subject with 10 us more of work: calls of its yardstick.

    Where these are faster than on the machine that the bound is for, it takes more of them: the
    bound is none the lower there.
    """
    fastest = min(round_us(subject.yardstick) for _ in range(20))
    repeats = math.ceil(REGRESSION_US / min(subject.yardstick_us, fastest))

    def call() -> None:
        subject.call()
        for _ in range(repeats):
            subject.yardstick()

    return dataclasses.replace(subject, call=call)


SUBJECTS = {"numpy": numpy_subject, "torch": torch_subject}


@pytest.fixture(params=list(SUBJECTS))
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Yield each subject, in the mode that it is called in."""
    made = SUBJECTS[request.param]()
    if request.param == "numpy":
        yield made
        return
    import torch

    with torch.inference_mode():
        yield made


def test_a_call_costs_little(subject: Subject) -> None:
    assert excess(subject) <= 1


def test_ten_microseconds_more_are_noticed(subject: Subject) -> None:
    assert excess(slower(subject)) > 1
