"""Times the attention of other libraries on the same problems and threads as qattn's, in turns.

    python3 -m venv build/peers && build/peers/bin/pip install -r bench/peers/requirements.txt
    build/peers/bin/python bench/peers --out build/release/peers.json

docs/benchmarking.md says how it measures. A peer that cannot be had is listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform

import contest_cuda
from contestants import Bench
from problems import CPU_PROBLEMS, CUDA_PROBLEMS
from rounds import Effort, Results, compete, prepare, start_workers
from table import as_json, lines

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def machine() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main_cuda(arguments: argparse.Namespace) -> None:
    results = Results()
    context = {"kernel": arguments.kernel or "qattn", "machine": contest_cuda.machine(),
               "seconds": arguments.seconds, "out_type": arguments.out_type}

    def write() -> None:
        if arguments.out:
            record = as_json(CUDA_PROBLEMS, results, context)
            arguments.out.write_text(json.dumps(record, indent=1) + "\n")

    try:
        contest_cuda.run(arguments, results, write)
    except ImportError as reason:
        results.miss("PyTorch", reason)
    write()
    print("\n".join(lines(as_json(CUDA_PROBLEMS, results, context))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=pathlib.Path, default=ROOT / "build/release/qattn_bench")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kernel", help="ours; default: the first of the table that is usable")
    parser.add_argument("--threads", default="", help="such as 1,2; default: one and all")
    parser.add_argument("--problem", default="", help="part of a problem's name: these only")
    parser.add_argument("--peer", default="", help="part of a peer's name: these only")
    parser.add_argument("--without", help="part of a peer's name: not these")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float,
                        help="of a turn, one call at least; default: 0.2, on a GPU 0.05")
    parser.add_argument("--limit", type=float, default=20,
                        help="seconds after which a problem gets no more rounds than three")
    parser.add_argument("--cpu-time", action="store_true",
                        help="on one thread: the time on a processor, not the clock's")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/release/libqattn.so",
                        help="on a GPU: what holds ours")
    parser.add_argument("--out-type", choices=("float32", "float16", "bfloat16"), default="float32",
                        help="on a GPU: of our output")
    parser.add_argument("--budget", type=float, default=45,
                        help="on a GPU: seconds after which a problem gets one round")
    parser.add_argument("--out", type=pathlib.Path, help="JSON to write")
    arguments = parser.parse_args()
    if arguments.seconds is None:
        arguments.seconds = 0.2 if arguments.device == "cpu" else 0.05
    if arguments.device == "cuda":
        return main_cuda(arguments)

    bench = Bench(arguments.bench, arguments.kernel)
    problems = CPU_PROBLEMS
    every = len(os.sched_getaffinity(0))
    counts = sorted({1, every})
    if arguments.threads:
        counts = [int(count) for count in arguments.threads.split(",")]
    effort = Effort(arguments.rounds, arguments.seconds, arguments.limit, arguments.cpu_time)
    results = Results()
    context = {"kernel": bench.kernel, "machine": machine(), "processors": every,
               "seconds": arguments.seconds, "cpu_time": arguments.cpu_time}
    for threads in counts:
        workers = start_workers(threads, arguments.peer, arguments.without, results)
        try:
            for index, problem in enumerate(problems):
                if arguments.problem not in problem.name:
                    continue
                ready = prepare(workers, index, problem, results)
                compete(bench, ready, problem, threads, effort, results)
                record = as_json(problems, results, context)
                if arguments.out:  # after every problem: a run takes minutes
                    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
        finally:
            for worker in workers:
                worker.end()
    print("\n".join(lines(as_json(problems, results, context))))


if __name__ == "__main__":
    main()
