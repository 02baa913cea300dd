#!/usr/bin/env python3
r"""Runs qattn_bench in rounds and writes the rows of all rounds into one JSON file.

A round measures every row once. What disturbs the machine for seconds then hits one value of many
rows instead of all values of one, and medians over the rounds do not show it.

    bench/measure.py --rounds 5 --filter 'ceiling|forward' --out bench.json \
        build/release/qattn_bench
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def one_round(bench: pathlib.Path, row_filter: str, options: list[str]) -> dict:
    """The JSON output of one run."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "round.json"
        subprocess.run([str(bench), f"--benchmark_filter={row_filter}", f"--benchmark_out={out}",
                        "--benchmark_out_format=json", *options],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--filter", default=".", help="rows to run, as qattn_bench understands it")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments, options = parser.parse_known_args()  # the rest is qattn_bench's
    merged: dict = {}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        content = one_round(arguments.bench, arguments.filter, options)
        if merged:
            merged["benchmarks"] += content["benchmarks"]
        else:
            merged = content
    arguments.out.write_text(json.dumps(merged, indent=1) + "\n")


if __name__ == "__main__":
    main()
