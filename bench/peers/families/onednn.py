"""oneDNN's bfloat16 attention through its Graph API (onednn_sdpa.cpp), with two builds of it.

The wheel onednn-devel brings headers and a library that runs on SYCL, where it does not fuse the
graph. A library that runs on OpenMP, and fuses it, lies in PaddlePaddle's wheel; ONEDNN_ROOT names
an installation of one's own instead.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from peer import BFLOAT16, Missing, Peer
from problems import Data, Problem, bfloat16_bits, from_bfloat16_bits, grouped, ungrouped

SOURCE = pathlib.Path(__file__).parent.parent / "onednn_sdpa.cpp"
# A problem that takes longer is not tried in other forms: the first is the fastest on small ones.
PATIENCE_SECONDS = 1.0
WHEELS = pathlib.Path(sys.prefix)


def openmp_library() -> pathlib.Path:
    if "ONEDNN_ROOT" in os.environ:
        found = sorted(pathlib.Path(os.environ["ONEDNN_ROOT"]).glob("lib*/libdnnl.so.3"))
        if not found:
            raise Missing("ONEDNN_ROOT has no lib/libdnnl.so.3")
        return found[0]
    paddle = importlib.util.find_spec("paddle")
    if not paddle or not paddle.origin:
        raise Missing("neither ONEDNN_ROOT nor PaddlePaddle's wheel is there")
    return pathlib.Path(paddle.origin).parent / "libs/libdnnl.so.3"


@functools.cache
def library(openmp: bool) -> ctypes.CDLL:
    """onednn_sdpa.cpp, compiled and loaded."""
    if not (WHEELS / "include/oneapi/dnnl/dnnl_graph.hpp").exists():
        raise Missing("the wheel onednn-devel is not installed")
    path_of_library = openmp_library() if openmp else WHEELS / "lib/libdnnl.so.3"
    folder_of_library = path_of_library.parent
    link = [f"-L{folder_of_library}", f"-l:{path_of_library.name}",
            f"-Wl,-rpath,{folder_of_library}", "-Wl,--allow-shlib-undefined"]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "peer.so"
        command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-fPIC", "-shared",
                   f"-I{WHEELS}/include", str(SOURCE), "-o", str(path), *link]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"onednn_sdpa.cpp does not compile: {done.stderr[-300:]}")
        loaded = ctypes.CDLL(str(path))
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    loaded.peer_onednn_create.argtypes = [size] * 5 + [ctypes.c_int, size] + [ctypes.c_int] * 2
    loaded.peer_onednn_create.restype = pointer
    loaded.peer_onednn_set.argtypes = [pointer] * 4
    loaded.peer_onednn_run.argtypes = [pointer]
    loaded.peer_onednn_get.argtypes = [pointer] * 2
    loaded.peer_onednn_destroy.argtypes = [pointer]
    loaded.peer_onednn_error.restype = ctypes.c_char_p
    loaded.peer_onednn_version.restype = ctypes.c_char_p
    return loaded


def load(openmp: bool) -> str:
    return f"oneDNN {library(openmp).peer_onednn_version().decode()}"


class Attention:
    def __init__(self, openmp: bool, problem: Problem, data: Data, threads: int) -> None:
        self.library = library(openmp)
        self.problem = problem
        q, k, v = (bfloat16_bits(x) for x in grouped(problem, data))
        self.shape = q.shape
        batch, heads, seq_q, head_dim = q.shape
        extents = (batch, heads, seq_q, k.shape[2], head_dim, problem.causal, problem.copies(2))
        self.handle = self.fastest(extents, (q, k, v))

    def fastest(self, extents: tuple, arrays: tuple) -> int:
        """Of the ways to write the graph (onednn_sdpa.cpp) the one that runs fastest."""
        best, least, reason = None, float("inf"), None
        for float_scores, mask_of_indices in ((0, 0), (1, 0), (1, 1)):
            if (mask_of_indices and not self.problem.causal) or (best and least > PATIENCE_SECONDS):
                continue
            self.handle = self.library.peer_onednn_create(*extents, float_scores, mask_of_indices)
            if not self.handle:
                reason = Missing(self.library.peer_onednn_error().decode())
                continue
            self.library.peer_onednn_set(self.handle, *(x.ctypes.data for x in arrays))
            self.run()
            begin = time.perf_counter()
            self.run()
            seconds = time.perf_counter() - begin
            worse = best if seconds < least else self.handle
            if seconds < least:
                best, least = self.handle, seconds
            if worse:
                self.library.peer_onednn_destroy(worse)
        self.handle = None
        if not best:
            raise reason or Missing("oneDNN refuses the attention graph")
        return best

    def run(self) -> None:
        if self.library.peer_onednn_run(self.handle):
            raise Missing(self.library.peer_onednn_error().decode())

    def output(self) -> np.ndarray:
        out = np.empty(self.shape, np.uint16)
        self.library.peer_onednn_get(self.handle, out.ctypes.data)
        return ungrouped(self.problem, from_bfloat16_bits(out))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.peer_onednn_destroy(self.handle)


def environment(threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(threads), "DPCPP_CPU_NUM_CUS": str(threads),
            # Where the wheels put the SYCL device that stands for the processor.
            "OCL_ICD_FILENAMES": f"{WHEELS}/lib/libintelocl.so",
            "LD_LIBRARY_PATH": f"{WHEELS}/lib:" + os.environ.get("LD_LIBRARY_PATH", "")}


def environment_of_openmp(threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(threads)}


PEERS = [
    Peer("oneDNN graph bfloat16 (OpenMP)", "cpu", BFLOAT16, functools.partial(load, True),
         functools.partial(Attention, True), environment_of_openmp),
    Peer("oneDNN graph bfloat16 (wheel, SYCL)", "cpu", BFLOAT16, functools.partial(load, False),
         functools.partial(Attention, False), environment, pinned=True)]
