"""What the CPU kernels are to reach, in proportion to ceilings and peers of the same run."""

import dataclasses
import json
import pathlib
from collections.abc import Callable

from results import Row, ceiling_of, fraction, selected_kernel

TINY, SHORT = "B2xS72xH4xD32", "B1xS512xH16xD64"
MIDDLE, LONG = "B1xS2048xH16xD128", "B1xS8192xH8xD128"
DECODE, DECODE_GROUPED = "B1xHq32xHkv32xD128xL32768", "B1xHq32xHkv8xD128xL32768"
AMX = "cpu/amx_int8"
# Peers that the bfloat16 target is about: parts of their names in the output of bench/peers.
BFLOAT16_PEERS = ("PyTorch SDPA bfloat16", "oneDNN graph bfloat16")
# Part of a target below which it is far off.
NEAR = 0.85


@dataclasses.dataclass
class Run:
    """What targets are measured on."""

    rows: dict[str, Row]
    peers: list[dict]

    def row(self, name: str) -> Row | None:
        row = self.rows.get(name)
        return None if row is None or row.error else row

    def part(self, name: str) -> float | None:
        """Part of its ceiling that a row reaches."""
        row = self.row(name)
        return fraction(row, self.row(ceiling_of(name) or "")) if row else None


Measure = Callable[[Run, str, str], float | None]  # run, precision, "" or "_1"


@dataclasses.dataclass
class Target:
    name: str
    fast: float
    high: float
    unit: str  # "%" or "x"
    measure: Measure
    threads: tuple[str, ...] = ("_1", "")


def forward(run: Run, kernel: str | None, precision: str, one: str, problem: str) -> str:
    return f"forward{one}/{kernel or selected_kernel(run.rows)}/{precision}/causal/{problem}"


def of_ceiling(problem: str, kernel: str) -> Measure:
    return lambda run, precision, one: run.part(forward(run, kernel, precision, one, problem))


def of_memory(problem: str) -> Measure:
    return lambda run, precision, one: run.part(
        f"decode{one}/{selected_kernel(run.rows)}/{precision}/{problem}")


def against_eigen(problem: str, kernel: str | None, faster_of_both: bool = False) -> Measure:
    def measure(run: Run, precision: str, one: str) -> float | None:
        ours = run.row(forward(run, kernel, precision, one, problem))
        peers = [run.row(f"peer{suffix}/eigen_f32/causal/{problem}")
                 for suffix in (("", "_1") if faster_of_both else (one,))]
        if not ours or not all(peers):
            return None
        return min(peer.microseconds for peer in peers if peer) / ours.microseconds
    return measure


def against_bfloat16(problem: str) -> Measure:
    def measure(run: Run, precision: str, one: str) -> float | None:
        counts = {row["threads"] for row in run.peers}
        threads = 1 if one else max(counts, default=0)
        ratios = [row[precision] for row in run.peers
                  if row["problem"] == f"causal/{problem}" and row["threads"] == threads
                  and row["name"].startswith(BFLOAT16_PEERS) and row[precision]]
        return min(ratios, default=None)
    return measure


def scaling(problem: str) -> Measure:
    """How much threads bring, relative to what they bring to the ceiling."""
    def measure(run: Run, precision: str, one: str) -> float | None:
        parts = [run.part(forward(run, None, precision, suffix, problem)) for suffix in ("", "_1")]
        return parts[0] / parts[1] if parts[0] and parts[1] else None
    return measure


TARGETS = [
    Target("amx_int8 (1,2048,16,128) of ceiling", 0.28, 0.18, "%", of_ceiling(MIDDLE, AMX)),
    Target("amx_int8 (1,8192,8,128) of ceiling", 0.28, 0.18, "%", of_ceiling(LONG, AMX)),
    Target("amx_int8 (1,2048,16,128) against Eigen", 15, 10, "x", against_eigen(MIDDLE, AMX)),
    Target("amx_int8 (1,8192,8,128) against Eigen", 15, 10, "x", against_eigen(LONG, AMX)),
    Target("amx_int8 (1,512,16,64) of ceiling", 0.17, 0.13, "%", of_ceiling(SHORT, AMX)),
    Target("avx512vnni (1,2048,16,128) of ceiling", 0.60, 0.40, "%",
           of_ceiling(MIDDLE, "cpu/avx512vnni")),
    Target("avx2 (1,2048,16,128) of ceiling", 0.65, 0.55, "%", of_ceiling(MIDDLE, "cpu/avx2")),
    Target("decode 32/32 heads of memory_read", 0.85, 0.85, "%", of_memory(DECODE)),
    Target("decode 32/8 heads of memory_read", 0.80, 0.80, "%", of_memory(DECODE_GROUPED)),
    Target("(2,72,4,32) against Eigen, the faster", 6, 5, "x",
           against_eigen(TINY, None, faster_of_both=True), threads=("",)),
    Target("(1,2048,16,128) against bfloat16 peers", 8, 6, "x", against_bfloat16(MIDDLE)),
    Target("(1,2048,16,128) threads over one, of ceiling's", 0.95, 0.95, "%", scaling(MIDDLE),
           threads=("",)),
]


def shown(value: float, unit: str) -> str:
    return f"{100 * value:.1f} %" if unit == "%" else f"{value:.2f} x"


def target_lines(rows: dict[str, Row], peers: list[dict]) -> list[list[str]]:
    """Lines of the table, the heading first."""
    run = Run(rows, peers)
    lines = [["target", "threads", "precision", "target", "measured", "reached"]]
    for target in TARGETS:
        for one in target.threads:
            for precision in ("fast", "high"):
                goal = target.fast if precision == "fast" else target.high
                value = target.measure(run, precision, one)
                verdict = "no row"
                if value is not None:
                    verdict = ("yes" if value >= goal else "near" if value >= NEAR * goal else "no")
                    verdict += f" ({100 * value / goal:.0f} %)"
                lines.append([target.name, "1" if one else "all", precision,
                              shown(goal, target.unit),
                              "" if value is None else shown(value, target.unit), verdict])
    return lines


def read_peers(path: pathlib.Path) -> list[dict]:
    """Rows of the output of bench/peers."""
    return json.loads(path.read_text())["rows"]
