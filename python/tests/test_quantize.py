"""qattn.quantize against the formula written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import qattn
from numpy.typing import NDArray
from support import relative_error


def formula(x: NDArray[np.floating]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise in float32: per head, symmetric, round half to even."""
    x = x.astype(np.float32)
    peak = np.abs(x).max(axis=(0, 1, 3), initial=0)
    scale = np.where(peak > 0, peak / np.float32(127), np.float32(1)).astype(np.float32)
    return np.rint(x / scale[:, None]).clip(-127, 127).astype(np.int8), scale


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(2, 72, 4, 32), (1, 1, 1, 1), (3, 5, 7, 129)], ids=str)
def test_matches_the_formula(dtype: type, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(shape) * (1 + np.arange(shape[2]))[:, None]).astype(dtype)
    values, scale = qattn.quantize(x)
    want_values, want_scale = formula(x)
    assert values.dtype == np.int8 and scale.dtype == np.float32
    np.testing.assert_array_equal(values, want_values)
    np.testing.assert_array_equal(scale, want_scale)


def test_ties_go_to_even() -> None:
    x = np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5], np.float32).reshape(1, 1, 1, 7)
    values, scale = qattn.quantize(x)
    assert scale.tolist() == [1] and values.ravel().tolist() == [127, 0, 2, 2, 0, -2, 126]


def test_a_head_of_zeros() -> None:
    x = np.ones((1, 4, 3, 8), np.float32)
    x[:, :, 1] = 0
    values, scale = qattn.quantize(x)
    assert scale[1] == 1 and (values[:, :, 1] == 0).all() and (values[:, :, 0] == 127).all()


def test_strided_input() -> None:
    x = np.random.default_rng(2).standard_normal((2, 4, 9, 16), dtype=np.float32)
    for view in (x.transpose(0, 2, 1, 3), x[:, :, 1:8:2], x[..., ::2], x.astype(">f4")):
        values, scale = qattn.quantize(view)
        want_values, want_scale = formula(view)
        np.testing.assert_array_equal(values, want_values)
        np.testing.assert_array_equal(scale, want_scale)


def test_result_goes_into_forward() -> None:
    x = np.random.default_rng(3).standard_normal((1, 64, 2, 32), dtype=np.float32)
    values, scale = qattn.quantize(x)
    one_key = qattn.forward(values[:, :1], values[:, :1], values[:, :1], scale, scale, scale)
    assert relative_error(one_key, (values[:, :1] * scale[:, None]).astype(np.float64)) < 5e-4


def test_errors() -> None:
    x = np.ones((2, 4, 3, 8), np.float32)
    for wrong in (x.astype(np.float64), x.astype(np.int8), x.tolist()):
        with pytest.raises(TypeError, match=r"\bx\b"):
            qattn.quantize(wrong)
    for wrong in (x[0], x[::-1], x[..., ::-1]):
        with pytest.raises(ValueError, match=r"\bx\b"):
            qattn.quantize(wrong)
    for poison, name in ((np.nan, "NaN"), (np.inf, "infinity")):
        bad = x.copy()
        bad[0, 1, 2, 3] = poison
        with pytest.raises(qattn.InvalidArgument, match=f"^x holds {name} in head 2"):
            qattn.quantize(bad)


@pytest.mark.parametrize("shape", [(0, 4, 3, 8), (2, 0, 3, 8), (2, 4, 0, 8)], ids=str)
def test_empty(shape: tuple[int, ...]) -> None:
    values, scale = qattn.quantize(np.zeros(shape, np.float32))
    assert values.shape == shape and scale.shape == shape[2:3] and (scale == 1).all()
