"""torchao's INT8 attention on the CPU, which only builds with its CPU kernels have."""

from __future__ import annotations

import numpy as np
from peer import EIGHT_BITS, Missing, Peer
from problems import STEP, Data, Problem, grouped, ungrouped

ZERO_POINT = 128
# 8 bits for probabilities in 0..1 and for outputs, which are averages of values in -2..2.
PROBABILITY_STEP = 1.0 / 255
OUTPUT_STEP = STEP


def load() -> str:
    try:
        import torch
        import torchao
    except ImportError as error:
        raise Missing(f"torchao is not installed ({error})") from error
    name = "torchao::qscaled_dot_product"
    if not (hasattr(torch.ops.torchao, "qscaled_dot_product")
            and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")):
        raise Missing(f"torchao {torchao.__version__}: this build has no CPU kernel of "
                      f"{name} (USE_CPU_KERNELS=1 when it is built)")
    return f"torchao {torchao.__version__}"


class Attention:
    def __init__(self, problem: Problem, data: Data, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.problem = problem
        # The operator has no causal mask of its own.
        self.mask = None
        if problem.causal:
            shape = (1, 1, problem.seq_q, problem.seq_k)
            self.mask = torch.full(shape, float("-inf")).triu(1)
        q, k, v = (torch.from_numpy(x.view(np.uint8) ^ 0x80) for x in grouped(problem, data))
        self.q = q
        self.kv = [(k, v), *((k.clone(), v.clone()) for _ in range(problem.copies(1) - 1))]
        self.call = torch.ops.torchao.qscaled_dot_product
        self.turn = 0

    def run(self) -> None:
        k, v = self.kv[self.turn]
        self.turn = (self.turn + 1) % len(self.kv)
        self.out = self.call(
            self.q, k, v, self.mask, 0.0, False, None, STEP, ZERO_POINT, STEP, ZERO_POINT, STEP,
            ZERO_POINT, PROBABILITY_STEP, 0, OUTPUT_STEP, ZERO_POINT)

    def output(self) -> np.ndarray:
        out = (self.out.numpy().astype(np.float32) - ZERO_POINT) * np.float32(OUTPUT_STEP)
        return ungrouped(self.problem, out)


def environment(threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(threads)}


PEERS = [Peer("torchao INT8 SDPA", "cpu", EIGHT_BITS, load, Attention, environment)]
