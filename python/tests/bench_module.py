"""Time `Int8CausalAttention` beside the modules that it replaces, eager and end to end.

python python/tests/bench_module.py [--device cpu|cuda] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import qattn
import qattn.torch
import torch
from plain_module import DequantizedAttention, PlainAttention
from support import make_problem

SHAPES = ((2, 72, 4, 32), (1, 512, 16, 64), (1, 2048, 16, 128))
LOOP_LIMIT = 512
"""Tokens up to which the loop over positions is timed."""
ROUND_SECONDS = 0.2


def microseconds(device: torch.device, call: Callable[[], object]) -> float:
    """Return the time of a call, the best of five rounds."""

    def timed(calls: int) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    calls = max(1, int(ROUND_SECONDS / max(timed(1), timed(1), 1e-6)))
    return 1e6 * min(timed(calls) for _ in range(5))


def peers(seq: int) -> dict[str, Any]:
    """Return the modules to time."""
    modules: dict[str, Any] = {
        "qattn high": qattn.torch.Int8CausalAttention(),
        "qattn fast": qattn.torch.Int8CausalAttention(precision="fast"),
        "dequantise and SDPA": DequantizedAttention(),
    }
    if seq <= LOOP_LIMIT:
        modules["loop over positions"] = PlainAttention()
    return modules


def main() -> None:
    """Time every module at every shape."""
    parser = argparse.ArgumentParser(description="Time the PyTorch module beside its peers.")
    parser.add_argument("--device", help="cpu or cuda; cuda where qattn can use it if absent")
    parser.add_argument("--json", type=Path, help="also write the times here")
    arguments = parser.parse_args()
    usable = torch.cuda.is_available() and any(s.usable for s in qattn.kernels("cuda"))
    device = torch.device(arguments.device or ("cuda" if usable else "cpu"))
    rows = []
    print("| batch, seq, heads, head_dim | module | us | of qattn high |")
    print("| --- | --- | ---: | ---: |")
    for batch, seq, heads, head_dim in SHAPES:
        problem = make_problem(batch, seq, heads, head_dim)
        tensors = [torch.from_numpy(x).to(device) for x in problem.arrays]
        times: dict[str, float] = {}
        for name, module in peers(seq).items():
            with torch.inference_mode():
                times[name] = microseconds(device, lambda run=module, given=tensors: run(*given))
            factor = times[name] / times["qattn high"]
            shape = [batch, seq, heads, head_dim]
            print(f"| {shape} | {name} | {times[name]:.1f} | {factor:.2f} |", flush=True)
            rows.append({"shape": shape, "module": name, "us": times[name]})
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": str(device), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
