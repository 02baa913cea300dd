"""The contest on a GPU: all in this process, with the same clocks, and done within a minute."""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import families
from families import torch_cuda
from ours_cuda import Library, Ours
from peer import Missing
from problems import CUDA_PROBLEMS, Problem
from rounds import Results, say
from table import OURS

# Relative, against float64, to tell a result from something else; bfloat16 rounds to 2^-8.
TOLERANCES = {"high": 1e-2, "fast": 4e-2}

Prepare = Callable[[Problem, torch_cuda.Tensors], Any]


class Contestant:
    def __init__(self, name: str, tolerance: float, prepare: Prepare) -> None:
        self.name, self.tolerance, self.prepare = name, tolerance, prepare


def contestants(arguments: argparse.Namespace, results: Results) -> list[Contestant]:
    """Ours first, then the peers that can be loaded."""
    found = []
    try:
        torch_cuda.load()
        library = Library(arguments.library, arguments.kernel)
        for name, precision in zip(OURS, ("high", "fast")):
            prepare = functools.partial(Ours, library, precision, arguments.out_type)
            found.append(Contestant(name, TOLERANCES[precision], prepare))
    except (Missing, OSError, AttributeError) as reason:
        results.miss("qattn", reason)
    for peer in families.ALL:
        if peer.device != "cuda" or arguments.peer.lower() not in peer.name.lower():
            continue
        if arguments.without and arguments.without.lower() in peer.name.lower():
            results.miss(peer.name, f"left out (--without {arguments.without})")
            continue
        try:
            results.versions[peer.name] = peer.load()
        except Exception as reason:
            results.miss(peer.name, reason)
            continue
        prepare = functools.partial(lambda make, problem, data: make(problem, data, 0),
                                    peer.prepare)
        found.append(Contestant(peer.name, peer.tolerance, prepare))
    return found


def ready(contestant: Contestant, problem: Problem, data: torch_cuda.Tensors,
          results: Results) -> Any:
    """A runner that computes the right thing, else None."""
    try:
        runner = contestant.prepare(problem, data)
        getattr(runner, "first_run", runner.run)()
        error = torch_cuda.relative_error(problem, data, runner.output())
        if not error < contestant.tolerance:
            raise Missing(f"computes something else: relative error {error:.2g}")
        results.errors[contestant.name] = max(error, results.errors.get(contestant.name, 0.0))
        if hasattr(runner, "kernel"):
            results.versions[f"{contestant.name}, {problem.name}"] = runner.kernel()
        return runner
    except Exception as reason:  # a backend says no with errors of every kind
        results.miss(contestant.name, str(reason).strip()[:300] or repr(reason), problem)
        return None


def compete(problem: Problem, entrants: list[Contestant], rounds: int, seconds: float,
            results: Results) -> None:
    """Everyone once, again and again."""
    import torch

    say(f"{problem.name}")
    data = torch_cuda.make_tensors(problem)
    runners = {entrant.name: ready(entrant, problem, data, results) for entrant in entrants}
    runners = {name: runner for name, runner in runners.items() if runner is not None}
    record = results.rounds.setdefault((0, problem.name), [])
    for _ in range(rounds):
        turn = {}
        for name, runner in list(runners.items()):
            try:
                turn[name] = statistics.median(runner.times(seconds))
            except Exception as reason:
                results.miss(name, str(reason).strip()[:300] or repr(reason), problem)
                del runners[name]
        record.append(turn)
    del data, runners
    torch.cuda.empty_cache()


def run(arguments: argparse.Namespace, results: Results, write: Callable[[], None]) -> None:
    """All problems, with fewer rounds once most of --budget is spent."""
    import torch

    torch.set_grad_enabled(False)
    entrants = contestants(arguments, results)
    problems = [p for p in CUDA_PROBLEMS if arguments.problem in p.name]
    begin = time.monotonic()
    for index, problem in enumerate(problems):
        left = arguments.budget - (time.monotonic() - begin)
        # What is left, shared by the problems to come; preparing takes about half of it.
        share = left / (len(problems) - index) / 2
        turns = int(share / max(1, len(entrants)) / arguments.seconds)
        compete(problem, entrants, max(1, min(arguments.rounds, turns)), arguments.seconds, results)
        write()


def machine() -> str:
    """Name of the GPU."""
    try:
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    except Exception:
        return "no PyTorch"
