"""qattn on a GPU, through its C API: in the peers' process, on their stream, with their clocks."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

from families.torch_cuda import Runner, Tensors
from peer import Missing
from problems import STEP, Problem

_INT32, _FLOAT16, _BFLOAT16, _FLOAT32 = ctypes.c_int32, 3, 4, 2
OUTPUTS = {"float32": _FLOAT32, "float16": _FLOAT16, "bfloat16": _BFLOAT16}


def _struct(name: str, fields: list[tuple[str, Any]], size: int) -> type[ctypes.Structure]:
    """The first fields of a struct of qattn.h; the rest is as its initialiser leaves it."""
    known = [("struct_size", ctypes.c_size_t), *fields]
    used = ctypes.sizeof(type(name, (ctypes.Structure,), {"_fields_": known}))
    return type(name, (ctypes.Structure,),
                {"_fields_": [*known, ("rest", ctypes.c_byte * (size - used))]})


_Device = _struct("Device", [("kind", _INT32), ("ordinal", _INT32), ("stream", ctypes.c_void_p)],
                  24)
_Tensor = _struct("Tensor", [("data", ctypes.c_void_p)], 152)
_Output = _struct("Output", [("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 4),
                             ("strides", ctypes.c_int64 * 3), ("scale", ctypes.c_void_p),
                             ("dtype", _INT32), ("granularity", _INT32)], 96)
_Options = _struct("Options", [("mask", _INT32), ("precision", _INT32)], 144)


class Library:
    """The shared library. `kernel` forces one by name."""

    def __init__(self, path: pathlib.Path, kernel: str | None) -> None:
        if not path.exists():
            raise Missing(f"there is no {path} (./dev build makes it)")
        if kernel:
            os.environ["QATTN_KERNEL"] = kernel  # read when the library is first called
        self.library = ctypes.CDLL(str(path))
        self.library.qattn_explanation_kernel.restype = ctypes.c_char_p
        self.library.qattn_explanation_kernel.argtypes = [ctypes.c_void_p]
        self.library.qattn_explanation_free.argtypes = [ctypes.c_void_p]
        self.library.qattn_last_error_message.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        if getattr(self.library, name)(*arguments) != 0:
            raise Missing(self.library.qattn_last_error_message().decode())


class Ours(Runner):
    """All scales are STEP. K and V rotate as those of the peers do."""

    def __init__(self, library: Library, precision: str, output: str, problem: Problem,
                 data: Tensors) -> None:
        import torch

        super().__init__(problem)
        self.library, self.torch = library, torch
        self.scale = torch.full((problem.heads,), STEP, device="cuda")
        self.out = torch.empty(data.q.shape, dtype=getattr(torch, output), device="cuda")
        copies = problem.copies(1)
        self.kept = [data, *(Tensors(data.q, data.k.clone(), data.v.clone())
                             for _ in range(copies - 1))]
        self.inputs = [tuple(self._tensor(x) for x in (t.q, t.k, t.v)) for t in self.kept]
        self.c_out = _Output()
        library.call("qattn_output_init", ctypes.byref(self.c_out), ctypes.c_size_t(96),
                     ctypes.c_void_p(0), *map(ctypes.c_int64, data.q.shape))
        self.c_out.data = self.out.data_ptr()
        self.c_out.dtype = OUTPUTS[output]
        self.options = _Options()
        library.call("qattn_options_init", ctypes.byref(self.options), ctypes.c_size_t(144))
        self.options.mask = 0 if problem.causal else 1
        self.options.precision = ("high", "fast").index(precision)
        self.device = _Device(24, 1, 0, None)
        self.turn = 0

    def _tensor(self, x: Any) -> ctypes.Structure:
        tensor = _Tensor()
        self.library.call("qattn_tensor_init", ctypes.byref(tensor), ctypes.c_size_t(152),
                          ctypes.c_void_p(x.data_ptr()), *map(ctypes.c_int64, x.shape),
                          ctypes.c_void_p(self.scale.data_ptr()))
        return tensor

    def _arguments(self) -> list[Any]:
        self.device.stream = self.torch.cuda.current_stream().cuda_stream
        q, k, v = self.inputs[self.turn]
        return [ctypes.byref(x) for x in (self.device, q, k, v, self.c_out, self.options)]

    def first_run(self) -> None:
        self.run()

    def run(self) -> None:
        self.library.call("qattn_forward", *self._arguments())
        self.turn = (self.turn + 1) % len(self.inputs)

    def kernel(self) -> str:
        """The kernel that the library chooses."""
        explanation = ctypes.c_void_p()
        self.library.call("qattn_explain", *self._arguments(), ctypes.byref(explanation))
        name = self.library.library.qattn_explanation_kernel(explanation).decode()
        self.library.library.qattn_explanation_free(explanation)
        return name
