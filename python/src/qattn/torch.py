"""INT8 attention as PyTorch operators and as a module.

Importing this module registers `torch.ops.qattn.forward`, `forward_lse` and `quantize` for the CPU
and CUDA, with what `torch.compile` and `torch.export` need to pass through them. `forward` and
`quantize` below call them; so does `Int8CausalAttention`. There are no gradients: inference only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from qattn import _qattn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from qattn._attention import Precision

__all__ = ["Int8CausalAttention", "forward", "quantize"]

_ATTENTION_ARGUMENTS = (
    "(Tensor q, Tensor k, Tensor v, Tensor q_scale, Tensor k_scale, Tensor v_scale,"
    " bool causal=True, *, float? softmax_scale=None, int[]? window=None,"
    " str precision='high', str? kernel_name=None, ScalarType? out_dtype=None)"
)
# `kernel_name` is not called `kernel`: torch.compile passes an operator's keyword arguments on to a
# function of its own that has a parameter of that name.

# Kept for the life of the process: the operators go with it.
_library = torch.library.Library("qattn", "DEF")
_TAGS = (torch.Tag.pt2_compliant_tag,)
_library.define(f"forward{_ATTENTION_ARGUMENTS} -> Tensor", tags=_TAGS)
_library.define(f"forward_lse{_ATTENTION_ARGUMENTS} -> (Tensor, Tensor)", tags=_TAGS)
_library.define("quantize(Tensor x) -> (Tensor, Tensor)", tags=_TAGS)


def _run(return_lse: bool) -> Any:
    def run(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_scale: Tensor,
        k_scale: Tensor,
        v_scale: Tensor,
        causal: bool = True,
        *,
        softmax_scale: float | None = None,
        window: Sequence[int] | None = None,
        precision: str = "high",
        kernel_name: str | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> Any:
        return _qattn.forward(
            q,
            k,
            v,
            q_scale,
            k_scale,
            v_scale,
            causal,
            softmax_scale,
            None if window is None else tuple(window),
            precision,
            return_lse,
            None,
            out_dtype,
            None,
            kernel_name,
            0,
        )

    return run


def _quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    values, scale = _qattn.quantize(x, None, 0)
    return values, scale


for _key in ("CPU", "CUDA"):
    _library.impl("forward", _run(return_lse=False), _key)
    _library.impl("forward_lse", _run(return_lse=True), _key)
    _library.impl("quantize", _quantize, _key)


def _check_fake(q: Tensor, k: Tensor, v: Tensor, scales: Sequence[Tensor]) -> None:
    """Refuse while tracing what the kernels would refuse."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        torch._check(
            tensor.dtype == torch.int8,
            lambda name=name, tensor=tensor: f"{name} has dtype {tensor.dtype} (allowed: int8)",
        )
        torch._check(
            tensor.dim() == 4,
            lambda name=name, tensor=tensor: (
                f"{name} has shape {tuple(tensor.shape)} (allowed: (batch, seq, heads, head_dim))"
            ),
        )
    for name, scale in zip(("q_scale", "k_scale", "v_scale"), scales):
        torch._check(
            scale.dtype == torch.float32,
            lambda name=name, scale=scale: f"{name} has dtype {scale.dtype} (allowed: float32)",
        )


