"""What qattn raises. Every class derives from Error and from the built-in exception that fits."""

from __future__ import annotations


class Error(Exception):
    """Base of everything that qattn raises."""


class InvalidArgument(Error, ValueError):
    """An argument is outside its documented domain; nothing was written."""


class ArgumentTypeError(Error, TypeError):
    """An argument is of the wrong type or has the wrong dtype; nothing was written."""


class Unsupported(Error, NotImplementedError):
    """A valid request that no kernel of this device implements."""


class UnknownKernel(Error, ValueError):
    """A forced kernel name that is not in the table."""


class KernelUnusable(Error, RuntimeError):
    """A forced kernel that this machine or this problem rules out."""


class DeviceUnavailable(Error, RuntimeError):
    """The CUDA device asked for cannot be used; the message says why."""


class OutOfMemory(Error, MemoryError):
    """Host or device memory ran out; the library stays usable."""


class CudaError(Error, RuntimeError):
    """The CUDA runtime or driver reported an error."""
