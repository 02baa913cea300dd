"""The problems that every peer solves, their data, and the check of what a peer returns."""

from __future__ import annotations

import dataclasses

import numpy as np

# Values are multiples of 1/64 between -2 and 2: bfloat16 and int8 with one scale hold them exactly,
# so all peers compute the same function of the same numbers. Scores have a deviation near 1.
STEP = 1.0 / 64
# Buffers that a decode step rotates through: caches hold none of them for the next turn.
ROTATED_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class Problem:
    batch: int
    seq_q: int
    seq_k: int
    heads: int
    heads_kv: int
    head_dim: int
    causal: bool
    graph: bool = False  # calls replayed from a CUDA graph

    @property
    def is_decode(self) -> bool:
        return self.seq_q == 1

    @property
    def name(self) -> str:
        """The end of the problem's rows in qattn_bench."""
        if self.is_decode:
            return (f"B{self.batch}xHq{self.heads}xHkv{self.heads_kv}xD{self.head_dim}"
                    f"xL{self.seq_k}")
        mask = "causal" if self.causal else "full"
        name = f"{mask}/B{self.batch}xS{self.seq_q}xH{self.heads}xD{self.head_dim}"
        return f"graph/{name}" if self.graph else name

    @property
    def operations(self) -> float:
        every = 4.0 * self.batch * self.heads * self.seq_q * self.seq_k * self.head_dim
        return every / 2 if self.causal else every

    @property
    def kv_elements(self) -> int:
        return 2 * self.batch * self.heads_kv * self.seq_k * self.head_dim

    def copies(self, element_bytes: int) -> int:
        """How many copies of K and V a peer rotates through."""
        if not self.is_decode:
            return 1
        return -(-ROTATED_BYTES // (self.kv_elements * element_bytes))


def square(batch: int, seq: int, heads: int, head_dim: int, causal: bool = True) -> Problem:
    return Problem(batch, seq, seq, heads, heads, head_dim, causal)


def decode(batch: int, heads: int, heads_kv: int, head_dim: int, keys: int) -> Problem:
    """One query token, which sees every key."""
    return Problem(batch, 1, keys, heads, heads_kv, head_dim, False)


CPU_PROBLEMS = [
    square(2, 72, 4, 32), square(1, 512, 16, 64), square(1, 2048, 16, 128),
    square(1, 8192, 8, 128), decode(1, 32, 32, 128, 32768), decode(1, 32, 8, 128, 32768)]
TINY = square(2, 72, 4, 32)
CUDA_PROBLEMS = [
    TINY, dataclasses.replace(TINY, graph=True), square(1, 2048, 16, 128),
    square(1, 16384, 16, 128), square(1, 16384, 16, 128, causal=False), square(4, 4096, 16, 128),
    square(16, 1024, 16, 128), square(1, 16384, 32, 64), square(1, 16384, 8, 256),
    decode(1, 32, 32, 128, 32768), decode(1, 32, 8, 128, 32768), decode(32, 32, 8, 128, 8192),
    decode(64, 64, 8, 128, 4096)]


@dataclasses.dataclass
class Data:
    """q, k and v as integers (batch, seq, heads, head_dim); the values are STEP times these."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


def make_data(problem: Problem) -> Data:
    random = np.random.default_rng(0)

    def values(seq: int, heads: int) -> np.ndarray:
        shape = (problem.batch, seq, heads, problem.head_dim)
        return np.frombuffer(bytearray(random.bytes(int(np.prod(shape)))), np.int8).reshape(shape)

    return Data(values(problem.seq_q, problem.heads), values(problem.seq_k, problem.heads_kv),
                values(problem.seq_k, problem.heads_kv))


def grouped(problem: Problem, data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k and v (batch, heads, seq, head_dim), contiguous int8, with as many query heads as
    key/value heads: the query heads of a group become queries of one head, which for a decode step
    is the same function and spares every peer a repetition of K and V."""
    group = problem.heads // problem.heads_kv
    q = data.q
    if group > 1:
        if problem.causal or problem.seq_q != 1:
            raise ValueError("only the queries of a decode step can be grouped")
        q = q.reshape(problem.batch, problem.heads_kv, group, problem.head_dim)
    else:
        q = q.transpose(0, 2, 1, 3)
    return tuple(np.ascontiguousarray(x)
                 for x in (q, data.k.transpose(0, 2, 1, 3), data.v.transpose(0, 2, 1, 3)))


def ungrouped(problem: Problem, out: np.ndarray) -> np.ndarray:
    """The inverse of `grouped`, for an output: (batch, seq_q, heads, head_dim)."""
    if problem.heads != problem.heads_kv:
        return out.reshape(problem.batch, 1, problem.heads, problem.head_dim)
    return out.transpose(0, 2, 1, 3)


def float32(integers: np.ndarray) -> np.ndarray:
    return integers.astype(np.float32) * np.float32(STEP)


def bfloat16_bits(integers: np.ndarray) -> np.ndarray:
    """The values as bfloat16, in uint16."""
    table = (np.arange(-128, 128, dtype=np.float32) * np.float32(STEP)).view(np.uint32) >> 16
    return table.astype(np.uint16)[integers.view(np.uint8) ^ 0x80]


def from_bfloat16_bits(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def relative_error(problem: Problem, data: Data, out: np.ndarray) -> float:
    """Error of a sample of rows against attention in float64; NaN where `out` is not finite."""
    random = np.random.default_rng(1)
    heads = sorted({0, problem.heads - 1, int(random.integers(problem.heads))})
    rows = sorted({0, problem.seq_q - 1, *random.integers(problem.seq_q, size=6).tolist()})
    group = problem.heads // problem.heads_kv
    difference = norm = 0.0
    for b in {0, problem.batch - 1}:
        for h in heads:
            k = data.k[b, :, h // group].astype(np.float64) * STEP
            v = data.v[b, :, h // group].astype(np.float64) * STEP
            for i in rows:
                visible = i + 1 + problem.seq_k - problem.seq_q if problem.causal else None
                scores = k[:visible] @ (data.q[b, i, h] * (STEP / np.sqrt(problem.head_dim)))
                weights = np.exp(scores - scores.max())
                expected = weights @ v[:visible] / weights.sum()
                difference += float(np.sum((out[b, i, h] - expected) ** 2))
                norm += float(np.sum(expected**2))
    return float(np.sqrt(difference / norm))
