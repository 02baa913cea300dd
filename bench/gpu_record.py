#!/usr/bin/env python3
"""Writes the record of a run of `./dev gpu`: what was tested, on which machine, for which tree.

The record (docs/results/h200.json) is committed. `./dev test` compares its hash of the tree with the
tree at hand and says whether the record is current.
"""

import argparse
import json
import pathlib
import re
import subprocess
import time


COUNTERS = ("TOPS", "GBps", "forward_us", "bare_us")


def gpu() -> dict[str, str]:
    """Name, driver and clocks of the first GPU, as nvidia-smi says."""
    fields = ["name", "driver_version", "clocks.max.sm", "memory.total"]
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "--id=0"]
    values = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    return dict(zip(fields, (value.strip() for value in values.split(","))))


def verify_lines(path: pathlib.Path) -> list[str]:
    """The lines of `qattn verify` that concern CUDA kernels, and its summary."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if "cuda/" in line] + lines[-1:]


def bench_rows(path: pathlib.Path) -> dict[str, dict[str, float]]:
    """Name of each row -> its time in microseconds and its counters."""
    if not path.exists():
        return {}
    rows: dict[str, dict[str, float]] = {}
    scale = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
    for row in json.loads(path.read_text())["benchmarks"]:
        if row.get("run_type") == "aggregate" and row.get("aggregate_name") != "median":
            continue
        name = re.sub(r"/(real_time|manual_time|iterations:\d+|repeats:\d+)|_median$", "", row["name"])
        values = {"us": round(row["real_time"] * scale[row["time_unit"]], 3)}
        values |= {key: row[key] for key in COUNTERS if key in row}
        rows[name] = values
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", required=True, help="hash over the contents of the tree")
    parser.add_argument("--passed", required=True, choices=("true", "false"))
    parser.add_argument("--build", required=True, type=pathlib.Path, help="build folder")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    record = {
        "tree": arguments.tree,
        "passed": arguments.passed == "true",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": gpu(),
        "verify": verify_lines(arguments.build / "verify.txt"),
        "bench": bench_rows(arguments.build / "bench.json"),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
