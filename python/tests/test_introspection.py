"""info, kernels, explain and the stubs' promises."""

from __future__ import annotations

import inspect

import pytest
import qattn
from support import make_problem


def test_info() -> None:
    info = qattn.info()
    assert info.version == qattn.__version__ and info.cpu and info.cpu_threads >= 1
    assert (info.cuda == "available") == bool(info.cuda_devices)


def test_kernels() -> None:
    names = {status.name: status for status in qattn.kernels()}
    assert names["cpu/scalar"].usable and names["cpu/scalar"].reason == ""
    for status in [*qattn.kernels("cpu"), *qattn.kernels("cuda")]:
        assert status.usable == (status.reason == "")
    assert {status.name for status in qattn.kernels("cuda:0")} == {
        status.name for status in qattn.kernels("cuda")
    }
    assert qattn.kernels("best") in (qattn.kernels("cpu"), qattn.kernels("cuda"))
    for wrong in ("tpu", "cuda:x", "cpu:1"):
        with pytest.raises(ValueError, match="device"):
            qattn.kernels(wrong)


def test_explain_names_the_best_kernel() -> None:
    problem = make_problem()
    explanation = qattn.explain(*problem.arrays)
    usable = [status.name for status in qattn.kernels() if status.usable]
    assert explanation.kernel == usable[0] and explanation.error == ""
    assert f"{usable[0]}: chosen" in str(explanation)
    for status in explanation.passed_over:
        assert status.reason in str(explanation)


def test_explain_tells_what_forward_would_raise() -> None:
    problem = make_problem()
    explanation = qattn.explain(*problem.arrays, kernel="cpu/typo")
    assert explanation.kernel == ""
    with pytest.raises(qattn.UnknownKernel) as caught:
        qattn.forward(*problem.arrays, kernel="cpu/typo")
    assert explanation.error == str(caught.value)


def test_signatures_agree() -> None:
    forward = inspect.signature(qattn.forward).parameters
    explain = inspect.signature(qattn.explain).parameters
    assert set(forward) - set(explain) == {"return_lse", "out"}
    assert all(forward[name].default == explain[name].default for name in explain)
