"""What only an array's own framework can do. Called by the extension module.

No framework is imported here: an array comes from one that is imported already. Only ml_dtypes is,
which gives NumPy its bfloat16.
"""

from __future__ import annotations

import sys
from typing import Any

from qattn._errors import InvalidArgument


def empty_torch(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Make an uninitialised tensor on the device of `like`."""
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)


def empty_bfloat16(shape: tuple[int, ...]) -> Any:
    """Make an uninitialised NumPy array of bfloat16."""
    try:
        import ml_dtypes
    except ImportError:
        raise InvalidArgument(
            "out_dtype is 'bfloat16' for arrays of NumPy, which has it from the package ml_dtypes, "
            "and that is not installed (allowed: 'float32', 'float16')"
        ) from None
    return sys.modules["numpy"].empty(shape, ml_dtypes.bfloat16)


def empty_cupy(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Make an uninitialised array on the device of `like`."""
    with like.device:
        try:
            return sys.modules["cupy"].empty(shape, dtype)
        except TypeError:
            raise InvalidArgument(
                f"out_dtype is {dtype!r} for arrays of CuPy, which has no such type "
                "(allowed: 'float32', 'float16')"
            ) from None


def empty_other(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Make an uninitialised array of a framework that follows the array API standard.

    An array in host memory whose framework does not gets a NumPy array.
    """
    if hasattr(like, "__array_namespace__"):
        namespace = like.__array_namespace__()
        return namespace.empty(shape, dtype=getattr(namespace, dtype), device=like.device)
    if not hasattr(like, "__dlpack_device__") or like.__dlpack_device__()[0] == 1:
        if dtype == "bfloat16":
            return empty_bfloat16(shape)
        return sys.modules["numpy"].empty(shape, dtype)
    raise InvalidArgument(
        f"out is None for arrays of type {type(like).__name__}, of which no result can be made "
        "(allowed: an array to write to)"
    )


def compact_copy(array: Any) -> Any:
    """Copy an array into row-major memory without gaps, in native byte order.

    An array in host memory whose framework is unknown becomes one of NumPy.
    """
    if callable(getattr(array, "contiguous", None)):  # PyTorch; of a memoryview it is a flag
        return array.contiguous()
    if hasattr(array, "astype") and hasattr(array, "flags"):  # NumPy and CuPy
        return array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    numpy = sys.modules["numpy"]
    source = numpy.from_dlpack(array) if hasattr(array, "__dlpack__") else memoryview(array)
    return numpy.array(source, order="C", copy=True)


def current_stream(framework: str, ordinal: int) -> int:
    """Return the address of the stream that the framework works on now."""
    module = sys.modules[framework]
    if framework == "torch":
        return int(module.cuda.current_stream(ordinal).cuda_stream)
    return int(module.cuda.get_current_stream(ordinal).ptr)


def to_jax(array: Any, like: Any) -> Any:
    """Put a NumPy array where the JAX array `like` lies."""
    return sys.modules["jax"].device_put(array, like.device)


class _Exported:
    """Memory of a CUDA device for one importer. All work on it is done."""

    def __init__(self, capsule: Any, ordinal: int) -> None:
        self._capsule = capsule
        self._device = (2, ordinal)

    def __dlpack__(self, **_arguments: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def import_jax(capsule: Any, ordinal: int) -> Any:
    """Take over memory of a CUDA device as a JAX array."""
    import jax.dlpack

    return jax.dlpack.from_dlpack(_Exported(capsule, ordinal))
