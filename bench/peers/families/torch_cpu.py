"""PyTorch's scaled_dot_product_attention on the CPU, with the backend that it picks (flash)."""

from __future__ import annotations

import functools

import numpy as np
from peer import BFLOAT16, FLOAT32, Missing, Peer
from problems import STEP, Data, Problem, grouped, ungrouped


def load() -> str:
    try:
        import torch
    except ImportError as error:
        raise Missing(f"PyTorch is not installed ({error})") from error
    return f"torch {torch.__version__}"


class Attention:
    def __init__(self, dtype: str, problem: Problem, data: Data, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.call = functools.partial(torch.nn.functional.scaled_dot_product_attention,
                                      is_causal=problem.causal)
        self.problem = problem
        kind = getattr(torch, dtype)
        q, k, v = (torch.from_numpy(x).to(kind) * STEP for x in grouped(problem, data))
        copies = problem.copies(k.element_size())
        self.q = q
        self.kv = [(k, v), *((k.clone(), v.clone()) for _ in range(copies - 1))]
        self.turn = 0

    def run(self) -> None:
        k, v = self.kv[self.turn]
        self.turn = (self.turn + 1) % len(self.kv)
        self.out = self.call(self.q, k, v)

    def output(self) -> np.ndarray:
        return ungrouped(self.problem, self.out.float().numpy())


def environment(threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


PEERS = [
    Peer("PyTorch SDPA float32", "cpu", FLOAT32, load,
         functools.partial(Attention, "float32"), environment),
    Peer("PyTorch SDPA bfloat16", "cpu", BFLOAT16, load,
         functools.partial(Attention, "bfloat16"), environment)]
