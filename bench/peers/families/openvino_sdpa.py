"""OpenVINO's ScaledDotProductAttention on the CPU, computing in float32 or bfloat16."""

from __future__ import annotations

import functools

import numpy as np
from peer import BFLOAT16, FLOAT32, Missing, Peer
from problems import (
    Data,
    Problem,
    bfloat16_bits,
    float32,
    from_bfloat16_bits,
    grouped,
    ungrouped,
)


def load() -> str:
    try:
        import openvino
    except ImportError as error:
        raise Missing(f"openvino is not installed ({error})") from error
    return f"openvino {openvino.__version__}"


class Attention:
    def __init__(self, bfloat16: bool, problem: Problem, data: Data, threads: int) -> None:
        import openvino
        from openvino import opset13

        self.problem, self.bfloat16 = problem, bfloat16
        kind = openvino.Type.bf16 if bfloat16 else openvino.Type.f32
        convert = bfloat16_bits if bfloat16 else float32
        q, k, v = (convert(x) for x in grouped(problem, data))
        parameters = [opset13.parameter(list(x.shape), kind) for x in (q, k, v)]
        node = opset13.scaled_dot_product_attention(*parameters, causal=problem.causal)
        model = openvino.Model([node.output(0)], parameters)
        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
                    "INFERENCE_PRECISION_HINT": "bf16" if bfloat16 else "f32"}
        self.compiled = openvino.Core().compile_model(model, "CPU", settings)
        self.requests = []
        self.turn = 0
        for copy in range(problem.copies(k.itemsize)):
            arrays = [q, k, v] if copy == 0 else [q, k.copy(), v.copy()]
            request = self.compiled.create_infer_request()
            for i, x in enumerate(arrays):
                request.set_input_tensor(i, openvino.Tensor(x, list(x.shape), kind)
                                         if bfloat16 else openvino.Tensor(x, shared_memory=True))
            self.requests.append((request, arrays))  # the arrays live as long

    def run(self) -> None:
        self.last = self.requests[self.turn][0]
        self.last.infer()
        self.turn = (self.turn + 1) % len(self.requests)

    def output(self) -> np.ndarray:
        tensor = self.last.get_output_tensor(0)
        shape = tuple(tensor.shape)
        if self.bfloat16 and tensor.element_type.to_string() == "bf16":
            out = from_bfloat16_bits(np.asarray(tensor.data).view(np.uint16))
        else:
            out = np.array(tensor.data, np.float32)
        return ungrouped(self.problem, out.reshape(shape))


PEERS = [
    Peer("OpenVINO SDPA float32", "cpu", FLOAT32, load, functools.partial(Attention, False)),
    Peer("OpenVINO SDPA bfloat16", "cpu", BFLOAT16, load, functools.partial(Attention, True))]
