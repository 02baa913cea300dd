"""INT8 attention on the fastest kernel of whatever machine the program runs on.

    out = qattn.forward(q, k, v, q_scale, k_scale, v_scale)

q, k and v are int8 arrays (batch, seq, heads, head_dim) of NumPy, PyTorch, CuPy, JAX or any other
framework that speaks DLPack, in host memory or on a CUDA device; the result is a float32 array of
the same framework on the same device. `qattn.torch` holds the PyTorch operators.
"""

from __future__ import annotations

from qattn._attention import Array, forward, quantize
from qattn._errors import (
    ArgumentTypeError,
    CudaError,
    DeviceUnavailable,
    Error,
    InvalidArgument,
    KernelUnusable,
    OutOfMemory,
    UnknownKernel,
    Unsupported,
)
from qattn._introspection import (
    CudaDevice,
    Explanation,
    KernelStatus,
    MachineInfo,
    explain,
    info,
    kernels,
)
from qattn._qattn import version as __version__

__all__ = [
    "ArgumentTypeError",
    "Array",
    "CudaDevice",
    "CudaError",
    "DeviceUnavailable",
    "Error",
    "Explanation",
    "InvalidArgument",
    "KernelStatus",
    "KernelUnusable",
    "MachineInfo",
    "OutOfMemory",
    "UnknownKernel",
    "Unsupported",
    "__version__",
    "explain",
    "forward",
    "info",
    "kernels",
    "quantize",
]
