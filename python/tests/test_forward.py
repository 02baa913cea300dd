"""qattn.forward on NumPy arrays: values, results, options."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import qattn
from support import BOUNDS, Problem, make_problem, reference, relative_error

SHAPES = [
    {},
    {"batch": 1, "seq_q": 300, "heads_q": 8, "heads_kv": 2, "head_dim": 64},
    {"batch": 3, "seq_q": 5, "seq_k": 257, "heads_q": 6, "heads_kv": 3, "head_dim": 80},
    {"batch": 1, "seq_q": 7, "seq_k": 3, "head_dim": 33},
    {"batch": 1, "seq_q": 1, "seq_k": 1000, "heads_q": 5, "heads_kv": 1, "head_dim": 128},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("precision", ["high", "fast"])
def test_matches_the_formula(shape: dict[str, int], causal: bool, precision: str) -> None:
    problem = make_problem(**shape)
    out, lse = qattn.forward(*problem.arrays, causal, precision=precision, return_lse=True)
    want, want_lse = reference(problem, causal)
    assert type(out) is np.ndarray and out.dtype == np.float32 and out.shape == problem.q.shape
    assert lse.dtype == np.float32 and lse.shape == want_lse.shape
    assert relative_error(out, want) < BOUNDS[precision]
    # An absolute error of the logarithm is a relative one of the sum of probabilities.
    np.testing.assert_allclose(lse, want_lse, rtol=1e-6, atol=BOUNDS[precision])


def test_every_usable_kernel_can_be_forced(cpu_kernel: str) -> None:
    problem = make_problem()
    out = qattn.forward(*problem.arrays, kernel=cpu_kernel)
    assert relative_error(out, reference(problem)[0]) < BOUNDS["high"]
    assert qattn.explain(*problem.arrays, kernel=cpu_kernel).kernel == cpu_kernel


def test_out_is_filled_and_returned() -> None:
    problem = make_problem()
    out = np.full(problem.q.shape, np.nan, np.float32)
    assert qattn.forward(*problem.arrays, out=out) is out
    np.testing.assert_array_equal(out, qattn.forward(*problem.arrays))


def test_strided_out_leaves_its_gaps_alone() -> None:
    problem = make_problem(batch=1, seq_q=9, heads_q=2, head_dim=16)
    memory = np.full((1, 9, 4, 20), -7, np.float32)
    out = memory[:, :, ::2, 2:18]
    qattn.forward(*problem.arrays, out=out)
    np.testing.assert_array_equal(out, qattn.forward(*problem.arrays))
    memory[:, :, ::2, 2:18] = -7
    assert (memory == -7).all()


def test_softmax_scale() -> None:
    problem = make_problem()
    for scale in (0, 0.05, -0.3, np.float32(0.2)):
        out = qattn.forward(*problem.arrays, softmax_scale=scale)
        want = reference(problem, softmax_scale=float(scale))[0]
        assert relative_error(out, want) < BOUNDS["high"]


def test_rows_without_a_key_are_zero() -> None:
    problem = make_problem(batch=1, seq_q=7, seq_k=3)
    out, lse = qattn.forward(*problem.arrays, return_lse=True)
    assert (out[:, :4] == 0).all() and (lse[..., :4] == -np.inf).all()
    assert (out[:, 4:] != 0).any()


@pytest.mark.parametrize("empty", ["batch", "seq_q", "seq_k"])
def test_empty_tensors(empty: str) -> None:
    extents = {"batch": 2, "seq_q": 3, "seq_k": 4, empty: 0}
    problem = make_problem(**extents)
    out, lse = qattn.forward(*problem.arrays, False, return_lse=True)
    assert out.shape == problem.q.shape and (out == 0).all()
    assert lse.shape == (extents["batch"], 4, extents["seq_q"]) and (lse == -np.inf).all()


def test_threads_do_not_change_a_bit() -> None:
    problem = make_problem(batch=1, seq_q=512)
    want = qattn.forward(*problem.arrays, threads=1)
    for threads in (0, 2, 7):
        np.testing.assert_array_equal(qattn.forward(*problem.arrays, threads=threads), want)


def test_calls_from_many_threads() -> None:
    problems = [make_problem(seed=seed) for seed in range(8)]
    wants = [qattn.forward(*problem.arrays) for problem in problems]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(20):
            if not np.array_equal(qattn.forward(*problems[i].arrays), wants[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(problems))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_interpreter_lock_is_released() -> None:
    problem = make_problem(batch=1, seq_q=1024, heads_q=8, head_dim=128)
    stop = threading.Event()
    ticks: list[float] = []

    def tick() -> None:
        while not stop.is_set():
            time.sleep(0.001)
            ticks.append(time.perf_counter())

    def ticks_amid_a_call() -> int:
        start = time.perf_counter()
        qattn.forward(*problem.arrays, kernel="reference/float64", threads=1)
        quarter = (time.perf_counter() - start) / 4
        return sum(start + quarter < tick < start + 3 * quarter for tick in ticks)

    ticker = threading.Thread(target=tick)
    ticker.start()
    # Had the calls kept the lock, nothing could tick amid any of them. On a busy machine the ticker
    # may miss one for want of a processor, not all.
    seen = any(ticks_amid_a_call() >= 2 for _ in range(20))
    stop.set()
    ticker.join()
    assert seen


@pytest.mark.parametrize("value", [True, False])
def test_booleans_of_numpy(value: bool) -> None:
    arrays = make_problem().arrays
    ours = qattn.forward(*arrays, np.bool_(value), return_lse=np.bool_(value))
    want = qattn.forward(*arrays, value, return_lse=value)
    assert isinstance(ours, tuple) == value
    np.testing.assert_array_equal(ours[0], want[0])


def positive_layouts(problem: Problem) -> dict[str, Problem]:
    """Return the same problem in other memory layouts."""

    def with_tensors(change) -> Problem:  # type: ignore[no-untyped-def]
        q, k, v = (change(x) for x in (problem.q, problem.k, problem.v))
        return Problem(q, k, v, problem.q_scale, problem.k_scale, problem.v_scale)

    def packed(x):  # type: ignore[no-untyped-def]
        return np.concatenate([x, x, x], axis=2)[:, :, x.shape[2] : 2 * x.shape[2]]

    def heads_first(x):  # type: ignore[no-untyped-def]
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)

    def gaps(x):  # type: ignore[no-untyped-def]
        return np.repeat(x, 2, axis=3)[..., ::2]

    def odd_address(x):  # type: ignore[no-untyped-def]
        memory = np.zeros(x.size + 1, np.int8)
        memory[1:] = x.ravel()
        return memory[1:].reshape(x.shape)

    def read_only(x):  # type: ignore[no-untyped-def]
        x = x.copy()
        x.flags.writeable = False
        return x

    return {
        "slice of packed heads": with_tensors(packed),
        "heads first": with_tensors(heads_first),
        "Fortran order": with_tensors(np.asfortranarray),
        "gaps in the last axis": with_tensors(gaps),
        "odd address": with_tensors(odd_address),
        "read-only": with_tensors(read_only),
    }


@pytest.mark.parametrize("layout", list(positive_layouts(make_problem(seq_q=3))))
def test_layouts_give_the_same_bits(layout: str) -> None:
    problem = make_problem(seq_q=75)
    other = positive_layouts(problem)[layout]
    np.testing.assert_array_equal(qattn.forward(*other.arrays), qattn.forward(*problem.arrays))


def test_broadcast_keys() -> None:
    problem = make_problem(batch=3)
    k, v = (np.broadcast_to(x[:1], x.shape) for x in (problem.k, problem.v))
    scales = (problem.q_scale, problem.k_scale, problem.v_scale)
    np.testing.assert_array_equal(
        qattn.forward(problem.q, k, v, *scales),
        qattn.forward(problem.q, k.copy(), v.copy(), *scales),
    )


def test_scales_in_other_layouts() -> None:
    problem = make_problem()
    want = qattn.forward(*problem.arrays)
    swapped = [s.astype(">f4") for s in problem.arrays[3:]]
    gaps = [np.repeat(s, 3)[::3] for s in problem.arrays[3:]]
    misaligned = [
        np.frombuffer(b"x" + s.tobytes(), np.float32, offset=1) for s in problem.arrays[3:]
    ]
    for scales in (swapped, gaps, misaligned):
        np.testing.assert_array_equal(qattn.forward(*problem.arrays[:3], *scales), want)


def test_dimension_of_one_with_a_meaningless_stride() -> None:
    problem = make_problem(batch=1, seq_q=40)
    q = np.lib.stride_tricks.as_strided(problem.q, strides=(-13, *problem.q.strides[1:]))
    np.testing.assert_array_equal(
        qattn.forward(q, *problem.arrays[1:]), qattn.forward(*problem.arrays)
    )
