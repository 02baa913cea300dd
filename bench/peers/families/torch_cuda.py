"""PyTorch's scaled_dot_product_attention in bfloat16 on a GPU: with cuDNN and with flash.

Also what all contestants on a GPU share: data that is made there, and clocks.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable
from typing import Any

from peer import BFLOAT16, Missing, Peer
from problems import STEP, Problem

# Launches between two events last this long: what the events themselves cost is nothing then.
BATCH_SECONDS = 5e-3
# Calls in one CUDA graph: what starting the graph costs is nothing then.
GRAPH_CALLS = 100


def load() -> str:
    try:
        import torch
    except Exception as error:  # a library that is missing or does not fit is an OSError
        raise Missing(f"PyTorch cannot be imported ({error})") from error
    if not torch.cuda.is_available():
        raise Missing("PyTorch finds no CUDA device")
    return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


@dataclasses.dataclass
class Tensors:
    """q, k and v as int8 (batch, seq, heads, head_dim) on the GPU; the values are STEP times these,
    exact in bfloat16."""

    q: Any
    k: Any
    v: Any


def make_tensors(problem: Problem) -> Tensors:
    import torch

    random = torch.Generator("cuda").manual_seed(0)

    def values(seq: int, heads: int) -> torch.Tensor:
        return torch.randint(-128, 128, (problem.batch, seq, heads, problem.head_dim),
                             dtype=torch.int8, device="cuda", generator=random)

    return Tensors(values(problem.seq_q, problem.heads), values(problem.seq_k, problem.heads_kv),
                   values(problem.seq_k, problem.heads_kv))


def relative_error(problem: Problem, data: Tensors, out: Any) -> float:
    """Error of a sample of rows of `out` (batch, seq_q, heads, head_dim) against attention in
    float64; NaN where `out` is not finite."""
    group = problem.heads // problem.heads_kv
    rows = sorted({0, problem.seq_q // 3, problem.seq_q // 2 + 1, problem.seq_q - 1}
                  & set(range(problem.seq_q)))
    difference = norm = 0.0
    for b in {0, problem.batch - 1}:
        for h in {0, problem.heads // 2, problem.heads - 1}:
            k = data.k[b, :, h // group].double() * STEP
            v = data.v[b, :, h // group].double() * STEP
            for i in rows:
                visible = i + 1 + problem.seq_k - problem.seq_q if problem.causal else None
                q = data.q[b, i, h].double() * (STEP / problem.head_dim ** 0.5)
                expected = (k[:visible] @ q).softmax(0) @ v[:visible]
                difference += float((out[b, i, h].double() - expected).square().sum())
                norm += float(expected.square().sum())
    return (difference / norm) ** 0.5


def event_times(run: Callable[[], None], seconds: float, calls: int = 1) -> list[float]:
    """Times of a call, from events around many launches; `run` makes `calls` of them."""
    import torch

    def batch(launches: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / launches

    once = max(statistics.median(batch(1) for _ in range(3)), 1e-6)
    launches = max(1, int(BATCH_SECONDS / once))
    batches = max(1, min(200, int(seconds / (launches * once))))
    return [batch(launches) / calls for _ in range(batches)]


def graph_of(run: Callable[[], None]) -> Any:
    """GRAPH_CALLS calls of `run`, captured."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # first calls may do what a capture forbids
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_CALLS):
            run()
    return graph


class Runner:
    """A contestant with a problem. Derived classes compute with `run`, into `out`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.graph: Any = None
        self.out: Any = None

    def run(self) -> None:
        raise NotImplementedError

    def output(self) -> Any:
        """(batch, seq_q, heads, head_dim)"""
        return self.out

    def times(self, seconds: float) -> list[float]:
        if not self.problem.graph:
            return event_times(self.run, seconds)
        if self.graph is None:
            self.graph = graph_of(self.run)
        return event_times(self.graph.replay, seconds, GRAPH_CALLS)


class OnDevice(Runner):
    """Rotates through copies of K and V; derived classes compute with `call(q, k, v)`, all of them
    (batch, heads, seq, head_dim), or (batch, seq, heads, head_dim) where `tokens_first` says so. In
    a decode step the query heads of a group are queries of one head."""

    tokens_first = False

    def __init__(self, problem: Problem, data: Tensors, kind: Any) -> None:
        super().__init__(problem)
        self.group = problem.heads // problem.heads_kv
        q = data.q
        if self.group > 1:
            if problem.causal or problem.seq_q != 1:
                raise Missing("only the queries of a decode step can be grouped")
            q = q.reshape(problem.batch, problem.heads_kv, self.group, problem.head_dim)
            q = q.transpose(1, 2)

        def values(x: Any) -> Any:
            x = x if self.tokens_first else x.transpose(1, 2)
            return (x.contiguous().float() * STEP).to(kind)

        self.q, k, v = values(q), values(data.k), values(data.v)
        copies = problem.copies(k.element_size())
        self.kv = [(k, v), *((k.clone(), v.clone()) for _ in range(copies - 1))]
        self.turn = 0

    def call(self, q: Any, k: Any, v: Any) -> Any:
        raise NotImplementedError

    def run(self) -> None:
        k, v = self.kv[self.turn]
        self.turn = (self.turn + 1) % len(self.kv)
        self.out = self.call(self.q, k, v)

    def output(self) -> Any:
        out = self.out if self.tokens_first else self.out.transpose(1, 2)
        if self.group > 1:  # (batch, queries of the group, heads_kv, head_dim)
            out = out.transpose(1, 2).reshape(self.problem.batch, 1, self.problem.heads, -1)
        return out


class Attention(OnDevice):
    def __init__(self, backend: str, problem: Problem, data: Tensors, threads: int) -> None:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if not hasattr(SDPBackend, backend):
            raise Missing(f"this PyTorch has no SDPBackend.{backend}")
        super().__init__(problem, data, torch.bfloat16)
        self.only = functools.partial(sdpa_kernel, getattr(SDPBackend, backend))
        self.attention = functools.partial(torch.nn.functional.scaled_dot_product_attention,
                                           is_causal=problem.causal)

    def call(self, q: Any, k: Any, v: Any) -> Any:
        return self.attention(q, k, v)

    def times(self, seconds: float) -> list[float]:
        with self.only():  # once: choosing a backend takes longer than a small problem
            return super().times(seconds)

    def first_run(self) -> None:
        with self.only():
            self.run()


PEERS = [
    Peer("PyTorch SDPA bfloat16 (cuDNN)", "cuda", BFLOAT16, load,
         functools.partial(Attention, "CUDNN_ATTENTION")),
    Peer("PyTorch SDPA bfloat16 (flash)", "cuda", BFLOAT16, load,
         functools.partial(Attention, "FLASH_ATTENTION"))]
