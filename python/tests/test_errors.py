"""Misuse: every error is a qattn.Error and a built-in one, names the argument, writes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import qattn
from support import make_problem

PROBLEM = make_problem()
Q, K, S = PROBLEM.q, PROBLEM.k, PROBLEM.q_scale
READ_ONLY = np.zeros(Q.shape, np.float32)
READ_ONLY.flags.writeable = False

WRONG_TYPE: dict[str, tuple[str, dict[str, Any]]] = {
    "uint8 tensor": ("q", {"q": Q.view(np.uint8)}),
    "int16 tensor": ("k", {"k": K.astype(np.int16)}),
    "bool tensor": ("v", {"v": Q.view(np.bool_)}),
    "float tensor": ("v", {"v": K.astype(np.float32)}),
    "float64 scale": ("q_scale", {"q_scale": S.astype(np.float64)}),
    "float16 scale": ("k_scale", {"k_scale": S.astype(np.float16)}),
    "number as scale": ("v_scale", {"v_scale": 0.02}),
    "list": ("q", {"q": Q.tolist()}),
    "None": ("k", {"k": None}),
    "bytes": ("v", {"v": "text"}),
    "object array": ("q", {"q": Q.astype(object)}),
    "masked array": ("q", {"q": np.ma.masked_array(Q)}),
    "structured scale": ("q_scale", {"q_scale": np.zeros(4, [("a", "f4")])}),
    "float64 out": ("out", {"out": np.zeros(Q.shape)}),
    "big-endian int16": ("q", {"q": Q.astype(">i2")}),
    "number as causal": ("causal", {"causal": 1}),
    "array as causal": ("causal", {"causal": np.array(True)}),
    "number as precision": ("precision", {"precision": 8}),
    "text as softmax_scale": ("softmax_scale", {"softmax_scale": "0.1"}),
    "number as window": ("window", {"window": 5}),
    "float in window": ("window", {"window": (1.5, 0)}),
    "number as kernel": ("kernel", {"kernel": 3}),
    "float as threads": ("threads", {"threads": 1.5}),
    "text as return_lse": ("return_lse", {"return_lse": "yes"}),
}

WRONG_VALUE: dict[str, tuple[str, dict[str, Any]]] = {
    "negative stride": ("q", {"q": Q[::-1]}),
    "negative last stride": ("k", {"k": K[..., ::-1]}),
    "negative scale stride": ("q_scale", {"q_scale": S[::-1]}),
    "three dimensions": ("q", {"q": Q[0]}),
    "five dimensions": ("v", {"v": K[None]}),
    "scale of no dimension": ("q_scale", {"q_scale": S[0]}),
    "scalar array": ("k_scale", {"k_scale": np.array(0.1, np.float32)}),
    "short scale": ("v_scale", {"v_scale": S[:3]}),
    "long scale": ("k_scale", {"k_scale": np.repeat(S, 2)}),
    "other head_dim": ("k", {"k": K[..., :16]}),
    "other batch": ("k", {"k": K[:1]}),
    "other length of v": ("v", {"v": K[:, :5]}),
    "heads no multiple": (
        "heads",
        {"k": K[:, :, :3], "v": K[:, :, :3], "k_scale": S[:3], "v_scale": S[:3]},
    ),
    "small out": ("out", {"out": np.zeros((2, 72, 4, 31), np.float32)}),
    "flat out": ("out", {"out": np.zeros(Q.size, np.float32)}),
    "read-only out": ("out", {"out": READ_ONLY}),
    "out backwards": ("out", {"out": np.zeros(Q.shape, np.float32)[::-1]}),
    "out in Fortran order": ("out", {"out": np.zeros(Q.shape, np.float32, "F")}),
    "big-endian out": ("out", {"out": np.zeros(Q.shape, ">f4")}),
    "broadcast out": (
        "out",
        {
            "out": np.lib.stride_tricks.as_strided(
                np.zeros((72, 4, 32), np.float32), Q.shape, (0, 512, 128, 4)
            )
        },
    ),
    "infinite softmax_scale": ("softmax_scale", {"softmax_scale": float("inf")}),
    "right bound with causal": ("window", {"window": (8, 5)}),
    "unknown precision": ("precision", {"precision": "low"}),
    "unknown device": ("device", {"device": "tpu"}),
    "malformed device": ("device", {"device": "cuda:-1"}),
    "negative threads": ("threads", {"threads": -1}),
    "unknown kernel": ("kernel", {"kernel": "cpu/avx3"}),
}


def call(changes: dict[str, Any]) -> Any:
    """Call forward with some arguments changed."""
    names = ("q", "k", "v", "q_scale", "k_scale", "v_scale")
    return qattn.forward(**{**dict(zip(names, PROBLEM.arrays)), **changes})


@pytest.mark.parametrize("case", list(WRONG_TYPE))
def test_wrong_types(case: str) -> None:
    name, changes = WRONG_TYPE[case]
    with pytest.raises(TypeError, match=rf"\b{name}\b") as caught:
        call(changes)
    assert isinstance(caught.value, qattn.Error)


@pytest.mark.parametrize("case", list(WRONG_VALUE))
def test_wrong_values(case: str) -> None:
    name, changes = WRONG_VALUE[case]
    with pytest.raises(ValueError, match=rf"\b{name}\b") as caught:
        call(changes)
    assert isinstance(caught.value, qattn.Error)


@pytest.mark.parametrize("value", [1e300, -1e40, 1e-60, -1e-60, 10**300])
def test_softmax_scales_that_float32_cannot_hold(value: float) -> None:
    with pytest.raises(ValueError) as caught:
        call({"softmax_scale": value})
    assert str(caught.value).startswith(f"softmax_scale is {value!r}, which float32 cannot hold")


def test_an_integer_beyond_float64_as_softmax_scale() -> None:
    with pytest.raises(ValueError, match="softmax_scale is an integer that float32 cannot hold"):
        call({"softmax_scale": 10**5000})


@pytest.mark.parametrize("value", [0, 1e-45, -0.5, 3.4028235e38])
def test_softmax_scales_at_the_ends_of_float32(value: float) -> None:
    call({"softmax_scale": value})


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"kernel": "cpu/avx3"}, 'kernel is "cpu/avx3"'),
        ({"softmax_scale": float("inf")}, "softmax_scale is inf"),
    ],
    ids=["kernel", "softmax_scale"],
)
def test_arguments_have_their_names_in_python(changes: dict[str, Any], start: str) -> None:
    with pytest.raises(ValueError) as caught:
        call(changes)
    assert str(caught.value).startswith(start)


def test_a_window_has_its_name_in_python() -> None:
    with pytest.raises(NotImplementedError, match=r"window \(allowed: None\)") as caught:
        call({"window": (8, 0)})
    assert "options." not in str(caught.value)
    explanation = qattn.explain(*PROBLEM.arrays, window=(8, 0))
    assert "window (allowed: None)" in explanation.error
    assert "options." not in str(explanation)
    forced = qattn.explain(*PROBLEM.arrays, kernel="cpu/avx3")
    assert forced.error.startswith('kernel is "cpu/avx3"')


def test_nothing_is_written_on_error() -> None:
    out = np.full(Q.shape, 3, np.float32)
    with pytest.raises(ValueError, match="softmax_scale"):
        call({"out": out, "softmax_scale": float("nan")})
    assert (out == 3).all()


def test_out_over_an_input() -> None:
    memory = np.zeros(Q.size * 4, np.int8)
    with pytest.raises(ValueError, match="out overlaps q"):
        call(
            {
                "q": memory[: Q.size].reshape(Q.shape),
                "out": memory.view(np.float32).reshape(Q.shape),
            }
        )


@pytest.mark.parametrize(
    "changes",
    [{"window": (8, 0)}, {"q_scale": np.ones((2, 72, 4), np.float32)}],
    ids=["window", "scales per token"],
)
def test_unimplemented_requests_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match="not implemented") as caught:
        call(changes)
    assert isinstance(caught.value, qattn.Unsupported)


def test_forced_kernel_of_another_processor() -> None:
    unusable = [status.name for status in qattn.kernels("cpu") if not status.usable]
    for name in unusable:
        with pytest.raises(qattn.KernelUnusable, match=name):
            call({"kernel": name})


def test_missing_gpu() -> None:
    if any(status.usable for status in qattn.kernels("cuda")):
        pytest.skip("there is a GPU here")
    with pytest.raises(qattn.DeviceUnavailable, match="cuda:0"):
        call({"device": "cuda"})
    with pytest.raises(RuntimeError):
        call({"device": "cuda:7"})
    np.testing.assert_array_equal(call({"device": "best"}), call({}))


def test_every_class_is_exported_and_fits_a_builtin() -> None:
    classes = {
        qattn.InvalidArgument: ValueError,
        qattn.ArgumentTypeError: TypeError,
        qattn.Unsupported: NotImplementedError,
        qattn.UnknownKernel: ValueError,
        qattn.KernelUnusable: RuntimeError,
        qattn.DeviceUnavailable: RuntimeError,
        qattn.OutOfMemory: MemoryError,
        qattn.CudaError: RuntimeError,
    }
    for ours, builtin in classes.items():
        assert issubclass(ours, qattn.Error) and issubclass(ours, builtin)
