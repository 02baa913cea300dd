"""All peers. A family is one file; its imports of the peer's package happen in `load`."""

from families import (
    fp8,
    onednn,
    onnxruntime_gqa,
    openvino_sdpa,
    torch_cpu,
    torch_cuda,
    torchao_int8,
)
from peer import Peer

ALL: list[Peer] = [
    *torch_cpu.PEERS, *onednn.PEERS, *torchao_int8.PEERS, *onnxruntime_gqa.PEERS,
    *openvino_sdpa.PEERS, *torch_cuda.PEERS, *fp8.PEERS]


def by_name(name: str) -> Peer:
    return next(peer for peer in ALL if peer.name == name)
