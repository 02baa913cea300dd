"""Error and speed on attention tensors of a real model, as a picture.

    python python/examples/real_tensors.py --out real_tensors.png

Loads q, k and v of three layers of SmolLM2-135M from tests/data, quantises them per head and runs
them on the best device. Left: relative error of each head against float64, once against float64
attention over the same int8 tensors (the library's share) and once against float64 attention over
the tensors before quantisation. Right: time of a call, beside PyTorch's where PyTorch is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import qattn
from numpy.typing import NDArray

DATA = Path(__file__).parents[2] / "tests" / "data"
LAYERS = (0, 18, 29)
PRECISIONS = ("high", "fast")
Float64 = NDArray[np.float64]


def attention(q: Float64, k: Float64, v: Float64) -> Float64:
    """Follow the formula: causal attention over (batch, seq, heads, head_dim) in float64."""
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    out = np.empty_like(q)
    visible = np.tri(q.shape[1], dtype=bool)
    for head in range(q.shape[2]):
        scores = q[0, :, head] @ k[0, :, head].T / np.sqrt(q.shape[3])
        scores = np.where(visible, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[0, :, head] = weights @ v[0, :, head] / weights.sum(axis=1, keepdims=True)
    return out


def errors(got: Any, want: Float64) -> Float64:
    """Return the relative Frobenius error of each head."""
    difference, norm = (np.square(x).sum(axis=(0, 1, 3)) for x in (got - want, want))
    ratio: Float64 = np.sqrt(difference / norm)
    return ratio


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median time of a call."""
    call()
    times = []
    for _ in range(15):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times))


def gpu_arrays(arrays: list[Any]) -> tuple[list[Any], Callable[[], None]]:
    """Put arrays on the GPU if one is usable and PyTorch is there to hold them."""
    has_torch = importlib.util.find_spec("torch") is not None
    if has_torch and any(status.usable for status in qattn.kernels("cuda")):
        import torch

        if torch.cuda.is_available():
            return [torch.from_numpy(x).cuda() for x in arrays], torch.cuda.synchronize
    return arrays, lambda: None


def measure_layer(layer: int) -> tuple[dict[str, Float64], dict[str, float], str]:
    """Return errors per head, times in milliseconds and the kernel for one layer."""
    q, k, v = (np.load(DATA / f"layer{layer:02}_{name}.npy") for name in "qkv")
    quantized = [qattn.quantize(x) for x in (q, k, v)]
    exact = attention(*(x.astype(np.float64) for x in (q, k, v)))
    same = attention(*(x * scale.astype(np.float64)[:, None] for x, scale in quantized))
    arrays = [x for x, _ in quantized] + [scale for _, scale in quantized]
    arrays, synchronize = gpu_arrays(arrays)

    found: dict[str, Float64] = {}
    times: dict[str, float] = {}
    for precision in PRECISIONS:

        def call(precision: Any = precision) -> Any:
            out = qattn.forward(*arrays, precision=precision)
            synchronize()
            return out

        out = call()
        out = np.asarray(out.cpu() if hasattr(out, "cpu") else out, np.float64)
        found[f"{precision}, same int8"] = errors(out, same)
        found[f"{precision}, unquantised"] = errors(out, exact)
        times[f"qattn {precision}"] = milliseconds(call)
    times.update(torch_times(q, k, v, arrays, synchronize))
    return found, times, qattn.explain(*arrays).kernel


def torch_times(
    q: Any, k: Any, v: Any, arrays: list[Any], synchronize: Callable[[], None]
) -> dict[str, float]:
    """Time PyTorch's fused attention: on float tensors as they are, and after dequantising."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    given = [torch.as_tensor(x) for x in arrays]
    device = given[0].device
    floats = [torch.from_numpy(x).float().to(device).transpose(1, 2) for x in (q, k, v)]

    def fused() -> None:
        scaled_dot_product_attention(*floats, is_causal=True, enable_gqa=True)
        synchronize()

    def dequantize_and_fused() -> None:
        tensors = [
            (x.float() * scale[:, None]).transpose(1, 2)
            for x, scale in zip(given[:3], given[3:], strict=True)
        ]
        scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True)
        synchronize()

    return {
        "torch float32": milliseconds(fused),
        "torch dequantise + float32": milliseconds(dequantize_and_fused),
    }


def plot(results: dict[int, tuple[dict[str, Float64], dict[str, float], str]], path: Path) -> None:
    """Draw errors and times of all layers."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), width_ratios=[3, 2])
    colours = {"high": "tab:blue", "fast": "tab:orange"}
    for offset, (layer, (found, _, _)) in enumerate(results.items()):
        for series, values in found.items():
            precision, _, against = series.partition(", ")
            marker = "o" if against.startswith("same") else "x"
            label = f"{precision}, against float64 on {against.replace('same', 'the same')}"
            positions = 10 * offset + np.arange(len(values))
            left.plot(
                positions,
                values,
                marker,
                color=colours[precision],
                label=None if offset else label.replace("unquantised", "unquantised tensors"),
            )
        left.text(10 * offset + 4, 0.3, f"layer {layer}", ha="center")
    left.set_yscale("log")
    left.set_ylim(1e-6, 0.6)
    left.set_xticks([10 * i + h for i in range(len(results)) for h in range(9)])
    left.set_xticklabels([str(h) for _ in results for h in range(9)])
    left.set_xlabel("query head")
    left.set_ylabel("relative error (Frobenius)")
    left.grid(axis="y", alpha=0.3)
    left.legend(loc="lower right", fontsize="small")

    _, times, kernel = results[LAYERS[-1]]
    bars = right.barh(list(times), list(times.values()), color="tab:gray")
    right.bar_label(bars, fmt=" %.3g ms")
    right.invert_yaxis()
    right.margins(x=0.2)
    right.set_xlabel("milliseconds a call, median")
    right.set_title(f"1 x 1024 x 9 (3) x 64, causal, {kernel}")
    figure.suptitle("INT8 attention on q, k and v of SmolLM2-135M")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print and plot."""
    parser = argparse.ArgumentParser(description="Error and speed on real attention tensors.")
    parser.add_argument("--out", type=Path, default=Path("real_tensors.png"), help="the picture")
    arguments = parser.parse_args()
    results = {}
    for layer in LAYERS:
        results[layer] = measure_layer(layer)
        found, times, kernel = results[layer]
        print(f"layer {layer}, {kernel}")
        for series, values in found.items():
            print(f"  error {series}: median {np.median(values):.2e}, worst {values.max():.2e}")
        for name, value in times.items():
            print(f"  {name}: {value:.3f} ms")
    plot(results, arguments.out)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