def _fake_out(q: Tensor, v: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    shape = (q.shape[0], q.shape[1], q.shape[2], v.shape[3])
    return q.new_empty(shape, dtype=out_dtype or torch.float32)


@torch.library.register_fake("qattn::forward", lib=_library)
def _fake_forward(q: Tensor, k: Tensor, v: Tensor, *scales: Any, **options: Any) -> Tensor:
    _check_fake(q, k, v, scales[:3])
    return _fake_out(q, v, options.get("out_dtype"))


@torch.library.register_fake("qattn::forward_lse", lib=_library)
def _fake_forward_lse(
    q: Tensor, k: Tensor, v: Tensor, *scales: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    _check_fake(q, k, v, scales[:3])
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    return _fake_out(q, v, options.get("out_dtype")), lse


@torch.library.register_fake("qattn::quantize", lib=_library)
def _fake_quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    torch._check(
        x.dim() == 4,
        lambda: f"x has shape {tuple(x.shape)} (allowed: (batch, seq, heads, head_dim))",
    )
    values = x.new_empty(tuple(x.shape), dtype=torch.int8)
    return values, x.new_empty((x.shape[2],), dtype=torch.float32)


_forward_op = torch.ops.qattn.forward.default
_forward_lse_op = torch.ops.qattn.forward_lse.default
_quantize_op = torch.ops.qattn.quantize.default


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_scale: Tensor,
    k_scale: Tensor,
    v_scale: Tensor,
    causal: bool = True,
    *,
    softmax_scale: float | None = None,
    window: tuple[int, int] | None = None,
    precision: Precision = "high",
    return_lse: bool = False,
    kernel: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Compute attention over INT8 tensors, as `qattn.forward`, through the PyTorch operators.

    Args:
        q: int8 (batch, seq_q, heads_q, head_dim).
        k: int8 (batch, seq_k, heads_kv, head_dim).
        v: int8 (batch, seq_k, heads_kv, head_dim).
        q_scale: float32 (heads_q,).
        k_scale: float32 (heads_kv,).
        v_scale: float32 (heads_kv,).
        causal: As in `qattn.forward`.
        softmax_scale: As in `qattn.forward`.
        window: (left, right) as in `qattn.forward`, a negative bound excluding nothing.
        precision: "high" or "fast".
        return_lse: Also return float32 (batch, heads_q, seq_q).
        kernel: Name of a kernel to force.
        out_dtype: torch.float32, float16 or bfloat16; float32 when None.

    Returns:
        (batch, seq_q, heads_q, head_dim) of `out_dtype`; with `return_lse` the pair (out, lse).

    Raises:
        qattn.Error: As `qattn.forward`; while tracing, a RuntimeError with the same words.
    """
    op = _forward_lse_op if return_lse else _forward_op
    return op(
        q,
        k,
        v,
        q_scale,
        k_scale,
        v_scale,
        causal,
        softmax_scale=softmax_scale,
        window=window,
        precision=precision,
        kernel_name=kernel,
        out_dtype=out_dtype,
    )


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise float32, float16 or bfloat16 (batch, seq, heads, head_dim), as `qattn.quantize`.

    Returns:
        (values, scale): int8 of the shape of `x` and float32 (heads,).
    """
    values, scale = _quantize_op(x)
    return values, scale


class Int8CausalAttention(torch.nn.Module):
    """Causal attention over INT8 tensors, a drop-in for dequantising and looping over positions.

    Args:
        softmax_scale: Factor of the scores; 1 / sqrt(head_dim) when None.
        precision: "high" or "fast".
        out_dtype: torch.float32, float16 or bfloat16; float32 when None.
    """

    def __init__(
        self,
        softmax_scale: float | None = None,
        precision: Precision = "high",
        out_dtype: torch.dtype | None = None,
    ) -> None:
        """Keep the options of the calls."""
        super().__init__()
        self.softmax_scale = softmax_scale
        self.precision = precision
        self.out_dtype = out_dtype

    def forward(
        self,
        q_q: Tensor,
        k_q: Tensor,
        v_q: Tensor,
        q_scale: Tensor,
        k_scale: Tensor,
        v_scale: Tensor,
    ) -> Tensor:
        """Attend: int8 (batch, seq, heads, head_dim) and float32 (heads,) give `out_dtype`.

        `k_q` and `v_q` may have fewer heads than `q_q` (a divisor of its number) and another
        length: the last query is aligned with the last key.
        """
        # What has its default is left out: every argument costs time in PyTorch's dispatcher.
        options: dict[str, Any] = {}
        if self.softmax_scale is not None:
            options["softmax_scale"] = self.softmax_scale
        if self.precision != "high":
            options["precision"] = self.precision
        if self.out_dtype is not None:
            options["out_dtype"] = self.out_dtype
        out: Tensor = _forward_op(q_q, k_q, v_q, q_scale, k_scale, v_scale, **options)
        return out

    def extra_repr(self) -> str:
        """Show the options."""
        return (
            f"softmax_scale={self.softmax_scale}, precision={self.precision!r}, "
            f"out_dtype={self.out_dtype}"
        )
