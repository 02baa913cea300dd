"""Rounds: everyone once, again and again, so that what disturbs the machine disturbs all alike."""

from __future__ import annotations

import dataclasses
import sys
import time

import families
from contestants import Bench, Worker
from peer import Missing
from problems import Problem


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Results:
    """Seconds of each round, and why what is missing is missing."""

    def __init__(self) -> None:
        self.rounds: dict[tuple[int, str], list[dict[str, float]]] = {}
        self.errors: dict[str, float] = {}
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def miss(self, name: str, reason: object, problem: Problem | None = None) -> None:
        key = f"{name}, {problem.name}" if problem else name
        if self.missing.setdefault(key, str(reason)) == str(reason):
            say(f"missing: {key}: {reason}")


def start_workers(threads: int, chosen: str, without: str | None,
                  results: Results) -> list[Worker]:
    workers = []
    for peer in families.ALL:
        if peer.device != "cpu" or chosen.lower() not in peer.name.lower():
            continue
        if without and without.lower() in peer.name.lower():
            results.miss(peer.name, f"left out (--without {without})")
            continue
        if peer.name in results.missing:  # with another number of threads already
            continue
        worker = Worker(peer, threads)
        try:
            worker.start()
            results.versions[peer.name] = worker.version
            workers.append(worker)
        except Missing as reason:
            worker.end()
            results.miss(peer.name, reason)
    return workers


def prepare(workers: list[Worker], index: int, problem: Problem, results: Results) -> list[Worker]:
    """Those that solve the problem."""
    ready = []
    for worker in workers:
        if worker.process.poll() is not None:
            continue
        try:
            results.errors[worker.name] = max(worker.ask(prepare=index)["error"],
                                              results.errors.get(worker.name, 0.0))
            ready.append(worker)
        except Missing as reason:
            results.miss(worker.name, reason, problem)
    return ready


@dataclasses.dataclass
class Effort:
    rounds: int
    seconds: float  # of a turn, one call at least
    limit: float  # seconds after which a problem gets no more rounds than three
    cpu_time: bool  # on one thread: whether the time on a processor counts, not the clock's


def compete(bench: Bench, workers: list[Worker], problem: Problem, threads: int, effort: Effort,
            results: Results) -> None:
    """Rounds, until there are enough or they have taken too long."""
    say(f"{threads} thread(s), {problem.name}: {len(workers)} peers")
    record = results.rounds.setdefault((threads, problem.name), [])
    end = time.monotonic() + effort.limit
    cpu_time = effort.cpu_time and threads == 1
    while len(record) < effort.rounds and (len(record) < 3 or time.monotonic() < end):
        turn = bench.times(problem, threads, effort.seconds, cpu_time)
        for worker in list(workers):
            try:
                turn[worker.name] = worker.ask(time=effort.seconds, cpu_time=cpu_time)["seconds"]
            except Missing as reason:
                results.miss(worker.name, reason, problem)
                workers.remove(worker)
        record.append(turn)
    for worker in workers:
        worker.ask(forget=True)
