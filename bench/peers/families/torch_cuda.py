"""PyTorch's scaled_dot_product_attention in bfloat16 on a GPU: with cuDNN and with flash."""

from __future__ import annotations

import functools
import statistics

import numpy as np
from peer import BFLOAT16, Missing, Peer
from problems import STEP, Data, Problem, grouped, ungrouped

# Launches between two events last this long: what the events themselves cost is nothing then.
BATCH_SECONDS = 5e-3


def load() -> str:
    try:
        import torch
    except ImportError as error:
        raise Missing(f"PyTorch is not installed ({error})") from error
    if not torch.cuda.is_available():
        raise Missing("PyTorch finds no CUDA device")
    return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


class OnDevice:
    """Rotates through copies of K and V; derived classes compute with `call(q, k, v)`, all of them
    (batch, heads, seq, head_dim) in memory that is laid out (batch, seq, heads, head_dim) where
    `tokens_first` says so."""

    tokens_first = False

    def __init__(self, problem: Problem, data: Data, kind: object) -> None:
        import torch

        torch.set_grad_enabled(False)
        self.torch, self.problem = torch, problem

        def to_device(x: np.ndarray) -> object:
            x = np.ascontiguousarray(x.transpose(0, 2, 1, 3)) if self.tokens_first else x
            return (torch.from_numpy(x).cuda().float() * STEP).to(kind)

        self.q, k, v = (to_device(x) for x in grouped(problem, data))
        copies = problem.copies(k.element_size())
        self.kv = [(k, v), *((k.clone(), v.clone()) for _ in range(copies - 1))]
        self.turn = 0

    def call(self, q: object, k: object, v: object) -> object:
        raise NotImplementedError

    def run(self) -> None:
        k, v = self.kv[self.turn]
        self.turn = (self.turn + 1) % len(self.kv)
        self.out = self.call(self.q, k, v)

    def times(self, seconds: float) -> list[float]:
        """Times of one launch each, from events around many."""
        def batch(launches: int) -> float:
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(launches):
                self.run()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) * 1e-3 / launches

        once = statistics.median(batch(1) for _ in range(3))
        launches = max(1, int(BATCH_SECONDS / once))
        return [batch(launches) for _ in range(max(1, int(seconds / (launches * once))))]

    def output(self) -> np.ndarray:
        out = self.out.float().cpu().numpy()
        return ungrouped(self.problem, out.transpose(0, 2, 1, 3) if self.tokens_first else out)


class Attention(OnDevice):
    def __init__(self, backend: str, problem: Problem, data: Data, threads: int) -> None:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        super().__init__(problem, data, torch.bfloat16)
        self.only = functools.partial(sdpa_kernel, getattr(SDPBackend, backend))

    def call(self, q: object, k: object, v: object) -> object:
        return self.torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.problem.causal)

    def times(self, seconds: float) -> list[float]:
        with self.only():
            return super().times(seconds)

    def run(self) -> None:
        with self.only():
            super().run()


PEERS = [
    Peer("PyTorch SDPA bfloat16 (cuDNN)", "cuda", BFLOAT16, load,
         functools.partial(Attention, "CUDNN_ATTENTION")),
    Peer("PyTorch SDPA bfloat16 (flash)", "cuda", BFLOAT16, load,
         functools.partial(Attention, "FLASH_ATTENTION"))]
