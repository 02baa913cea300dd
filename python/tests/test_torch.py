"""Tensors of PyTorch on the CPU: qattn.forward, the operators, the module, the compilers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import qattn
from support import BOUNDS, make_problem, reference, relative_error

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import qattn.torch  # noqa: E402
from plain_module import PlainAttention  # noqa: E402


def tensors(**shape: Any) -> tuple[Any, ...]:
    """Return the arguments of a call as tensors."""
    return tuple(torch.from_numpy(x) for x in make_problem(**shape).arrays)


LARGER = {"batch": 1, "seq_q": 333, "heads_q": 6, "head_dim": 64}


@pytest.mark.parametrize("shape", [{}, LARGER], ids=["2x72x4x32", "1x333x6x64"])
@pytest.mark.parametrize("precision", ["high", "fast"])
def test_module_replaces_the_plain_one(shape: dict[str, int], precision: str) -> None:
    arguments = tensors(**shape)
    module = qattn.torch.Int8CausalAttention(precision=precision)
    out = module(*arguments)
    want = PlainAttention()(*arguments)
    assert type(out) is torch.Tensor and out.dtype == torch.float32 and out.device == want.device
    assert out.is_contiguous() and out.shape == want.shape
    assert relative_error(out, want.double().numpy()) < BOUNDS[precision]


def test_forward_returns_tensors_with_the_same_bits() -> None:
    problem = make_problem(heads_kv=2)
    arguments = tensors(heads_kv=2)
    want, want_lse = qattn.forward(*problem.arrays, False, return_lse=True)
    for function in (qattn.forward, qattn.torch.forward):
        out, lse = function(*arguments, False, return_lse=True)
        assert type(out) is torch.Tensor and type(lse) is torch.Tensor
        np.testing.assert_array_equal(out.numpy(), want)
        np.testing.assert_array_equal(lse.numpy(), want_lse)


def test_options_reach_the_kernel() -> None:
    problem = make_problem()
    arguments = tensors()
    out = qattn.torch.forward(
        *arguments, False, softmax_scale=0.1, precision="fast", kernel="cpu/scalar"
    )
    want = reference(problem, False, 0.1)[0]
    assert relative_error(out, want) < BOUNDS["fast"]
    module = qattn.torch.Int8CausalAttention(softmax_scale=0.1)
    assert relative_error(module(*arguments), reference(problem, True, 0.1)[0]) < BOUNDS["high"]
    assert "softmax_scale=0.1" in repr(module)
    with pytest.raises(qattn.UnknownKernel):
        qattn.torch.forward(*arguments, kernel="cpu/typo")
    with pytest.raises(qattn.Unsupported):
        qattn.torch.forward(*arguments, window=(8, -1))


def test_out_of_a_tensor() -> None:
    arguments = tensors()
    out = torch.full(arguments[0].shape, torch.nan)
    assert qattn.forward(*arguments, out=out) is out
    assert torch.equal(out, qattn.forward(*arguments))
    with pytest.raises(ValueError, match="out"):
        qattn.forward(*arguments, out=out.transpose(1, 3))


def test_layouts_give_the_same_bits() -> None:
    arguments = tensors(seq_q=75)
    want = qattn.forward(*arguments)
    q, k, v, *scales = arguments
    packed = torch.cat([q, k, v], dim=2)
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    gaps = [x.repeat_interleave(2, dim=3)[..., ::2] for x in (q, k, v)]
    expanded = [s.repeat_interleave(2)[::2] for s in scales]
    for layout in (packed.split(4, dim=2), heads_first, gaps):
        assert torch.equal(qattn.forward(*layout, *expanded), want)
        assert torch.equal(qattn.torch.forward(*layout, *expanded), want)


def test_errors_name_the_argument() -> None:
    q, k, v, *scales = tensors()
    for function in (qattn.forward, qattn.torch.forward):
        with pytest.raises(TypeError, match=r"\bk has dtype torch.uint8"):
            function(q, k.to(torch.uint8), v, *scales)
        with pytest.raises(ValueError, match=r"\bq has shape"):
            function(q[0], k, v, *scales)
        with pytest.raises(ValueError, match=r"\bv_scale has shape"):
            function(q, k, v, scales[0], scales[1], scales[2][:1])
    with pytest.raises(TypeError, match="q_scale"):
        qattn.forward(q, k, v, 0.1, *scales[1:])
    with pytest.raises(ValueError, match="q"):
        qattn.forward(q.to("meta"), k, v, *scales)


def test_a_parameter_as_scale() -> None:
    *tensor, q_scale, k_scale, v_scale = tensors()
    parameter = torch.nn.Parameter(q_scale.clone())
    with torch.no_grad():
        out = qattn.torch.forward(*tensor, parameter, k_scale, v_scale)
    assert torch.equal(out, qattn.forward(*tensor, q_scale, k_scale, v_scale))


def test_quantize() -> None:
    x = torch.randn(2, 9, 3, 16)
    want, want_scale = qattn.quantize(x.numpy())
    for values, scale in (qattn.quantize(x), qattn.torch.quantize(x)):
        assert values.dtype == torch.int8 and scale.dtype == torch.float32
        np.testing.assert_array_equal(values.numpy(), want)
        np.testing.assert_array_equal(scale.numpy(), want_scale)
    half = x.to(torch.bfloat16)
    values, scale = qattn.quantize(half)
    want, want_scale = qattn.quantize(half.float().numpy())
    np.testing.assert_array_equal(values.numpy(), want)
    np.testing.assert_array_equal(scale.numpy(), want_scale)


def test_opcheck() -> None:
    arguments = tensors(seq_q=9, heads_kv=2)
    options = {"softmax_scale": 0.2, "precision": "fast"}
    operators = torch.ops.qattn
    torch.library.opcheck(operators.forward.default, arguments, options)
    torch.library.opcheck(operators.forward_lse.default, (*arguments, False), options)
    torch.library.opcheck(operators.quantize.default, (torch.randn(1, 5, 2, 8),))


def test_compile_passes_through() -> None:
    def block(x: Any, *arguments: Any) -> Any:
        values, scale = qattn.torch.quantize(x * 2)
        out = qattn.torch.forward(
            values, *arguments[1:3], scale, *arguments[4:], kernel="cpu/scalar"
        )
        return out.relu() + 1

    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    for seq in (40, 72, 17):
        x, arguments = torch.randn(2, seq, 4, 32), tensors(seq_q=seq)
        assert torch.equal(compiled(x, *arguments), block(x, *arguments))


def test_compiled_module() -> None:
    module = qattn.torch.Int8CausalAttention()
    arguments = tensors()
    assert torch.equal(torch.compile(module, fullgraph=True)(*arguments), module(*arguments))


def test_export(tmp_path: Path) -> None:
    module = qattn.torch.Int8CausalAttention(softmax_scale=0.1, precision="fast")
    arguments = tensors()
    seq = torch.export.Dim("seq", min=2, max=4096)
    dynamic = [{1: seq}] * 3 + [None] * 3
    program = torch.export.export(module, arguments, dynamic_shapes=tuple(dynamic))
    torch.export.save(program, tmp_path / "attention.pt2")
    loaded = torch.export.load(tmp_path / "attention.pt2").module()
    other = tensors(seq_q=30)
    assert torch.equal(loaded(*other), module(*other))


def test_wrong_dtype_is_refused_while_tracing() -> None:
    q, k, v, *scales = tensors()
    compiled = torch.compile(qattn.torch.forward, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"k has dtype torch\.uint8"):
        compiled(q, k.to(torch.uint8), v, *scales)


def test_fake_tensors_have_no_memory_to_read() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in tensors()]
        with pytest.raises(TypeError, match="q is of type FakeTensor"):
            qattn.forward(*fakes)
        assert qattn.torch.forward(*fakes).shape == fakes[0].shape


def test_subclass_with_plain_memory() -> None:
    class Named(torch.Tensor):
        pass

    arguments = tensors()
    named = [x.as_subclass(Named) for x in arguments]
    assert torch.equal(qattn.forward(*named), qattn.forward(*arguments))


def test_versions_of_torch_without_the_exchange_table() -> None:
    code = """
import torch, qattn
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
import qattn.torch
q = torch.randint(-128, 128, (2, 33, 4, 32), dtype=torch.int8)
s = torch.full((4,), 0.01)
want = qattn.forward(*(x.numpy() for x in (q, q, q, s, s, s)))
for function in (qattn.forward, qattn.torch.forward):
    print((function(q.transpose(0, 0), q, q, s, s, s).numpy() == want).all())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\nTrue\n"


def test_package_without_the_submodule_leaves_torch_alone() -> None:
    code = "import torch, qattn; print(hasattr(torch.ops.qattn, 'forward'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
