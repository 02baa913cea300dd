"""What a family of peers provides (families/*.py)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from problems import Data, Problem


class Missing(Exception):
    """This peer cannot be had here, or does not offer this problem; the message says why."""


class Runner(Protocol):
    def run(self) -> None:
        """Computes the problem once, on the next copy of K and V."""

    def output(self) -> np.ndarray:
        """What the last run computed: float32 (batch, seq_q, heads, head_dim)."""


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    device: str  # "cpu" or "cuda"
    tolerance: float  # relative, against float64: loose, to tell a peer from something else
    load: Callable[[], str]  # returns a version or raises Missing
    # The int: threads. For "cuda" Data and Runner are those of families/torch_cuda.py.
    prepare: Callable[[Problem, Data, int], Runner]
    # Environment of the process, from the number of threads.
    environment: Callable[[int], dict[str, str]] = lambda threads: {}
    pinned: bool = False  # whether only the processors that it may use bound its threads


BFLOAT16 = 3e-2
FLOAT32 = 1e-3
EIGHT_BITS = 0.15


def times(runner: Runner, seconds: float, cpu_time: bool = False) -> list[float]:
    """Times of calls for `seconds`, of one call at least: the clock's, or those that the process
    had a processor."""
    clock = time.process_time if cpu_time else time.perf_counter
    results = []
    end = time.perf_counter() + seconds
    while not results or time.perf_counter() < end:
        begin = clock()
        runner.run()
        results.append(clock() - begin)
    return results
