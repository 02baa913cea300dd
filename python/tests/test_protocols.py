"""Arrays of other kinds than NumPy's: DLPack in its versions, buffers, JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import qattn
from support import make_problem


class Exporter:
    """An array that speaks nothing but DLPack."""

    def __init__(self, array: Any, versioned: bool = True) -> None:
        self.array = array
        self.versioned = versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        if not self.versioned and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**arguments)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned: bool) -> None:
    problem = make_problem(heads_kv=2)
    arrays = [Exporter(x, versioned) for x in problem.arrays]
    out = qattn.forward(*arrays)
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, qattn.forward(*problem.arrays))


def test_dlpack_out_and_strides() -> None:
    problem = make_problem()
    out = np.zeros(problem.q.shape, np.float32)
    given = Exporter(out)
    assert qattn.forward(*problem.arrays, out=given) is given
    np.testing.assert_array_equal(out, qattn.forward(*problem.arrays))
    backwards = Exporter(problem.q[::-1])
    with pytest.raises(ValueError, match="q has a negative stride"):
        qattn.forward(backwards, *problem.arrays[1:])


def test_dlpack_with_gaps() -> None:
    problem = make_problem(head_dim=24)
    arrays = [Exporter(np.repeat(x, 2, axis=-1)[..., ::2]) for x in problem.arrays]
    np.testing.assert_array_equal(qattn.forward(*arrays), qattn.forward(*problem.arrays))
    buffers = [memoryview(exporter.array) for exporter in arrays]
    np.testing.assert_array_equal(qattn.forward(*buffers), qattn.forward(*problem.arrays))


def test_exporter_that_fails_is_named() -> None:
    class Broken(Exporter):
        def __dlpack__(self, **arguments: Any) -> Any:
            raise BufferError("no memory to show")

    problem = make_problem()
    with pytest.raises(ValueError, match=r"k_scale .* no memory to show"):
        arrays = list(problem.arrays)
        arrays[4] = Broken(arrays[4])
        qattn.forward(*arrays)


def test_exporter_on_another_device_is_named() -> None:
    class Elsewhere(Exporter):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (99, 0)

        def __dlpack__(self, **arguments: Any) -> Any:
            raise BufferError("not here")

    problem = make_problem()
    with pytest.raises(ValueError, match=r"\bv\b"):
        qattn.forward(problem.q, problem.k, Elsewhere(problem.v), *problem.arrays[3:])


def test_memoryview() -> None:
    problem = make_problem()
    out = qattn.forward(*(memoryview(x) for x in problem.arrays))
    np.testing.assert_array_equal(out, qattn.forward(*problem.arrays))


def test_memory_is_released() -> None:
    problem = make_problem()
    arrays = [bytearray(x.tobytes()) for x in problem.arrays]
    views = [
        memoryview(a).cast("B").cast("b" if x.dtype == np.int8 else "f", x.shape)
        for a, x in zip(arrays, problem.arrays)
    ]
    qattn.forward(*views)
    with pytest.raises(TypeError):
        qattn.forward(*views[:5], 1.0)
    for view in views:
        view.release()
    for array in arrays:
        array.clear()  # a BufferError while anything still looks at it


def test_subclass_of_ndarray(tmp_path: Any) -> None:
    problem = make_problem()
    memory = np.memmap(tmp_path / "q", np.int8, "w+", shape=problem.q.shape)
    memory[:] = problem.q
    np.testing.assert_array_equal(
        qattn.forward(memory, *problem.arrays[1:]), qattn.forward(*problem.arrays)
    )


def test_jax_on_the_cpu() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    problem = make_problem()
    cpu = jax.devices("cpu")[0]
    arrays = [jax.device_put(x, cpu) for x in problem.arrays]
    out, lse = qattn.forward(*arrays, return_lse=True)
    assert isinstance(out, jax.Array) and out.devices() == {cpu} and isinstance(lse, jax.Array)
    np.testing.assert_array_equal(np.asarray(out), qattn.forward(*problem.arrays))
    with pytest.raises(ValueError, match="out is read-only"):
        qattn.forward(*arrays, out=out)
