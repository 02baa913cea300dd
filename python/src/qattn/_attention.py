"""The functions that compute."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from qattn import _qattn

Array: TypeAlias = Any
"""An array of NumPy, PyTorch, CuPy, JAX or any other framework that speaks DLPack."""

Precision: TypeAlias = Literal["high", "fast"]


def forward(
    q: Array,
    k: Array,
    v: Array,
    q_scale: Array,
    k_scale: Array,
    v_scale: Array,
    causal: bool = True,
    *,
    softmax_scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    precision: Precision = "high",
    return_lse: bool = False,
    out: Array | None = None,
    out_dtype: Any = None,
    device: Any = None,
    kernel: str | None = None,
    threads: int = 0,
) -> Any:
    """Compute attention over INT8 tensors.

        S[b,h,i,j] = softmax_scale * q_scale[h] * k_scale[h'] * sum_d q[b,i,h,d] * k[b,j,h',d]
        P          = softmax of S over the visible keys j
        O[b,i,h,:] = v_scale[h'] * sum_j P[b,h,i,j] * v[b,j,h',:]
        h'         = h // (heads_q // heads_kv)

    All arrays lie on one device. Arrays are read in place; only one whose layout the kernels
    cannot take (a broadcast axis, or a last axis with gaps) is copied first. On a CUDA device the
    work goes on the current stream of the framework of `q` and the call does not wait for it; JAX
    names no current stream, so its results are waited for. The interpreter lock is released
    meanwhile. Nothing is recorded for automatic differentiation.

    Args:
        q: int8 (batch, seq_q, heads_q, head_dim); head_dim is 1 to 256.
        k: int8 (batch, seq_k, heads_kv, head_dim); heads_q is a multiple of heads_kv.
        v: int8 (batch, seq_k, heads_kv, head_dim).
        q_scale: float32 (heads_q,): the real value is scale * integer. Finer scales, of shape
            (batch, heads) or (batch, seq, heads), are refused with `Unsupported` where no kernel
            implements them.
        k_scale: float32 (heads_kv,).
        v_scale: float32 (heads_kv,).
        causal: Key j is visible to query i if j <= i + (seq_k - seq_q): the last query is aligned
            with the last key. A query that sees no key gives 0.
        softmax_scale: Factor of the scores; 1 / sqrt(head_dim) when None.
        window: (left, right): key j is visible to the query at position p = i + (seq_k - seq_q) if
            p - left <= j <= p + right. None or a negative bound excludes nothing; with `causal`
            the right bound is 0, and another one that excludes something is refused.
        precision: "high" keeps probabilities in 16 bits, "fast" in 8.
        return_lse: Also return float32 (batch, heads_q, seq_q): the natural logarithm of the sum of
            exp(S) over the visible keys, -inf where there are none.
        out: float32, float16 or bfloat16 (batch, seq_q, heads_q, head_dim) to write to and return;
            it must not overlap the inputs. A new array when None.
        out_dtype: "float32", "float16" or "bfloat16", or what a framework calls them: the type of
            the result. None: that of `out`, else float32. The CUDA kernels round to float16 and
            bfloat16; for the CPU both are refused with `Unsupported`.
        device: Where to compute. None: where the arrays lie. "cpu", "cuda", "cuda:N"; "best" is a
            usable GPU, else the CPU. Arrays in host memory are staged through a GPU.
        kernel: Name of a kernel to force, such as "cpu/avx2"; see `kernels`.
        threads: CPU threads at most; 0 is what OpenMP would use.

    Returns:
        An array of `out_dtype`, of the framework and on the device of `q`; with `return_lse` the
        pair (out, lse).

    Raises:
        InvalidArgument: A shape, scale, stride, device or option is not allowed (a ValueError).
        ArgumentTypeError: An argument is no array or has the wrong dtype (a TypeError).
        Unsupported: No kernel of the device implements the request (a NotImplementedError).
        UnknownKernel, KernelUnusable: `kernel` cannot be had (ValueError, RuntimeError).
        DeviceUnavailable, CudaError: The GPU cannot be used or failed (RuntimeErrors).
        OutOfMemory: A MemoryError.
    """
    return _qattn.forward(
        q,
        k,
        v,
        q_scale,
        k_scale,
        v_scale,
        causal,
        softmax_scale,
        window,
        precision,
        return_lse,
        out,
        out_dtype,
        device,
        kernel,
        threads,
    )


def quantize(x: Array, *, device: Any = None, threads: int = 0) -> tuple[Any, Any]:
    """Quantise a floating-point tensor to int8 with one scale per head.

        scale[h] = max |x[b,i,h,d]| / 127 over b, i and d;   values = round(x / scale), half to even

    A head of zeros gets scale 1. NaN or infinity in host memory is an error; in device memory,
    where the call does not wait, the head's scale becomes NaN.

    Args:
        x: float32, float16 or bfloat16 (batch, seq, heads, head_dim).
        device: Where to compute, as in `forward`.
        threads: CPU threads at most; 0 is what OpenMP would use.

    Returns:
        (values, scale): int8 of the shape of `x` and float32 (heads,), of the framework and on the
        device of `x`.

    Raises:
        InvalidArgument, ArgumentTypeError, DeviceUnavailable, CudaError, OutOfMemory: As `forward`.
    """
    return _qattn.quantize(x, device, threads)
