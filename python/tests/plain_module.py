"""The module that `qattn.torch.Int8CausalAttention` stands in for, in plain PyTorch."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class PlainAttention(torch.nn.Module):
    """Causal attention that dequantises and loops over positions."""

    def forward(
        self,
        q_q: Tensor,
        k_q: Tensor,
        v_q: Tensor,
        q_scale: Tensor,
        k_scale: Tensor,
        v_scale: Tensor,
    ) -> Tensor:
        """Attend: int8 (batch, seq, heads, head_dim) and float32 (heads,) give float32."""
        q = q_q.float() * q_scale[:, None]
        k = k_q.float() * k_scale[:, None]
        v = v_q.float() * v_scale[:, None]
        out = torch.empty_like(q)
        for t in range(q.shape[1]):
            scores = torch.einsum("bhd,bjhd->bhj", q[:, t], k[:, : t + 1])
            weights = torch.softmax(scores / math.sqrt(q.shape[-1]), dim=-1)
            out[:, t] = torch.einsum("bhj,bjhd->bhd", weights, v[:, : t + 1])
        return out


class DequantizedAttention(torch.nn.Module):
    """The same with PyTorch's own fused attention after dequantising."""

    def forward(
        self,
        q_q: Tensor,
        k_q: Tensor,
        v_q: Tensor,
        q_scale: Tensor,
        k_scale: Tensor,
        v_scale: Tensor,
    ) -> Tensor:
        """Attend, as `PlainAttention`."""
        q, k, v = (
            (x.float() * scale[:, None]).transpose(1, 2)
            for x, scale in ((q_q, q_scale), (k_q, k_scale), (v_q, v_scale))
        )
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2)
