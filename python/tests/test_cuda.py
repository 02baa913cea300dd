"""Arrays on a CUDA device: PyTorch, CuPy, JAX, and host memory staged through the GPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import qattn
from support import BOUNDS, make_problem, reference, relative_error

pytestmark = pytest.mark.cuda

LARGER = {"batch": 1, "seq_q": 333, "seq_k": 400, "heads_q": 6, "heads_kv": 2, "head_dim": 64}


@pytest.fixture(scope="module")
def torch() -> Any:
    """Import PyTorch, if it can use the GPU."""
    module = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    import qattn.torch  # noqa: F401

    return module


def on_gpu(torch: Any, **shape: Any) -> list[Any]:
    """Return the arguments of a call as tensors on the GPU."""
    return [torch.from_numpy(x).cuda() for x in make_problem(**shape).arrays]


@pytest.mark.parametrize("shape", [{}, LARGER], ids=["2x72x4x32", "1x333x6x64"])
@pytest.mark.parametrize("precision", ["high", "fast"])
def test_torch(torch: Any, shape: dict[str, int], precision: str) -> None:
    want, want_lse = reference(make_problem(**shape))
    for function in (qattn.forward, qattn.torch.forward):
        out, lse = function(*on_gpu(torch, **shape), precision=precision, return_lse=True)
        assert out.is_cuda and lse.is_cuda and out.dtype == torch.float32
        assert relative_error(out.cpu(), want) < BOUNDS[precision]
        np.testing.assert_allclose(lse.cpu(), want_lse, rtol=1e-6, atol=BOUNDS[precision])


def test_torch_layouts(torch: Any) -> None:
    q, k, v, *scales = on_gpu(torch, seq_q=75)
    want = qattn.forward(q, k, v, *scales)
    packed = torch.cat([q, k, v], dim=2).split(4, dim=2)
    gaps = [x.repeat_interleave(2, dim=3)[..., ::2] for x in (q, k, v)]
    spread = [s.repeat_interleave(2)[::2] for s in scales]
    for layout in (packed, gaps):
        assert torch.equal(qattn.forward(*layout, *spread), want)
    out = torch.full_like(want, torch.nan)
    assert qattn.forward(q, k, v, *scales, out=out) is out and torch.equal(out, want)


def test_current_stream(torch: Any) -> None:
    arguments = on_gpu(torch, **LARGER)
    want = qattn.forward(*arguments)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    for function in (qattn.forward, qattn.torch.forward):
        late = [torch.zeros_like(x) for x in arguments]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)  # on a wrong stream the zeros would be read meanwhile
            for target, source in zip(late, arguments):
                target.copy_(source)
            out = function(*late)
        stream.synchronize()
        assert torch.equal(out, want)


def test_graph_capture(torch: Any) -> None:
    arguments = on_gpu(torch)
    other = [torch.from_numpy(x).cuda() for x in make_problem(seed=5).arrays]
    want = qattn.forward(*other)
    module = qattn.torch.Int8CausalAttention()
    module(*arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module(*arguments)
    for target, source in zip(arguments, other):
        target.copy_(source)
    graph.replay()
    assert torch.equal(out, want)


def test_compile_and_export(torch: Any) -> None:
    module = qattn.torch.Int8CausalAttention()
    arguments = on_gpu(torch)
    want = module(*arguments)
    assert torch.equal(torch.compile(module, fullgraph=True)(*arguments), want)
    program = torch.export.export(module, tuple(arguments))
    assert torch.equal(program.module()(*arguments), want)
    torch.library.opcheck(torch.ops.qattn.forward.default, tuple(arguments))


def test_quantize(torch: Any) -> None:
    x = torch.randn(2, 65, 3, 64)
    want, want_scale = qattn.quantize(x)
    for function in (qattn.quantize, qattn.torch.quantize):
        values, scale = function(x.cuda())
        assert values.is_cuda and scale.is_cuda
        assert torch.equal(values.cpu(), want) and torch.equal(scale.cpu(), want_scale)


def test_misplaced_arguments_are_named(torch: Any) -> None:
    arguments = on_gpu(torch)
    for i, name in enumerate(("q", "k", "v", "q_scale", "k_scale", "v_scale")):
        mixed = list(arguments)
        mixed[i] = mixed[i].cpu()
        with pytest.raises(ValueError, match=r"lies on|lies in") as caught:
            qattn.forward(*mixed)
        assert i == 0 or name in str(caught.value)
    with pytest.raises(ValueError, match="out lies on cpu"):
        qattn.forward(*arguments, out=torch.zeros(arguments[0].shape))
    with pytest.raises(ValueError):
        qattn.forward(*arguments, device="cpu")


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "best"])
def test_host_memory_is_staged(device: str) -> None:
    problem = make_problem()
    out = qattn.forward(*problem.arrays, device=device)
    assert type(out) is np.ndarray
    assert relative_error(out, reference(problem)[0]) < BOUNDS["high"]
    assert qattn.explain(*problem.arrays, device=device).kernel.startswith("cuda/")


def test_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    problem = make_problem(**LARGER)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        arrays = [cupy.asarray(x) for x in problem.arrays]
        out, lse = qattn.forward(*arrays, return_lse=True)
        spread = cupy.repeat(arrays[0], 2, axis=3)[..., ::2]
        again = qattn.forward(spread, *arrays[1:])
        with pytest.raises(ValueError, match="q has a negative stride"):
            qattn.forward(arrays[0][:, ::-1], *arrays[1:])
    stream.synchronize()
    assert isinstance(out, cupy.ndarray) and isinstance(lse, cupy.ndarray)
    assert relative_error(cupy.asnumpy(out), reference(problem)[0]) < BOUNDS["high"]
    assert (out == again).all()
    values, scale = qattn.quantize(cupy.ones((1, 2, 3, 4), cupy.float32))
    assert isinstance(values, cupy.ndarray) and (values == 127).all() and scale.shape == (3,)


def test_jax() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    try:
        gpu = jax.devices("cuda")[0]
    except RuntimeError as error:
        pytest.skip(f"this JAX has no CUDA: {error}")
    problem = make_problem(**LARGER)
    arrays = [jax.device_put(x, gpu) for x in problem.arrays]
    out, lse = qattn.forward(*arrays, return_lse=True)
    assert isinstance(out, jax.Array) and out.devices() == {gpu} and isinstance(lse, jax.Array)
    assert relative_error(np.asarray(out), reference(problem)[0]) < BOUNDS["high"]
    values, scale = qattn.quantize(jax.device_put(np.ones((1, 2, 3, 4), np.float32), gpu))
    assert values.dtype == np.int8 and (values == 127).all() and scale.shape == (3,)


def test_import_leaves_cuda_alone_for_a_forked_child() -> None:
    code = """
