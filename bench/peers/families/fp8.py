"""Attention on 8 bits on a GPU: packages that are there are timed, none is asked for."""

from __future__ import annotations

import functools
import importlib.util

from families import torch_cuda
from peer import BFLOAT16, EIGHT_BITS, Missing, Peer
from problems import Problem


def load(package: str) -> str:
    if importlib.util.find_spec(package) is None:  # spares the import of PyTorch
        raise Missing(f"{package} is not installed")
    torch_cuda.load()
    try:
        module = importlib.import_module(package)
    except Exception as error:
        raise Missing(f"{package} cannot be imported ({error})") from error
    return f"{package} {getattr(module, '__version__', '')}".strip()


class TokensFirst(torch_cuda.OnDevice):
    tokens_first = True

    def __init__(self, kind: str, problem: Problem, data: torch_cuda.Tensors, threads: int) -> None:
        import torch

        super().__init__(problem, data, getattr(torch, kind))


class FlashAttention3(TokensFirst):
    def call(self, q: object, k: object, v: object) -> object:
        import flash_attn_interface

        out = flash_attn_interface.flash_attn_func(q, k, v, causal=self.problem.causal)
        return out[0] if isinstance(out, tuple) else out


class SageAttention(TokensFirst):
    """It quantises bfloat16 tensors itself, which its time includes."""

    def call(self, q: object, k: object, v: object) -> object:
        import sageattention

        return sageattention.sageattn(q, k, v, tensor_layout="NHD", is_causal=self.problem.causal)


class FlashInfer(TokensFirst):
    def __init__(self, kind: str, problem: Problem, data: torch_cuda.Tensors, threads: int) -> None:
        if problem.batch != 1:
            raise Missing("single_prefill_with_kv_cache takes one sequence")
        super().__init__(kind, problem, data, threads)

    def call(self, q: object, k: object, v: object) -> object:
        import flashinfer

        out = flashinfer.single_prefill_with_kv_cache(
            q[0], k[0], v[0], causal=self.problem.causal, o_dtype=self.torch.bfloat16)
        return out[None]


PEERS = [
    Peer("FlashAttention-3 FP8", "cuda", EIGHT_BITS,
         functools.partial(load, "flash_attn_interface"),
         functools.partial(FlashAttention3, "float8_e4m3fn")),
    Peer("FlashAttention-3 bfloat16", "cuda", BFLOAT16,
         functools.partial(load, "flash_attn_interface"),
         functools.partial(FlashAttention3, "bfloat16")),
    Peer("SageAttention", "cuda", EIGHT_BITS, functools.partial(load, "sageattention"),
         functools.partial(SageAttention, "bfloat16")),
    Peer("FlashInfer FP8", "cuda", EIGHT_BITS, functools.partial(load, "flashinfer"),
         functools.partial(FlashInfer, "float8_e4m3fn"))]
