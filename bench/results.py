"""Rows of a benchmark run, and how they bound and mirror each other.

Reads the JSON output of qattn_bench, of one run or of several rounds, and the records that
docs/results/ keeps.
"""

import dataclasses
import json
import pathlib
import re
import statistics

# The ceiling of each kernel's arithmetic, best first as in the kernel table. A kernel that is not
# here has none yet.
CEILING_OF_KERNEL = {
    "cpu/amx_int8": "amx_int8",
    "cpu/avx512vnni": "avx512vnni",
    "cpu/avx512": "avx512_madd",
    "cpu/avxvnni": "avxvnni",
    "cpu/avx2": "avx2_madd",
}
COUNTERS = ("TOPS", "GBps", "threads")
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


def median(entries: list[dict], key: str) -> float | None:
    values = [entry[key] for entry in entries if key in entry]
    return statistics.median(values) if values else None


def on_processor(entry: dict) -> dict:
    """An entry as if its thread had never waited for a processor."""
    if not entry.get("cpu_time"):
        return entry
    slower = entry["real_time"] / entry["cpu_time"]
    rates = {key: entry[key] * slower for key in ("TOPS", "GBps") if key in entry}
    return entry | rates | {"real_time": entry["cpu_time"]}


def read_rows(path: pathlib.Path, cpu_time: bool = False) -> dict[str, Row]:
    """Name of each row -> its medians, in the order of the file. With `cpu_time`, rows on one
    thread count the time that the thread had a processor."""
    runs: dict[str, list[dict]] = {}
    medians: dict[str, dict] = {}
    content = json.loads(path.read_text())
    if "bench" in content:  # a record
        return {name: Row(values["us"], *(values.get(key) for key in COUNTERS))
                for name, values in content["bench"].items()}
    for entry in content["benchmarks"]:
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
        if cpu_time and split(name)[1]:
            entries = [on_processor(entry) for entry in entries]
        time = statistics.median(e["real_time"] * MICROSECONDS[e["time_unit"]] for e in entries)
        rows[name] = Row(time, *(median(entries, key) for key in COUNTERS))
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


def selected_kernel(rows: dict[str, Row]) -> str | None:
    """The CPU kernel that selection picks on the machine of these rows."""
    there = {"/".join(split(name)[2][:2]) for name in rows if split(name)[0] == "forward"}
    return next((kernel for kernel in CEILING_OF_KERNEL if kernel in there), None)
