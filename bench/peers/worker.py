"""One peer in a process of its own, so that no two threading runtimes meet: worker.py PEER THREADS.

Reads a request a line from standard input, {"prepare": index of the problem}, {"time": seconds} or
{"forget": true}, and answers each with a line.
"""

from __future__ import annotations

import json
import os
import statistics
import sys

import families
from peer import Missing, times
from problems import CPU_PROBLEMS, make_data, relative_error


def main() -> None:
    # What libraries print must not reach the parent.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**values: object) -> None:
        print(json.dumps(values), file=answers, flush=True)

    peer = families.by_name(sys.argv[1])
    threads = int(sys.argv[2])
    if peer.pinned:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    try:
        answer(version=peer.load())
    except Exception as error:
        return answer(missing=f"{error}" if isinstance(error, Missing) else repr(error))
    runner = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                problem = CPU_PROBLEMS[request["prepare"]]
                data = make_data(problem)
                runner = peer.prepare(problem, data, threads)
                runner.run()
                error = relative_error(problem, data, runner.output())
                if not error < peer.tolerance:
                    raise Missing(f"computes something else: relative error {error:.2g}")
                answer(error=error)
            elif "time" in request:
                measured = times(runner, request["time"], request.get("cpu_time", False))
                answer(seconds=statistics.median(measured))
            else:
                runner = None
                answer()
        except Exception as error:
            runner = None
            answer(missing=f"{error}" if isinstance(error, Missing) else repr(error)[:300])


if __name__ == "__main__":
    main()
