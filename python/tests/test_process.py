"""What importing and calling do to the process. Each test runs a Python of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

# Python 3.12 warns of every fork beside threads; here forking is what a test is about.
QUIET = ("-W", "ignore::DeprecationWarning")
CALL = """
import numpy as np, qattn
def call(seq=33, threads=4):
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-128, 128, (2, seq, 4, 32), dtype=np.int8) for _ in range(3))
    s = np.full(4, 0.01, np.float32)
    return qattn.forward(q, k, v, s, s, s, threads=threads)
"""


def run(code: str, **environment: str) -> str:
    """Run a program that must end well; return what it printed."""
    done = subprocess.run(
        [sys.executable, *QUIET, "-c", CALL + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_import_brings_no_framework() -> None:
    loaded = run(
        "import sys; call(); print([m for m in ('torch', 'jax', 'cupy') if m in sys.modules])"
    )
    assert loaded == "[]\n"


def test_cpu_calls_do_not_touch_cuda() -> None:
    maps = run("call(); qattn.kernels('cpu'); print(open('/proc/self/maps').read())")
    assert "qattn" in maps and "libcuda.so" not in maps and "libnvidia" not in maps


def test_fork_after_a_parallel_call() -> None:
    code = """
import os
want = call(512)
pid = os.fork()
if pid == 0:
    os._exit(0 if np.array_equal(call(512), want) else 1)
print(os.waitpid(pid, 0)[1])
"""
    assert run(code) == "0\n"


def test_forced_kernel_by_environment() -> None:
    code = """
tensor, scale = np.zeros((1, 1, 1, 1), np.int8), np.ones(1, np.float32)
print(qattn.explain(tensor, tensor, tensor, scale, scale, scale).kernel)
"""
    assert run(code, QATTN_KERNEL="cpu/scalar") == "cpu/scalar\n"


def test_unknown_forced_kernel_by_environment() -> None:
    code = """
try:
    call()
except qattn.UnknownKernel as error:
    print("cpu/typo" in str(error))
"""
    assert run(code, QATTN_KERNEL="cpu/typo") == "True\n"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("first", ["qattn", "torch"])
def test_two_openmp_runtimes(first: str) -> None:
    torch_work = """
import torch
torch.set_num_threads(4)
torch.ones(512, 512).matmul(torch.ones(512, 512)).sum().item()
"""
    code = torch_work if first == "torch" else ""
    code += f"""
alone = call(33, 1)
both = [call(33, 4) for _ in range(20)]
{torch_work if first == "qattn" else ""}
both += [call(seq, 4) for _ in range(20) for seq in (33,)]
torch.ones(512, 512).matmul(torch.ones(512, 512)).sum().item()
long_alone = call(600, 1)
print(all(np.array_equal(alone, x) for x in both), np.array_equal(long_alone, call(600, 4)))
"""
    assert run(code) == "True True\n"
