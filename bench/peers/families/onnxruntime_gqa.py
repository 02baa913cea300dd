"""ONNX Runtime's attention operator, com.microsoft.GroupQueryAttention, in float32 on the CPU.

A decode step gives it a cache of all keys but one, in place, and the last key as the new token's.
"""

from __future__ import annotations

import numpy as np
from peer import FLOAT32, Missing, Peer
from problems import Data, Problem, float32


def load() -> str:
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise Missing(f"onnxruntime and onnx are not both installed ({error})") from error
    return f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}"


def model(problem: Problem, past: int) -> bytes:
    from onnx import TensorProto, helper

    def tensor(name: str, kind: int, *shape: int) -> object:
        return helper.make_tensor_value_info(name, kind, shape)

    batch, head_dim = problem.batch, problem.head_dim
    real, whole = TensorProto.FLOAT, TensorProto.INT32
    new = problem.seq_k - past
    cache = (batch, problem.heads_kv, problem.seq_k, head_dim)
    inputs = [tensor("q", real, batch, problem.seq_q, problem.heads * head_dim),
              tensor("k", real, batch, new, problem.heads_kv * head_dim),
              tensor("v", real, batch, new, problem.heads_kv * head_dim)]
    names = ["q", "k", "v", "", ""]
    if past:
        inputs += [tensor("past_k", real, *cache), tensor("past_v", real, *cache)]
        names[3:] = ["past_k", "past_v"]
    inputs += [tensor("lengths", whole, batch), tensor("total", whole, 1)]
    outputs = [tensor("out", real, batch, problem.seq_q, problem.heads * head_dim),
               tensor("present_k", real, *cache), tensor("present_v", real, *cache)]
    node = helper.make_node(
        "GroupQueryAttention", [*names, "lengths", "total"], [o.name for o in outputs],
        domain="com.microsoft", num_heads=problem.heads, kv_num_heads=problem.heads_kv)
    graph = helper.make_graph([node], "attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


class Attention:
    def __init__(self, problem: Problem, data: Data, threads: int) -> None:
        import onnxruntime

        if not problem.causal and not problem.is_decode:
            raise Missing("GroupQueryAttention is causal")
        self.problem = problem
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        past = problem.seq_k - 1 if problem.is_decode else 0
        self.session = onnxruntime.InferenceSession(
            model(problem, past), options, providers=["CPUExecutionProvider"])

        def flat(x: np.ndarray) -> np.ndarray:
            return float32(np.ascontiguousarray(x)).reshape(problem.batch, x.shape[1], -1)

        self.out = np.empty((problem.batch, problem.seq_q, problem.heads * problem.head_dim),
                            np.float32)
        common = {"q": flat(data.q), "k": flat(data.k[:, past:]), "v": flat(data.v[:, past:]),
                  "lengths": np.full(problem.batch, problem.seq_k - 1, np.int32),
                  "total": np.array([problem.seq_k], np.int32)}
        self.bindings = []
        self.turn = 0
        for _ in range(problem.copies(4)):
            caches = {name: float32(np.ascontiguousarray(x.transpose(0, 2, 1, 3)))
                      for name, x in (("k", data.k), ("v", data.v))}
            inputs = dict(common)
            outputs = {"out": self.out}
            for name, cache in caches.items():
                outputs[f"present_{name}"] = cache
                if past:
                    inputs[f"past_{name}"] = cache
            binding = self.session.io_binding()
            for name, x in inputs.items():
                binding.bind_input(name, "cpu", 0, x.dtype, x.shape, x.ctypes.data)
            for name, x in outputs.items():
                binding.bind_output(name, "cpu", 0, x.dtype, x.shape, x.ctypes.data)
            self.bindings.append((binding, inputs, outputs))  # the arrays live as long

    def run(self) -> None:
        self.session.run_with_iobinding(self.bindings[self.turn][0])
        self.turn = (self.turn + 1) % len(self.bindings)

    def output(self) -> np.ndarray:
        problem = self.problem
        return self.out.reshape(problem.batch, problem.seq_q, problem.heads, problem.head_dim)


PEERS = [Peer("ONNX Runtime GQA float32", "cpu", FLOAT32, load, Attention)]
