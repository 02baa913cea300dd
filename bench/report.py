#!/usr/bin/env python3
"""Puts the JSON output of qattn_bench into proportion.

For each row: its time, its rate, the fraction of its ceiling that this is, and how many times
faster it is than its peer, all from the same run. With --benchmark_repetitions the median counts.

    qattn_bench --benchmark_repetitions=5 --benchmark_out=bench.json --benchmark_out_format=json
    bench/report.py bench.json
"""

import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import sys

# The ceiling of each kernel's arithmetic. A kernel that is not here has none yet.
CEILING_OF_KERNEL = {
    "cpu/amx_int8": "amx_int8",
    "cpu/avx512vnni": "avx512vnni",
    "cpu/avx512": "avx512_madd",
    "cpu/avxvnni": "avxvnni",
    "cpu/avx2": "avx2_madd",
}
MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
SUFFIX = re.compile(r"/(real_time|manual_time|iterations:\d+|repeats:\d+|min_time:[^/]+)")


@dataclasses.dataclass
class Row:
    """The medians of one row."""

    microseconds: float
    tops: float | None = None
    gbps: float | None = None
    threads: float | None = None
    error: str | None = None


def plain_name(entry: dict) -> str:
    """Name of a row without what the harness appends."""
    return SUFFIX.sub("", entry.get("run_name", entry["name"]))


def read_rows(path: pathlib.Path) -> dict[str, Row]:
    """Name of each row -> its medians, in the order of the file."""
    runs: dict[str, list[dict]] = {}
    medians: dict[str, dict] = {}
    for entry in json.loads(path.read_text())["benchmarks"]:
        if entry.get("run_type") != "aggregate":
            runs.setdefault(plain_name(entry), []).append(entry)
        elif entry.get("aggregate_name") == "median":
            medians[plain_name(entry)] = entry
    rows = {}
    for name in runs | medians:
        entries = runs.get(name) or [medians[name]]
        failed = [entry for entry in entries if entry.get("error_occurred")]
        if failed:
            rows[name] = Row(0.0, error=failed[0].get("error_message", "failed"))
            continue

        def median(key: str) -> float | None:
            values = [entry[key] for entry in entries if key in entry]
            return statistics.median(values) if values else None

        time = statistics.median(e["real_time"] * MICROSECONDS[e["time_unit"]] for e in entries)
        rows[name] = Row(time, median("TOPS"), median("GBps"), median("threads"))
    return rows


def split(name: str) -> tuple[str, str, list[str]]:
    """ "forward_1/cpu/avx2/..." -> "forward", "_1", ["cpu", "avx2", ...]."""
    first, *rest = name.split("/")
    return first.removesuffix("_1"), "_1" if first.endswith("_1") else "", rest


def ceiling_of(name: str) -> str | None:
    """Name of the ceiling row that bounds a row."""
    first, one, rest = split(name)
    if first == "decode":
        return f"ceiling{one}/memory_read" if rest[0] == "cpu" else "ceiling/device_read"
    if first == "forward":
        row = CEILING_OF_KERNEL.get("/".join(rest[:2]))
        return f"ceiling{one}/{row}" if row else None
    if first == "peer" and rest[0].startswith("eigen_f32"):
        return f"ceiling{one}/fp32_fma"
    return None


def peer_of(name: str) -> str | None:
    """Name of the peer row that computes the same thing as a row on the same threads."""
    first, one, rest = split(name)
    if first != "forward":
        return None
    peer = "eigen_f32" if rest[0] == "cpu" else "one_thread_per_query"
    return f"peer{one}/{peer}/" + "/".join(rest[-2:])


def fraction(row: Row, ceiling: Row | None) -> float | None:
    """Part of the ceiling that a row reaches, in the ceiling's unit."""
    if ceiling is None:
        return None
    for mine, limit in ((row.tops, ceiling.tops), (row.gbps, ceiling.gbps)):
        if mine and limit:
            return mine / limit
    return None


def speedup(name: str, row: Row, rows: dict[str, Row]) -> float | None:
    """How many times faster than its peer a row is. On a tiny problem threads can cost more than
    they bring: the faster of the peer's two rows counts, for the row on all threads."""
    peer = peer_of(name)
    if peer is None:
        return None
    names = {peer, peer.replace("peer/", "peer_1/", 1)}
    times = [rows[n].microseconds for n in names if n in rows and not rows[n].error]
    return min(times) / row.microseconds if times else None


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
            if row.tops and alone.tops and row.tops < 0.8 * row.threads * alone.tops:
                busy.append(name)
    return busy


def main() -> int:
    """Prints the report; 1 if a row failed."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path, help="output of qattn_bench")
    parser.add_argument("--filter", default="", help="regular expression: print these rows only")
    arguments = parser.parse_args()
    rows = read_rows(arguments.json)
    lines = table(rows)
    lines[1:] = [line for line in lines[1:] if re.search(arguments.filter, line[0])]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        cells = [cell.ljust(width) if i == 0 else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())
    if busy := busy_ceilings(rows):
        print(f"{', '.join(busy)}: less than threads x one thread's rate. Others used the machine "
              "(or threads share cores): fractions of these ceilings mean little.",
              file=sys.stderr)
    return 1 if any(row.error for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
