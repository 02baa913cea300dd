"""Skips tests that need a GPU where there is none, with the reason."""

from __future__ import annotations

import pytest
import qattn


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `cuda` where the library has no usable CUDA kernel."""
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked or any(status.usable for status in qattn.kernels("cuda")):
        return
    reason = f"no usable CUDA device: {qattn.info().cuda}"
    for item in marked:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the argument `cpu_kernel` once for every CPU kernel usable here."""
    if "cpu_kernel" in metafunc.fixturenames:
        names = [status.name for status in qattn.kernels("cpu") if status.usable]
        metafunc.parametrize("cpu_kernel", names)
