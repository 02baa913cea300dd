"""What this build can do on this machine, and why a kernel is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qattn import _qattn
from qattn._attention import Array, Precision
from qattn._errors import InvalidArgument


@dataclass(frozen=True)
class KernelStatus:
    """A kernel and whether it can run on a device of this machine."""

    name: str
    """As `forward` takes it, for example "cpu/avx2"."""
    usable: bool
    reason: str
    """Why it is not usable or was passed over; empty if it is."""


@dataclass(frozen=True)
class Explanation:
    """Which kernel `forward` would run, and why not one before it."""

    kernel: str
    """Name of the chosen kernel; empty if there is none."""
    passed_over: tuple[KernelStatus, ...]
    error: str
    """What `forward` would raise; empty if it would run."""

    def __str__(self) -> str:
        """Several lines for a person to read."""
        lines = [f"{status.name}: passed over, {status.reason}" for status in self.passed_over]
        if self.kernel:
            lines.append(f"{self.kernel}: chosen")
        if self.error:
            lines.append(f"error: {self.error}")
        return "\n".join(lines)


@dataclass(frozen=True)
class CudaDevice:
    """A CUDA device of this machine."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int


@dataclass(frozen=True)
class MachineInfo:
    """What the library sees of this machine."""

    version: str
    """Of the library."""
    cpu: str
    cpu_features: tuple[str, ...]
    """What kernels may need and CPU and operating system grant."""
    cpu_threads: int
    """Threads that OpenMP would use."""
    cuda: str
    """"available", or why CUDA is not."""
    cuda_driver: int
    """As the driver tells it: 1000 * major + 10 * minor."""
    cuda_runtime: int
    """Of the runtime in the library; 0: the library has none."""
    cuda_devices: tuple[CudaDevice, ...]


def info() -> MachineInfo:
    """Look at the machine. Initialises CUDA where a driver is present."""
    fields = _qattn.machine_info()
    devices = tuple(CudaDevice(*device) for device in fields.pop("cuda_devices"))
    return MachineInfo(**fields, cuda_devices=devices)


def kernels(device: str = "cpu") -> tuple[KernelStatus, ...]:
    """List the kernels for a device, "cpu", "cuda", "cuda:N" or "best", best first."""
    if device == "best":
        device = "cuda" if _qattn.best_is_cuda() else "cpu"
    kind, _, ordinal = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (ordinal and (kind == "cpu" or not ordinal.isdecimal())):
        raise InvalidArgument(f"device is {device!r} (allowed: 'cpu', 'cuda', 'cuda:N', 'best')")
    return tuple(KernelStatus(*row) for row in _qattn.kernels(kind == "cuda", int(ordinal or 0)))


def explain(
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
    out_dtype: Any = None,
    device: Any = None,
    kernel: str | None = None,
    threads: int = 0,
) -> Explanation:
    """Explain which kernel `forward` would run with these arguments, without running it.

    Raises for arguments that `forward` refuses before it chooses a kernel, as `forward` does.
    """
    chosen, passed_over, error = _qattn.explain(
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
        out_dtype,
        device,
        kernel,
        threads,
    )
    return Explanation(chosen, tuple(KernelStatus(*row) for row in passed_over), error)