import os
import numpy as np, qattn
q, s = np.ones((1, 8, 1, 32), np.int8), np.ones(1, np.float32)
qattn.forward(q, q, q, s, s, s)
pid = os.fork()
if pid == 0:
    out = qattn.forward(q, q, q, s, s, s, device="cuda")
    os._exit(0 if abs(out - 1).max() < 1e-3 else 1)
assert os.waitpid(pid, 0)[1] == 0
"""
    # Python 3.12 warns of every fork beside threads; this one is what the test is about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def seconds(torch: Any, call: Callable[[], object], calls: int) -> float:
    """Return the time of a call, end to end, the mean of `calls`."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def test_module_is_faster_than_its_peers(torch: Any, record_property: Any) -> None:
    from plain_module import DequantizedAttention, PlainAttention

    arguments = on_gpu(torch)
    ours = qattn.torch.Int8CausalAttention()
    peers = {"loop": PlainAttention(), "dequantise and SDPA": DequantizedAttention()}
    with torch.inference_mode():
        for peer in peers.values():
            want = peer(*arguments).double().cpu().numpy()
            assert relative_error(ours(*arguments).cpu(), want) < BOUNDS["high"]
        # All are bound by the host, whose speed changes from one moment to the next: each round
        # compares what ran side by side.
        rounds: dict[str, list[float]] = {name: [] for name in peers}
        for _ in range(15):
            mine = seconds(torch, lambda: ours(*arguments), 1000)
            for name, peer in peers.items():
                calls = 5 if name == "loop" else 500
                rounds[name].append(
                    seconds(torch, lambda peer=peer: peer(*arguments), calls) / mine
                )
    factors = {name: statistics.median(ratios) for name, ratios in rounds.items()}
    print(f"module {1e6 * mine:.1f} us in the last round; times faster: {factors}")
    for name, factor in factors.items():
        record_property(name, factor)
    assert factors["loop"] >= 400
    assert factors["dequantise and SDPA"] >= 2
