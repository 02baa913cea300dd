"""Problems and their answers in float64, with NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int8 = NDArray[np.int8]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

BOUNDS = {"high": 5e-4, "fast": 1.5e-2}
"""Relative Frobenius error per (batch, head) that each precision promises on ordinary data."""


@dataclass(frozen=True)
class Problem:
    """Inputs of one call. Scales differ per head and are never 1."""

    q: Int8
    k: Int8
    v: Int8
    q_scale: Float32
    k_scale: Float32
    v_scale: Float32

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The positional arguments of `qattn.forward`."""
        return self.q, self.k, self.v, self.q_scale, self.k_scale, self.v_scale


def make_problem(
    batch: int = 2,
    seq_q: int = 72,
    heads_q: int = 4,
    head_dim: int = 32,
    *,
    seq_k: int | None = None,
    heads_kv: int | None = None,
    seed: int = 0,
) -> Problem:
    """Make random tensors over the full range of int8; scores have a deviation of about 1."""
    rng = np.random.default_rng(seed)
    seq_k = seq_q if seq_k is None else seq_k
    heads_kv = heads_q if heads_kv is None else heads_kv

    def tensor(seq: int, heads: int) -> Int8:
        return rng.integers(-128, 128, (batch, seq, heads, head_dim), dtype=np.int8)

    def scales(heads: int) -> Float32:
        return ((0.8 + 0.4 * rng.random(heads)) / 74).astype(np.float32)

    return Problem(
        tensor(seq_q, heads_q),
        tensor(seq_k, heads_kv),
        tensor(seq_k, heads_kv),
        scales(heads_q),
        scales(heads_kv),
        scales(heads_kv),
    )


def reference(
    problem: Problem, causal: bool = True, softmax_scale: float | None = None
) -> tuple[Float64, Float64]:
    """Return output and log-sum-exp in float64; a query that sees no key gives 0 and -inf."""
    heads_q, heads_kv = problem.q.shape[2], problem.k.shape[2]
    group = heads_q // heads_kv
    q = problem.q * problem.q_scale.astype(np.float64)[:, None]
    k = np.repeat(problem.k * problem.k_scale.astype(np.float64)[:, None], group, axis=2)
    v = np.repeat(problem.v * problem.v_scale.astype(np.float64)[:, None], group, axis=2)
    scale = 1 / np.sqrt(q.shape[3]) if softmax_scale is None else softmax_scale
    scores = scale * np.einsum("bihd,bjhd->bhij", q, k)
    if causal:
        seq_q, seq_k = q.shape[1], k.shape[1]
        scores = np.where(np.tri(seq_q, seq_k, seq_k - seq_q, dtype=bool), scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True, initial=-1e300)
    weights = np.exp(scores - peak)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, peak + np.log(total), -np.inf)[..., 0]
    weights /= np.where(total > 0, total, 1)
    return np.einsum("bhij,bjhd->bihd", weights, v), lse


def relative_error(got: Any, want: Float64) -> float:
    """Return the largest relative Frobenius error of any (batch, head)."""
    difference = np.linalg.norm(np.asarray(got, np.float64) - want, axis=(1, 3))
    norm = np.linalg.norm(want, axis=(1, 3))
    return float(np.max(difference / np.where(norm > 0, norm, 1), initial=0))
