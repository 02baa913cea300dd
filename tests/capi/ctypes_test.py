"""The C API through ctypes, with the standard library alone: ctypes_test.py LIBQATTN.SO"""

import ctypes
import math
import os
import struct
import subprocess
import sys
import threading
import unittest
from ctypes import (POINTER, byref, c_char_p, c_float, c_int8, c_int32, c_int64, c_size_t,
                    c_void_p, sizeof)

OK, INVALID_ARGUMENT, UNSUPPORTED, UNKNOWN_KERNEL = 0, 1, 2, 3
DEVICE_UNAVAILABLE = 5
MASK_CAUSAL, MASK_FULL = 0, 1


class Device(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("kind", c_int32), ("ordinal", c_int32),
                ("stream", c_void_p)]


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("shape", c_int64 * 4),
                ("strides", c_int64 * 3), ("scale", c_void_p), ("dtype", c_int32),
                ("granularity", c_int32), ("scale_block_tokens", c_int64),
                ("zero_point", c_void_p), ("layout", c_int32), ("reserved", c_int32),
                ("sequences", c_int64), ("offsets", c_void_p), ("lengths", c_void_p),
                ("block_table", c_void_p), ("block_table_stride", c_int64)]


class Output(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("shape", c_int64 * 4),
                ("strides", c_int64 * 3), ("scale", c_void_p), ("dtype", c_int32),
                ("granularity", c_int32), ("scale_block_tokens", c_int64)]


UNLOAD = """
import _ctypes, ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
count = 300 * 4 * 64
x, scale, out = (ctypes.c_int8 * count)(), (ctypes.c_float * 4)(), (ctypes.c_float * count)()
sizes = [ctypes.c_int64(n) for n in (1, 300, 4, 64)]
device = ctypes.create_string_buffer(24)  # size, kind, ordinal, stream
assert library.qattn_device_cpu(device, ctypes.c_size_t(24)) == 0
assert library.qattn_forward_contiguous(device, x, x, x, scale, scale, scale, out, *sizes, 1) == 0
_ctypes.dlclose(library._handle)
time.sleep(0.05)
"""

Task = ctypes.CFUNCTYPE(None, c_void_p, c_int64)
Executor = ctypes.CFUNCTYPE(None, c_void_p, c_int64, Task, c_void_p)


class Options(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("mask", c_int32), ("precision", c_int32),
                ("window_left", c_int64), ("window_right", c_int64), ("mask_data", c_void_p),
                ("mask_strides", c_int64 * 3), ("has_softmax_scale", c_int32),
                ("softmax_scale", c_float), ("kernel", c_char_p), ("lse", c_void_p),
                ("workspace", c_void_p), ("workspace_bytes", c_size_t), ("threads", c_int32),
                ("soft_cap", c_float), ("executor", Executor), ("executor_context", c_void_p),
                ("alibi_slopes", c_void_p), ("sinks", c_void_p)]


def load(path):
    library = ctypes.CDLL(path)
    for name in ("qattn_last_error_message", "qattn_version", "qattn_kernel_list_name",
                 "qattn_explanation_kernel"):
        getattr(library, name).restype = c_char_p
    library.qattn_kernel_list_size.restype = c_size_t
    library.qattn_kernel_list_size.argtypes = [c_void_p]
    library.qattn_kernel_list_name.argtypes = [c_void_p, c_size_t]
    library.qattn_kernel_list_free.argtypes = [c_void_p]
    library.qattn_options_init.argtypes = [POINTER(Options), c_size_t]
    library.qattn_tensor_init.argtypes = [POINTER(Tensor), c_size_t, c_void_p, c_int64, c_int64,
                                          c_int64, c_int64, c_void_p]
    library.qattn_output_init.argtypes = [POINTER(Output), c_size_t, c_void_p, c_int64, c_int64,
                                          c_int64, c_int64]
    return library


library = None


def message():
    return library.qattn_last_error_message().decode()


class Problem:
    """Two queries, three keys, one head of two channels, all scales 1."""

    def __init__(self):
        self.q = (c_int8 * 4)(1, 2, -3, 4)
        self.k = (c_int8 * 6)(1, 0, 0, 1, 2, -1)
        self.v = (c_int8 * 6)(10, 20, -30, 40, 50, -128)
        self.scale = c_float(1.0)
        self.out = (c_float * 4)(*[math.nan] * 4)
        self.device = Device()
        assert library.qattn_device_cpu(byref(self.device), c_size_t(sizeof(Device))) == OK
        self.tensors = [Tensor(), Tensor(), Tensor()]
        for view, data, seq in zip(self.tensors, (self.q, self.k, self.v), (2, 3, 3)):
            assert library.qattn_tensor_init(byref(view), sizeof(view), ctypes.addressof(data),
                                             1, seq, 1, 2, ctypes.addressof(self.scale)) == OK
        self.output = Output()
        assert library.qattn_output_init(byref(self.output), sizeof(Output),
                                         ctypes.addressof(self.out), 1, 2, 1, 2) == OK
        self.options = Options()
        assert library.qattn_options_init(byref(self.options), sizeof(Options)) == OK

    def run(self):
        return library.qattn_forward(byref(self.device), *map(byref, self.tensors),
                                     byref(self.output), byref(self.options))

    def expected(self, causal):
        result = []
        for i in range(2):
            keys = range(i + 2 if causal else 3)
            scores = [sum(self.q[2 * i + d] * self.k[2 * j + d] for d in range(2)) / math.sqrt(2)
                      for j in keys]
            weights = [math.exp(s - max(scores)) for s in scores]
            result += [sum(w * self.v[2 * j + d] for w, j in zip(weights, keys)) / sum(weights)
                       for d in range(2)]
        return result


