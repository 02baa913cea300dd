# The extension module. Its functions are documented where the package wraps them.
from typing import Any

version: str

def forward(
    q: Any,
    k: Any,
    v: Any,
    q_scale: Any,
    k_scale: Any,
    v_scale: Any,
    causal: Any,
    softmax_scale: Any,
    window: Any,
    precision: Any,
    return_lse: Any,
    out: Any,
    out_dtype: Any,
    device: Any,
    kernel: Any,
    threads: Any,
    /,
) -> Any: ...
def explain(
    q: Any,
    k: Any,
    v: Any,
    q_scale: Any,
    k_scale: Any,
    v_scale: Any,
    causal: Any,
    softmax_scale: Any,
    window: Any,
    precision: Any,
    out_dtype: Any,
    device: Any,
    kernel: Any,
    threads: Any,
    /,
) -> tuple[str, list[tuple[str, bool, str]], str]: ...
def quantize(x: Any, device: Any, threads: Any, /) -> tuple[Any, Any]: ...
def kernels(cuda: bool, ordinal: int, /) -> list[tuple[str, bool, str]]: ...
def machine_info() -> dict[str, Any]: ...
def best_is_cuda() -> bool: ...
