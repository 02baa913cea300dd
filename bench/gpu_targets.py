"""What the CUDA kernels are to reach on an H200: rates in TFLOP/s, and times in microseconds."""

import dataclasses

from results import Row

LARGE, SMALL = "cuda/sm90", "cuda/sm80"  # what selection picks there, from 1024 rows on and below
TINY = "causal/B2xS72xH4xD32"
# Part of a target below which it is far off.
NEAR = 0.85


@dataclasses.dataclass
class GpuTarget:
    """A row and what it is to reach; `name` has a place for the precision."""

    name: str
    fast: float
    high: float
    unit: str  # "TFLOP/s": at least; "us": at most


def rate(problem: str, fast: float, high: float, kernel: str = LARGE) -> GpuTarget:
    return GpuTarget(f"forward/{kernel}/{{}}/{problem}", fast, high, "TFLOP/s")


def time(row: str, problem: str, limit: float) -> GpuTarget:
    return GpuTarget(f"{row}/{SMALL}/{{}}/{problem}", limit, limit, "us")


GPU_TARGETS = [
    rate("causal/B1xS16384xH16xD128", 1050, 720),
    rate("full/B1xS16384xH16xD128", 1080, 740),
    rate("causal/B4xS4096xH16xD128", 900, 650),
    rate("causal/B16xS1024xH16xD128", 600, 520),
    rate("causal/B1xS16384xH32xD64", 660, 540),
    rate("causal/B1xS16384xH8xD256", 1150, 800),
    rate("causal/B1xS16384xH16xD128", 450, 380, kernel="cuda/sm80"),
    time("decode", "B1xHq32xHkv32xD128xL32768", 70),
    time("decode", "B32xHq32xHkv8xD128xL8192", 140),
    time("decode", "B64xHq64xHkv8xD128xL4096", 145),
    time("graph", TINY, 3.0),
    time("host", TINY, 1.5),
]


def reached(goal: float, value: float, unit: str) -> float:
    """Part of the goal; for a time, how many times the goal's time it could take."""
    if unit == "us":
        return goal / value if value > 0 else 1.0
    return value / goal


def gpu_target_lines(rows: dict[str, Row]) -> list[list[str]]:
    """Lines of the table, the heading first."""
    lines = [["target", "precision", "target", "measured", "reached"]]
    for target in GPU_TARGETS:
        for precision, goal in (("fast", target.fast), ("high", target.high)):
            row = rows.get(target.name.format(precision))
            value = None
            if row and not row.error:
                value = row.microseconds if target.unit == "us" else row.tops
            verdict = "no row"
            if value is not None:
                part = reached(goal, value, target.unit)
                verdict = "yes" if part >= 1 else "near" if part >= NEAR else "no"
                verdict += f" ({100 * part:.0f} %)"
            lines.append([target.name.replace("/{}", ""), precision, f"{goal:g} {target.unit}",
                          "" if value is None else f"{value:.4g} {target.unit}", verdict])
    return lines
