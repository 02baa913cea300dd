#!/usr/bin/env python3
"""Draws what part of its ceiling every CPU kernel reaches, from a run or a record of one.

    bench/plot.py docs/results/cpu.json docs/results/cpu.svg
"""

import argparse
import functools
import pathlib
from collections.abc import Callable

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.patches import Patch
from results import CEILING_OF_KERNEL, Row, ceiling_of, fraction, read_rows

# Name of the panel -> rows, by kernel and precision.
PANELS = {
    "Prefill, causal: (2, 72, 4, 32)": "forward{one}/{}/{}/causal/B2xS72xH4xD32",
    "Prefill, causal: (1, 512, 16, 64)": "forward{one}/{}/{}/causal/B1xS512xH16xD64",
    "Prefill, causal: (1, 2048, 16, 128)": "forward{one}/{}/{}/causal/B1xS2048xH16xD128",
    "Prefill, causal: (1, 8192, 8, 128)": "forward{one}/{}/{}/causal/B1xS8192xH8xD128",
    "Decode: 32/32 heads of 128, 32768 keys": "decode{one}/{}/{}/B1xHq32xHkv32xD128xL32768",
    "Decode: 32/8 heads of 128, 32768 keys": "decode{one}/{}/{}/B1xHq32xHkv8xD128xL32768",
}
# Of the palette of Okabe and Ito, which people with any colour vision tell apart; the lighter of
# the two is hatched besides.
STYLES = {"high": {"facecolor": "#0072B2"},
          "fast": {"facecolor": "#E69F00", "hatch": "////", "edgecolor": "#7a5400",
                   "linewidth": 0.4}}
BAR = 0.38


def part(rows: dict[str, Row], name: str) -> float | None:
    row = rows.get(name)
    if row is None or row.error:
        return None
    return fraction(row, rows.get(ceiling_of(name) or ""))


def draw_panel(axes: pyplot.Axes, kernels: list[str],
               part_of: Callable[[str, str], float | None]) -> None:
    """`part_of`: of its ceiling, for a kernel and a precision."""
    for i, kernel in enumerate(kernels):
        for offset, (precision, style) in zip((-BAR / 2, BAR / 2), STYLES.items()):
            value = part_of(kernel, precision)
            if value is None:
                axes.text(1, i + offset, "no row", va="center", fontsize=7, color="#666666")
                continue
            axes.barh(i + offset, 100 * value, BAR, **style)
            digits = 1 if value < 0.0995 else 0
            axes.text(100 * value + 1.5, i + offset, f"{100 * value:.{digits}f}", va="center",
                      fontsize=7)
    axes.set_yticks(range(len(kernels)), [kernel.removeprefix("cpu/") for kernel in kernels])
    axes.set_ylim(len(kernels) - 0.4, -0.6)  # the best kernel on top
    axes.set_xlim(0, 110)
    axes.set_xticks(range(0, 101, 25))
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=2)


def draw(rows: dict[str, Row], one: str, out: pathlib.Path) -> None:
    """`one`: "_1" for rows on one thread, else ""."""
    def part_of(pattern: str, kernel: str, precision: str) -> float | None:
        return part(rows, pattern.format(kernel, precision, one=one))

    kernels = [kernel for kernel in CEILING_OF_KERNEL
               if any(part_of(pattern, kernel, "high") for pattern in PANELS.values())]
    pyplot.rcParams |= {"font.family": ["DejaVu Sans", "sans-serif"], "svg.fonttype": "none",
                        "svg.hashsalt": "qattn", "hatch.linewidth": 0.5}
    height = 1.1 + 2 * (0.55 + 0.42 * len(kernels))
    figure, grid = pyplot.subplots(2, 3, figsize=(10, height), sharex=True, sharey=True,
                                   layout="constrained")
    for axes, (title, pattern) in zip(grid.flat, PANELS.items()):
        draw_panel(axes, kernels, functools.partial(part_of, pattern))
        axes.set_title(title, fontsize=9)
    threads = max((int(row.threads) for name, row in rows.items()
                   if name.startswith(f"forward{one}/cpu") and row.threads), default=1)
    figure.supxlabel("% of the ceiling measured in the same run: the instruction's peak rate "
                     "(prefill), reading memory (decode)", fontsize=9)
    figure.legend(handles=[Patch(label=f"precision {name}", **style)
                           for name, style in STYLES.items()],
                  loc="outside upper center", ncols=2, fontsize=9, frameon=False,
                  title=f"CPU kernels, {threads} thread{'s' * (threads > 1)}", title_fontsize=10)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path, help="output of qattn_bench, or a record of it")
    parser.add_argument("out", type=pathlib.Path, help="figure to write, .svg or .png")
    parser.add_argument("--cpu-time", action="store_true",
                        help="draw the rows on one thread, by the time that it had a processor")
    arguments = parser.parse_args()
    draw(read_rows(arguments.json, arguments.cpu_time), "_1" if arguments.cpu_time else "",
         arguments.out)


if __name__ == "__main__":
    main()
