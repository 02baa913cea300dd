"""float16 and bfloat16 outputs: which arrays they are, and who refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import qattn
from support import make_problem

# The reference writes every type on the CPU.
REFERENCE = "reference/float64"


def bits_of(out: Any) -> Any:
    return out.view(np.uint16)


def bfloat16() -> Any:
    return pytest.importorskip("ml_dtypes").bfloat16


@pytest.mark.parametrize("name", ["float16", np.float16, np.dtype(np.float16)], ids=str)
def test_float16(name: Any) -> None:
    problem = make_problem()
    want = qattn.forward(*problem.arrays, kernel=REFERENCE)
    out, lse = qattn.forward(*problem.arrays, kernel=REFERENCE, out_dtype=name, return_lse=True)
    assert type(out) is np.ndarray and out.dtype == np.float16 and out.shape == problem.q.shape
    assert lse.dtype == np.float32
    np.testing.assert_allclose(out, want, rtol=2**-11, atol=2**-25)
    given = np.full(problem.q.shape, np.nan, np.float16)
    assert qattn.forward(*problem.arrays, kernel=REFERENCE, out=given) is given
    np.testing.assert_array_equal(bits_of(given), bits_of(out))


def test_float32_is_the_default() -> None:
    problem = make_problem()
    assert qattn.forward(*problem.arrays, out_dtype="float32").dtype == np.float32
    assert qattn.forward(*problem.arrays, out_dtype=None).dtype == np.float32


def test_bfloat16_of_ml_dtypes() -> None:
    dtype = bfloat16()
    problem = make_problem()
    want = qattn.forward(*problem.arrays, kernel=REFERENCE)
    out = qattn.forward(*problem.arrays, kernel=REFERENCE, out_dtype="bfloat16")
    assert type(out) is np.ndarray and out.dtype == dtype and out.shape == problem.q.shape
    np.testing.assert_allclose(out.astype(np.float32), want, rtol=2**-8, atol=1e-38)
    memory = np.zeros((*problem.q.shape[:3], problem.q.shape[3] + 3), dtype)
    given = memory[..., 2:-1]
    assert qattn.forward(*problem.arrays, kernel=REFERENCE, out=given, out_dtype=dtype) is given
    np.testing.assert_array_equal(bits_of(given), bits_of(out))
    assert (memory[..., :2] == 0).all() and (memory[..., -1] == 0).all()


def test_quantize_reads_bfloat16_of_ml_dtypes() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 16), np.float32).astype(bfloat16())
    for array in (x, x[:, ::2], x[..., ::2], x.transpose(0, 2, 1, 3)):
        got, scale = qattn.quantize(array)
        want, want_scale = qattn.quantize(array.astype(np.float32))
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(scale, want_scale)


def test_bfloat16_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(qattn.InvalidArgument, match=r"out_dtype is 'bfloat16'.*ml_dtypes"):
        qattn.forward(*make_problem().arrays, kernel=REFERENCE, out_dtype="bfloat16")


@pytest.mark.parametrize("name", ["float64", "int8", "half", 3, np.int8], ids=str)
def test_other_types_are_refused(name: Any) -> None:
    with pytest.raises(qattn.InvalidArgument, match=r"out_dtype is .*allowed: None, 'float32'"):
        qattn.forward(*make_problem().arrays, out_dtype=name)


def test_out_must_have_the_type_that_is_asked_for() -> None:
    problem = make_problem()
    out = np.zeros(problem.q.shape, np.float16)
    with pytest.raises(qattn.InvalidArgument, match=r"out has dtype float16.*out_dtype, float32"):
        qattn.forward(*problem.arrays, out=out, out_dtype="float32", kernel=REFERENCE)
    with pytest.raises(qattn.ArgumentTypeError, match="out has dtype float64"):
        qattn.forward(*problem.arrays, out=out.astype(np.float64))


def test_cpu_kernels_refuse_them_by_name(cpu_kernel: str) -> None:
    problem = make_problem()
    for arguments in ({"out_dtype": "float16"}, {"out": np.zeros(problem.q.shape, np.float16)}):
        with pytest.raises(qattn.Unsupported, match="dtype float16 of out"):
            qattn.forward(*problem.arrays, **arguments)
        if cpu_kernel != REFERENCE:
            with pytest.raises(qattn.KernelUnusable, match="dtype float16 of out"):
                qattn.forward(*problem.arrays, kernel=cpu_kernel, **arguments)
    explained = qattn.explain(*problem.arrays, out_dtype="float16")
    assert explained.kernel == "" and "dtype float16 of out" in explained.error


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    import qattn.torch

    problem = make_problem()
    tensors = [torch.from_numpy(x) for x in problem.arrays]
    for dtype in (torch.float16, torch.bfloat16):
        want = qattn.forward(*tensors, kernel=REFERENCE).to(dtype).float()
        out = qattn.forward(*tensors, kernel=REFERENCE, out_dtype=dtype)
        assert out.dtype == dtype
        torch.testing.assert_close(out.float(), want, rtol=2**-7, atol=1e-6)
        given = torch.empty(tensors[0].shape, dtype=dtype)
        assert qattn.forward(*tensors, kernel=REFERENCE, out=given) is given
        assert torch.equal(given, out)
        op = qattn.torch.forward(*tensors, kernel=REFERENCE, out_dtype=dtype)
        assert torch.equal(op, out)
        compiled = torch.compile(qattn.torch.forward, fullgraph=True, backend="eager")
        assert torch.equal(compiled(*tensors, kernel=REFERENCE, out_dtype=dtype), out)
    assert qattn.torch.forward(*tensors).dtype == torch.float32
    module = qattn.torch.Int8CausalAttention(out_dtype=torch.float16)
    with pytest.raises(qattn.Unsupported, match="dtype float16 of out"):
        module(*tensors)
