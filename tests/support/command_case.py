"""What the tests of the command `qattn` share: files, a reference, a way to run it."""

import ast
import math
import os
import random
import re
import struct
import subprocess
import tempfile
import unittest

QATTN = ""
BATCH, SEQ_Q, SEQ_K, HEADS_Q, HEADS_KV, HEAD_DIM = 2, 3, 5, 4, 2, 8
SHAPE_Q = (BATCH, SEQ_Q, HEADS_Q, HEAD_DIM)
SHAPE_KV = (BATCH, SEQ_K, HEADS_KV, HEAD_DIM)
FORMATS = {"|i1": "b", "<f2": "e", "<f4": "f", "<f8": "d", "<i4": "i", "|u1": "B", ">f4": "f"}


def npy_bytes(descr, shape, values, fortran=False):
    order = ">" if descr.startswith(">") else "<"
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)!r}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    return start + struct.pack(f"{order}{len(values)}{FORMATS[descr]}", *values)


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + length].decode())
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    count = math.prod(header["shape"])
    return header["shape"], struct.unpack(f"<{count}f", data[10 + length:])


def attention(q, k, v, causal=True, softmax_scale=None):
    """Float tensors in the layout of SHAPE_Q and SHAPE_KV; returns the output and lse."""
    scale = softmax_scale or 1 / math.sqrt(HEAD_DIM)
    out, lse = [0.0] * len(q), []
    for b in range(BATCH):
        for h in range(HEADS_Q):
            for i in range(SEQ_Q):
                at = ((b * SEQ_Q + i) * HEADS_Q + h) * HEAD_DIM
                keys = [((b * SEQ_K + j) * HEADS_KV + h * HEADS_KV // HEADS_Q) * HEAD_DIM
                        for j in range(i + SEQ_K - SEQ_Q + 1 if causal else SEQ_K)]
                s = [scale * sum(q[at + c] * k[key + c] for c in range(HEAD_DIM)) for key in keys]
                weights = [math.exp(x - max(s)) for x in s]
                for c in range(HEAD_DIM):
                    out[at + c] = sum(w * v[key + c] for w, key in zip(weights, keys)) / sum(weights)
                lse.append(max(s) + math.log(sum(weights)))
    return out, lse


def dequantise(values, scales):
    return [x * scales[i // HEAD_DIM % len(scales)] for i, x in enumerate(values)]


def without_progress(text):
    """Standard error but what a command says of its progress once it takes two seconds."""
    return "".join(line for line in text.splitlines(keepends=True)
                   if not re.match(r"qattn \w+: \d+/\d+ ", line))


def relative_error(got, wanted):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(got, wanted)) / sum(y * y for y in wanted))


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        generator = random.Random(7)
        self.int8 = {"q": [generator.randint(-128, 127) for _ in range(math.prod(SHAPE_Q))],
                     "k": [generator.randint(-128, 127) for _ in range(math.prod(SHAPE_KV))],
                     "v": [generator.randint(-128, 127) for _ in range(math.prod(SHAPE_KV))]}
        # Powers of two: what Python and float32 hold is the same number.
        self.scales = {"q": [2.0 ** -e for e in (6, 7, 5, 8)], "k": [2.0 ** -7, 2.0 ** -6],
                       "v": [2.0 ** -5, 2.0 ** -3]}
        self.floats = {name: [generator.gauss(0, 1) for _ in values]
                       for name, values in self.int8.items()}

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, descr, shape, values, **options):
        with open(self.path(name), "wb") as file:
            file.write(npy_bytes(descr, shape, values, **options))
        return self.path(name)

    def run_qattn(self, *arguments, code=0, env=None, stdout=subprocess.PIPE):
        result = subprocess.run([QATTN, *arguments], stdout=stdout, stderr=subprocess.PIPE,
                                text=True, timeout=600, env={**os.environ, **(env or {})})
        said = (result.stdout or "")[-2000:] + result.stderr
        self.assertEqual(result.returncode, code, f"{arguments}\n{said}")
        return result

    def int8_arguments(self, rank=4):
        """Writes the int8 tensors; the arguments that name them."""
        arguments = []
        for name, shape in (("q", SHAPE_Q), ("k", SHAPE_KV), ("v", SHAPE_KV)):
            values = self.int8[name]
            if rank == 3:
                shape, values = shape[1:], values[:math.prod(shape[1:])]
            arguments += [f"--{name}", self.write(f"{name}.npy", "|i1", shape, values)]
            scales = self.scales[name]
            arguments += [f"--{name}-scale",
                          self.write(f"{name}_scale.npy", "<f4", (len(scales),), scales)]
        return arguments

    def float_arguments(self, descr="<f4"):
        arguments = []
        for name, shape in (("q", SHAPE_Q), ("k", SHAPE_KV), ("v", SHAPE_KV)):
            arguments += [f"--{name}", self.write(f"{name}.npy", descr, shape, self.floats[name])]
        return arguments

    def expected(self, **options):
        return attention(*(dequantise(self.int8[name], self.scales[name]) for name in "qkv"),
                         **options)

    def assert_refused(self, arguments, *parts, stderr_lines=1):
        """Exit code 2 and one line that holds every part."""
        result = self.run_qattn(*arguments, code=2)
        self.assertEqual(result.stdout, "")
        stderr = without_progress(result.stderr)
        self.assertEqual(stderr.count("\n"), stderr_lines, stderr)
        for part in parts:
            self.assertIn(part, stderr)
