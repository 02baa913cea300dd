#!/usr/bin/env python3
"""Writes the record of a run on a CPU: medians of the rows that targets and the figure read.

    bench/record.py build/release/bench.json docs/results/cpu.json
"""

import argparse
import json
import pathlib
import re
import time

from results import COUNTERS, read_rows

KEPT = re.compile(r"ceiling|peer(_1)?/eigen_f32/causal|forward(_1)?/(?!cpu/scalar).*/causal|decode")


def significant(value: float) -> float:
    return float(f"{value:.5g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path, help="output of qattn_bench or bench/measure.py")
    parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("--cpu-time", action="store_true",
                        help="rows on one thread: the time on a processor, not the clock's")
    arguments = parser.parse_args()
    context = json.loads(arguments.json.read_text())["context"]
    bench = {}
    for name, row in read_rows(arguments.json, arguments.cpu_time).items():
        if row.error or not KEPT.match(name):
            continue
        values = (row.microseconds, row.tops, row.gbps, row.threads)
        bench[name] = {key: significant(value)
                       for key, value in zip(("us", *COUNTERS), values) if value is not None}
    record = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cpu": context.get("cpu"),
              "cpu_features": context.get("cpu_features"), "threads": context.get("threads"),
              "cpu_time_on_one_thread": arguments.cpu_time, "bench": bench}
    arguments.record.parent.mkdir(parents=True, exist_ok=True)
    arguments.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
