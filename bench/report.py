#!/usr/bin/env python3
"""Puts the JSON output of qattn_bench into proportion.

For each row: its time, its rate, the fraction of its ceiling that this is, and how many times
faster it is than its peer, all from the same run. With --benchmark_repetitions the median counts.

    qattn_bench --benchmark_repetitions=5 --benchmark_out=bench.json --benchmark_out_format=json
    bench/report.py bench.json
    bench/report.py --targets [--peers peers.json] bench.json
    bench/report.py --gpu-targets docs/results/h200.json
"""

import argparse
import pathlib
import re
import sys

from gpu_targets import gpu_target_lines
from results import Row, ceiling_of, fraction, read_rows, speedup
from targets import read_peers, target_lines

def rate(row: Row) -> str:
    """The rate that a row is judged by."""
    if row.gbps:
        return f"{row.gbps:.4g} GB/s"
    return f"{row.tops:.4g} TOPS" if row.tops else ""


def table(rows: dict[str, Row]) -> list[list[str]]:
    """Lines of the report, the heading first."""
    lines = [["row", "time/us", "rate", "of ceiling", "x peer"]]
    for name, row in rows.items():
        if row.error:
            lines.append([name, "", f"ERROR: {row.error}", "", ""])
            continue
        part = fraction(row, rows.get(ceiling_of(name) or ""))
        times = speedup(name, row, rows)
        lines.append([name, f"{row.microseconds:.4g}", rate(row),
                      "" if part is None else f"{100 * part:.1f} %",
                      "" if times is None else f"{times:.3g}"])
    return lines


def busy_ceilings(rows: dict[str, Row]) -> list[str]:
    """Ceilings that all threads together raise too little above one thread's: others interfered."""
    busy = []
    for name, row in rows.items():
        alone = rows.get(name.replace("ceiling/", "ceiling_1/", 1))
        if name.startswith("ceiling/") and alone and row.threads and row.threads > 1:
            least = 0.8 * row.threads * (alone.tops or 0)
            if row.tops and row.tops < least:
                busy.append(name)
    return busy


def aligned(lines: list[list[str]]) -> list[str]:
    """Lines of columns as wide as their cells; the first column to the left."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
            for line in lines]


def main() -> int:
    """Prints the report; 1 if a row failed."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path, help="output of qattn_bench, or a record of it")
    parser.add_argument("--filter", default="", help="regular expression: print these rows only")
    parser.add_argument("--targets", action="store_true",
                        help="print what the CPU kernels are to reach and what they reach")
    parser.add_argument("--gpu-targets", action="store_true",
                        help="print what the CUDA kernels are to reach on an H200 and what they reach")
    parser.add_argument("--peers", type=pathlib.Path,
                        help="output of bench/peers, for the targets that compare with it")
    parser.add_argument("--cpu-time", action="store_true",
                        help="rows on one thread: the time on a processor, not the clock's")
    arguments = parser.parse_args()
    rows = read_rows(arguments.json, arguments.cpu_time)
    if arguments.gpu_targets:
        lines = gpu_target_lines(rows)
    elif arguments.targets:
        lines = target_lines(rows, read_peers(arguments.peers) if arguments.peers else [])
    else:
        lines = table(rows)
    lines[1:] = [line for line in lines[1:] if re.search(arguments.filter, line[0])]
    print("\n".join(aligned(lines)))
    if busy := busy_ceilings(rows):
        print(f"{', '.join(busy)}: less than threads x one thread's rate. Others used the machine "
              "(or threads share cores): fractions of these ceilings mean little.",
              file=sys.stderr)
    return 1 if any(row.error for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