class Ctypes(unittest.TestCase):
    def assert_close(self, got, expected):
        for g, e in zip(got, expected, strict=True):
            self.assertAlmostEqual(g, e, delta=0.05)

    def test_forward(self):
        problem = Problem()
        for mask, causal in ((MASK_CAUSAL, True), (MASK_FULL, False)):
            problem.options.mask = mask
            self.assertEqual(problem.run(), OK, message())
            self.assert_close(problem.out, problem.expected(causal))

    def test_lse_and_scale(self):
        problem = Problem()
        lse = (c_float * 2)()
        problem.options.lse = ctypes.addressof(lse)
        problem.options.has_softmax_scale = 1
        problem.options.softmax_scale = 0.0
        self.assertEqual(problem.run(), OK, message())
        self.assert_close(lse, [math.log(2), math.log(3)])

    def test_executor_in_python(self):
        problem = Problem()
        calls = []

        def run(context, tasks, task, argument):
            for i in range(tasks):
                task(argument, i)
                calls.append(i)

        problem.options.executor = Executor(run)
        self.assertEqual(problem.run(), OK, message())
        self.assertTrue(calls)
        self.assert_close(problem.out, problem.expected(True))

    def test_errors(self):
        problem = Problem()
        problem.options.kernel = b"cpu/abacus"
        self.assertEqual(problem.run(), UNKNOWN_KERNEL)
        self.assertIn("cpu/abacus", message())
        problem.options.kernel = None
        problem.options.soft_cap = 20.0
        self.assertEqual(problem.run(), UNSUPPORTED)
        problem.options.soft_cap = 0.0
        problem.tensors[1].data = None
        self.assertEqual(problem.run(), INVALID_ARGUMENT)
        self.assertIn("k.data", message())
        problem.device.kind, problem.device.ordinal = 1, 999
        problem.tensors[1].data = ctypes.addressof(problem.k)
        self.assertEqual(problem.run(), DEVICE_UNAVAILABLE)

    def test_message_belongs_to_the_thread(self):
        problem = Problem()
        problem.options.threads = -1
        self.assertEqual(problem.run(), INVALID_ARGUMENT)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(message()))
        thread.start()
        thread.join()
        self.assertEqual(seen, [""])
        self.assertIn("options.threads", message())

    def test_struct_of_a_later_version(self):
        problem = Problem()
        size = sizeof(Options) + 16
        memory = (ctypes.c_char * size).from_buffer_copy(bytes(problem.options) + bytes(16))
        later = Options.from_buffer(memory)
        later.struct_size = size
        problem.options = later
        self.assertEqual(problem.run(), OK, message())
        memory[size - 1] = 1
        self.assertEqual(problem.run(), INVALID_ARGUMENT)
        self.assertIn("does not know", message())

    def test_kernels(self):
        problem = Problem()
        handle = c_void_p()
        self.assertEqual(library.qattn_kernels(byref(problem.device), byref(handle)), OK)
        names = [library.qattn_kernel_list_name(handle, i).decode()
                 for i in range(library.qattn_kernel_list_size(handle))]
        library.qattn_kernel_list_free(handle)
        self.assertIn("cpu/scalar", names)
        self.assertIn("reference/float64", names)

    def test_quantize(self):
        class FloatTensor(ctypes.Structure):
            _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("shape", c_int64 * 4),
                        ("strides", c_int64 * 3), ("dtype", c_int32), ("reserved", c_int32)]

        class Quantized(ctypes.Structure):
            _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("strides", c_int64 * 3),
                        ("scale", c_void_p), ("granularity", c_int32), ("reserved", c_int32),
                        ("scale_block_tokens", c_int64)]

        x = struct.pack("6f", 127.0, -1.5, 0.5, 2.5, -127.0, 0.0)
        data = ctypes.create_string_buffer(x, len(x))
        out, scale = (c_int8 * 6)(), c_float()
        source, target = FloatTensor(), Quantized()
        source.struct_size, source.dtype = sizeof(FloatTensor), 2
        source.data = ctypes.addressof(data)
        source.shape[:] = (1, 3, 1, 2)
        source.strides[:] = (6, 2, 2)
        target.struct_size, target.granularity = sizeof(Quantized), 1
        target.data, target.scale = ctypes.addressof(out), ctypes.addressof(scale)
        target.strides[:] = (6, 2, 2)
        status = library.qattn_quantize(byref(Problem().device), byref(source), byref(target),
                                        None)
        self.assertEqual(status, OK, message())
        self.assertEqual(scale.value, 1.0)
        self.assertEqual(list(out), [127, -2, 0, 2, -127, 0])

    def test_unloading(self):
        """Threads of OpenMP outlive a call: closing the library must not take their code away."""
        done = subprocess.run([sys.executable, "-c", UNLOAD, library._name], check=False,
                              env={**os.environ, "OMP_NUM_THREADS": "2"})
        self.assertEqual(done.returncode, 0)

    def test_version(self):
        self.assertRegex(library.qattn_version().decode(), r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    library = load(sys.argv.pop(1))
    unittest.main()
