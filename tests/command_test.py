#!/usr/bin/env python3
"""The command `qattn` from outside: python3 command_test.py PATH_OF_QATTN. Standard library only."""

import json
import math
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))
sys.dont_write_bytecode = True
import command_case
from command_case import (BATCH, HEAD_DIM, HEADS_KV, HEADS_Q, SEQ_K, SEQ_Q, SHAPE_KV, SHAPE_Q,
                          CommandTest, attention, npy_bytes, read_npy, relative_error,
                          without_progress)


class InfoTest(CommandTest):
    def test_lists_every_kernel_with_a_verdict(self):
        info = json.loads(self.run_qattn("info", "--json").stdout)
        text = self.run_qattn("info").stdout
        self.assertIn(info["version"], text)
        self.assertIn(info["cuda"]["status"], text)
        names = {kernel["name"] for kernel in info["kernels"]}
        self.assertLessEqual({"cpu/scalar", "cuda/sm80", "reference/float64"}, names)
        for kernel in info["kernels"]:
            self.assertIn(kernel["name"], text)
            self.assertEqual(kernel["usable"], kernel["reason"] == "", kernel)
        usable = {kernel["name"] for kernel in info["kernels"] if kernel["usable"]}
        self.assertLessEqual({"cpu/scalar", "reference/float64"}, usable)

    def test_says_why_there_is_no_gpu(self):
        result = self.run_qattn("info", "--json", env={"CUDA_VISIBLE_DEVICES": ""})
        info = json.loads(result.stdout)
        self.assertEqual(info["cuda"]["devices"], [])
        self.assertEqual(info["best_device"], "cpu")
        self.assertNotIn(info["cuda"]["status"], ("", "available"))
        for kernel in info["kernels"]:
            if kernel["name"].startswith("cuda/"):
                self.assertFalse(kernel["usable"])
                self.assertNotEqual(kernel["reason"], "")


class RunTest(CommandTest):
    def check_run(self, expected, *arguments, rank=4, bound=5e-4):
        out_path, lse_path = self.path("out.npy"), self.path("lse.npy")
        self.run_qattn("run", *self.int8_arguments(rank), "--out", out_path, "--lse", lse_path,
                       "--repeat", "1", *arguments)
        (out_shape, out), (lse_shape, lse) = read_npy(out_path), read_npy(lse_path)
        lse_full = (BATCH, HEADS_Q, SEQ_Q)
        self.assertEqual(out_shape, SHAPE_Q if rank == 4 else SHAPE_Q[1:])
        self.assertEqual(lse_shape, lse_full if rank == 4 else lse_full[1:])
        self.assertLess(relative_error(out, expected[0][:len(out)]), bound)
        self.assertLess(max(abs(x - y) for x, y in zip(lse, expected[1])), bound * 10)

    def test_int8_output_and_lse(self):
        self.check_run(self.expected())
        self.check_run(self.expected(), "--kernel", "cpu/scalar", "--threads", "1")
        self.check_run(self.expected(), "--kernel", "reference/float64", bound=1e-6)

    def test_options_reach_the_kernel(self):
        self.check_run(self.expected(causal=False), "--mask", "full")
        self.check_run(self.expected(softmax_scale=0.125), "--softmax-scale", "0.125")
        self.check_run(self.expected(), "--precision", "fast", bound=1.5e-2)

    def test_without_batch(self):
        self.check_run(self.expected(), rank=3)

    def test_check_and_json(self):
        report = json.loads(self.run_qattn(
            "run", *self.int8_arguments(), "--check", "--json", "--kernel", "cpu/scalar").stdout)
        self.assertEqual(report["kernel"], "cpu/scalar")
        self.assertEqual(report["device"], "cpu")
        self.assertEqual((report["batch"], report["seq_q"], report["seq_k"], report["heads_q"],
                          report["heads_kv"], report["head_dim"]),
                         (BATCH, SEQ_Q, SEQ_K, HEADS_Q, HEADS_KV, HEAD_DIM))
        self.assertGreater(report["seconds"], 0)
        self.assertLess(report["error_dequantised"]["relative"], 5e-4)
        self.assertNotIn("error_unquantised", report)
        text = self.run_qattn("run", *self.int8_arguments(), "--check", "--kernel", "cpu/scalar")
        self.assertIn("cpu/scalar", text.stdout)
        self.assertIn("against float64 on the dequantised tensors", text.stdout)
        self.assertEqual(without_progress(text.stderr), "")

    def check_fails(self, name, scale, kernel):
        """--check where a scale makes kernel and reference agree on what is no number."""
        self.scales[name][1] = scale
        arguments = ["run", *self.int8_arguments(), "--check", "--kernel", kernel, "--repeat", "1"]
        text = self.run_qattn(*arguments, code=1)
        self.assertIn("FAULT", text.stdout)
        self.assertIn("head", text.stdout)
        report = json.loads(self.run_qattn(*arguments, "--json", code=1).stdout)
        self.assertNotEqual(report["error_dequantised"]["fault"], "")

    def test_check_fails_for_what_is_no_number(self):
        for kernel in ("cpu/scalar", "reference/float64"):
            for name in "qkv":
                for scale in (math.nan, math.inf, -math.inf):
                    with self.subTest(kernel=kernel, name=name, scale=scale):
                        saved = list(self.scales[name])
                        self.check_fails(name, scale, kernel)
                        self.scales[name] = saved

    def test_check_fails_for_an_output_beyond_float32(self):
        self.scales["v"][0] = 2.0 ** 127
        self.int8["v"] = [127] * len(self.int8["v"])
        for kernel in ("cpu/scalar", "reference/float64"):
            self.check_fails("v", 2.0 ** 127, kernel)

    def test_check_takes_rows_without_visible_keys(self):
        arguments = []
        for name, shape in (("q", (4, 1, 8)), ("k", (2, 1, 8)), ("v", (2, 1, 8))):
            values = self.int8[name][:math.prod(shape)]
            arguments += [f"--{name}", self.write(f"{name}.npy", "|i1", shape, values),
                          f"--{name}-scale", self.write(f"{name}_scale.npy", "<f4", (1,), [0.5])]
        self.run_qattn("run", *arguments, "--check")

    def test_floats_are_quantised_per_head(self):
        expected, _ = attention(*(self.floats[name] for name in "qkv"))
        for descr in ("<f4", "<f2"):
            result = self.run_qattn("run", *self.float_arguments(descr), "--check", "--json",
                                    "--out", self.path("out.npy"))
            report = json.loads(result.stdout)
            self.assertLess(report["error_dequantised"]["relative"], 5e-4)
            # Quantising costs about 1/127 of the largest value per entry: far more than the kernel.
            self.assertLess(report["error_unquantised"]["relative"], 0.05)
            self.assertGreater(report["error_unquantised"]["relative"], 5e-4)
            self.assertLess(relative_error(read_npy(self.path("out.npy"))[1], expected), 0.05)

    def test_zero_head_among_others(self):
        self.floats["v"] = [0.0 if i // HEAD_DIM % HEADS_KV == 1 else x
                            for i, x in enumerate(self.floats["v"])]
        self.run_qattn("run", *self.float_arguments(), "--out", self.path("out.npy"), "--check")
        out = read_npy(self.path("out.npy"))[1]
        for i, x in enumerate(out):
            self.assertTrue(math.isfinite(x))
            self.assertEqual(x == 0.0, i // HEAD_DIM % HEADS_Q >= 2)

    def test_kernel_from_the_environment(self):
        result = self.run_qattn("run", *self.int8_arguments(), "--json", "--device", "cpu",
                                env={"QATTN_KERNEL": "cpu/scalar"})
        self.assertEqual(json.loads(result.stdout)["kernel"], "cpu/scalar")


class RefusalTest(CommandTest):
    def replaced(self, option, path):
        arguments = self.int8_arguments()
        arguments[arguments.index(option) + 1] = path
        return ["run", *arguments]

    def test_bad_tensor_files(self):
        size = math.prod(SHAPE_Q)
        good = npy_bytes("|i1", SHAPE_Q, [1] * size)
        cases = {
            "is truncated": good[:-1],
            "is longer than its shape": good + b"x",
            "is not a .npy file": b"hello",
            "Fortran order": npy_bytes("|i1", SHAPE_Q, [1] * size, fortran=True),
            "is big-endian": npy_bytes(">f4", SHAPE_Q, [1.0] * size),
            "dtype '<f8'": npy_bytes("<f8", SHAPE_Q, [1.0] * size),
            "dtype '<i4'": npy_bytes("<i4", SHAPE_Q, [1] * size),
            "dtype '|u1'": npy_bytes("|u1", SHAPE_Q, [1] * size),
            "holds Python objects": good.replace(b"'|i1'", b"'|O' "),
            "format version 9": good[:6] + b"\x09" + good[7:],
            "a .npy header of": good[:6] + b"\x02\x00\xff\xff\xff\x7f" + good[10:],
            "holds no elements": npy_bytes("|i1", (2, 0, 4, 8), []),
            "more than fits memory": npy_bytes("|i1", (2 ** 40, 2 ** 40, 4, 8), []),
            "allowed: (batch, seq, heads, head_dim)": npy_bytes("|i1", (size,), [1] * size),
        }
        for part, content in cases.items():
            with open(self.path("bad.npy"), "wb") as file:
                file.write(content)
            with self.subTest(part):
                self.assert_refused(self.replaced("--q", self.path("bad.npy")), "bad.npy: ", part)
        self.assert_refused(self.replaced("--k", self.path("none.npy")), "none.npy: cannot be opened")
        self.assert_refused(self.replaced("--k", self.folder), self.folder)

    def test_shapes_that_do_not_fit(self):
        for option, shape, part in (
                ("--k", (BATCH, SEQ_K + 1, HEADS_KV, HEAD_DIM), "k and v must have the same shape"),
                ("--q", (BATCH + 1, *SHAPE_Q[1:]), "batch sizes must be equal"),
                ("--q", (*SHAPE_Q[:3], HEAD_DIM + 1), "head dimensions must be equal"),
                ("--q", (BATCH, SEQ_Q, 3, HEAD_DIM), "multiple"),
                ("--q", SHAPE_Q[1:], "the ranks must be equal")):
            with self.subTest(part):
                path = self.write("bad.npy", "|i1", shape, [1] * math.prod(shape))
                self.assert_refused(self.replaced(option, path), "bad.npy", part)

    def test_head_dim_beyond_the_library(self):
        arguments = []
        for name in "qkv":
            arguments += [f"--{name}", self.write(f"{name}.npy", "<f4", (2, 1, 257), [1.0] * 514)]
        self.assert_refused(["run", *arguments], "--q: head_dim is 257", "256")

    def test_scales(self):
        arguments = self.int8_arguments()
        at = arguments.index("--k-scale")
        self.assert_refused(["run", *arguments[:at], *arguments[at + 2:]], "k.npy: is int8", "--k-scale")
        short = self.write("bad.npy", "<f4", (1,), [1.0])
        self.assert_refused(self.replaced("--k-scale", short), "bad.npy: has shape (1,)", "(2,)")
        double = self.write("bad.npy", "<f8", (2,), [1.0, 1.0])
        self.assert_refused(self.replaced("--k-scale", double), "bad.npy: has dtype '<f8'")
        half = self.write("bad.npy", "<f2", (2,), [1.0, 1.0])
        self.assert_refused(self.replaced("--k-scale", half), "bad.npy: has dtype float16")
        scale = self.write("scale.npy", "<f4", (HEADS_Q,), [1.0] * HEADS_Q)
        self.assert_refused(["run", *self.float_arguments(), "--q-scale", scale], "--q-scale")

    def test_mixed_types(self):
        path = self.write("bad.npy", "<f4", SHAPE_KV, self.floats["k"])
        self.assert_refused(self.replaced("--k", path), "bad.npy: is float32 but", "is int8")

    def test_floats_that_are_no_numbers(self):
        for bad in (math.nan, math.inf, -math.inf):
            self.floats["k"][3 * HEAD_DIM] = bad  # token 1, head 1
            self.assert_refused(["run", *self.float_arguments()], "k.npy: head 1 holds")

    def test_kernels_and_devices(self):
        arguments = ["run", *self.int8_arguments()]
        self.assert_refused([*arguments, "--kernel", "cpu/none"],
                            "qattn: --kernel", "cpu/none", "cpu/scalar")
        self.assert_refused([*arguments, "--kernel", "cuda/sm80", "--device", "cpu"],
                            "qattn: --kernel", "cuda/sm80")
        self.assert_refused([*arguments, "--device", "tpu"], "--device", "cuda:N")
        self.assert_refused([*arguments, "--device", "cuda:x"], "--device", "cuda:N")
        self.assert_refused([*arguments, "--device", "cuda:99"], "cuda:99")
        self.assert_refused([*arguments, "--softmax-scale", "nan"], "--softmax-scale is nan")
        self.assert_refused([*arguments, "--softmax-scale", "inf"], "--softmax-scale is inf")

    def test_softmax_scales_that_float32_cannot_hold(self):
        arguments = ["run", *self.int8_arguments(), "--softmax-scale"]
        for text in ("1e40", "-1e40", "1e400", "1e-60", "1e-400", "-1e-60"):
            with self.subTest(text):
                self.assert_refused([*arguments[:-1], f"--softmax-scale={text}"],
                                    f"qattn: --softmax-scale: is {text}, which float32 cannot hold")
        for text in ("", " ", "x", "0.1x"):
            with self.subTest(text):
                self.assert_refused([*arguments, text],
                                    f"qattn: --softmax-scale: is '{text}' (allowed: a number)")
        for text in ("0", "0e-500", "1e-45", "-0.5", "0x1p-3", "3.4028235e38"):
            with self.subTest(text):
                self.run_qattn(*arguments, text, "--repeat", "1")

    def test_empty_arguments(self):
        for option in ("--q", "--k-scale"):
            self.assert_refused(self.replaced(option, ""), f"qattn: {option}: no file is named")
        for option in ("--out", "--lse"):
            self.assert_refused(["run", *self.int8_arguments(), option, ""],
                                f"qattn: {option}: no file is named")
        self.assert_refused(["run", *self.float_arguments(), "--q-scale", ""],
                            "qattn: --q-scale: no file is named")
        for arguments in (["run", *self.int8_arguments()], ["verify", "--quick"]):
            self.assert_refused([*arguments, "--kernel", ""], "qattn: --kernel: no kernel is named")
        self.assert_refused(["demo", "--data", ""], "qattn: --data: no folder is named")

    def test_a_variable_is_not_called_a_flag(self):
        result = self.run_qattn("run", *self.int8_arguments(), "--device", "cpu", code=2,
                                env={"QATTN_KERNEL": "cpu/none"})
        self.assertIn("QATTN_KERNEL", result.stderr)
        self.assertNotIn("--kernel", result.stderr)

    def test_unknown_subcommands(self):
        for arguments in (["fly"], ["fly", "--quick"], ["runs", "--q", "x.npy"], [""]):
            with self.subTest(arguments):
                self.assert_refused(arguments, f"qattn: there is no sub-command '{arguments[0]}'",
                                    "info", "verify", "run", "demo")
        self.assert_refused([], "qattn: a sub-command is missing", "info", "verify", "run", "demo")

    def test_usage(self):
        for arguments in ([], ["fly"], ["run"], ["info", "--fast"],
                          ["run", *self.int8_arguments(), "--mask", "window"],
                          ["run", *self.int8_arguments(), "--precision", "low"],
                          ["run", *self.int8_arguments(), "--repeat", "0"],
                          ["run", *self.int8_arguments(), "--threads", "-1"]):
            with self.subTest(arguments):
                result = self.run_qattn(*arguments, code=2)
                self.assertEqual(result.stdout, "")
                self.assertRegex(result.stderr, r"\Aqattn: [^\n]+\n\Z")  # one line
        self.assertIn("verify", self.run_qattn("--help").stdout)
        self.assertIn("qattn", self.run_qattn("--version").stdout)

    def test_outputs_that_cannot_be_written(self):
        arguments = ["run", *self.int8_arguments()]
        nowhere = self.path("no/such/out.npy")
        self.assert_refused([*arguments, "--out", nowhere], nowhere + ": cannot be written")
        self.assert_refused([*arguments, "--out", self.path("q.npy")], "q.npy: is an input")
        with open(self.path("q.npy"), "rb") as file:
            self.assertEqual(file.read(), npy_bytes("|i1", SHAPE_Q, self.int8["q"]))
        both = self.path("both.npy")
        for other in (both, os.path.join(self.folder, ".", "both.npy"), os.path.relpath(both)):
            self.assert_refused([*arguments, "--out", both, "--lse", other], "both.npy: is --out")
        self.assertFalse(os.path.exists(both))

    @unittest.skipUnless(os.path.exists("/dev/full"), "no file that is always full")
    def test_standard_output_that_cannot_be_written(self):
        for layer, shape in (("q", SHAPE_Q), ("k", SHAPE_KV), ("v", SHAPE_KV)):
            self.write(f"layer00_{layer}.npy", "<f2", shape, self.floats[layer])
        for arguments in (["info"], ["--help"], ["--version"], ["run", *self.int8_arguments()],
                          ["verify", "--quick", "--kernel", "cpu/scalar"],
                          ["verify", "--quick", "--kernel", "cpu/scalar", "--json"],
                          ["demo", "--data", self.folder, "--device", "cpu", "--repeat", "1"]):
            with self.subTest(arguments), open("/dev/full", "w") as full:
                result = self.run_qattn(*arguments, code=2, stdout=full)
                self.assertIn("standard output cannot be written", result.stderr)

    def test_scales_of_other_types(self):
        arguments = self.int8_arguments()
        for descr in ("<f8", "<f2"):
            with self.subTest(descr):
                scales = self.write("other.npy", descr, (SHAPE_Q[-2],), [1.0] * SHAPE_Q[-2])
                at = arguments.index("--q-scale") + 1
                self.assert_refused(["run", *arguments[:at], scales, *arguments[at + 1:]],
                                    "other.npy: has dtype", "(allowed: float32, little-endian)")


class VerifyTest(CommandTest):
    def test_quick_on_one_kernel(self):
        result = self.run_qattn("verify", "--quick", "--kernel", "cpu/scalar", "--json")
        self.assertEqual(without_progress(result.stderr), "")
        report = json.loads(result.stdout)
        self.assertTrue(report["pass"])
        cases = {(entry["case"], entry["precision"]) for entry in report["results"]}
        self.assertEqual(len(cases), len(report["results"]))
        for row in ("normal_sd3_1024", "sink_9_8192", "sink_6.3_equal_72", "minus_128"):
            self.assertIn((row, "high"), cases)
            self.assertIn((row, "fast"), cases)
        for entry in report["results"]:
            self.assertEqual(entry["kernel"], "cpu/scalar")
            self.assertTrue(entry["pass"], entry)

    def test_unknown_and_unusable_kernels(self):
        self.assert_refused(["verify", "--kernel", "cpu/none"], "cpu/none", "cpu/scalar")
        result = subprocess.run([command_case.QATTN, "verify", "--kernel", "cuda/sm80"], capture_output=True,
                                text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertIn("cuda/sm80 is not usable here", result.stderr)


class DemoTest(CommandTest):
    def test_table_over_a_folder(self):
        for layer in ("layer00", "layer01"):
            for name, shape in (("q", SHAPE_Q), ("k", SHAPE_KV), ("v", SHAPE_KV)):
                self.write(f"{layer}_{name}.npy", "<f2", shape, self.floats[name])
        result = self.run_qattn("demo", "--data", self.folder, "--device", "cpu", "--repeat", "1")
        rows = [line for line in result.stdout.splitlines() if line.startswith("cpu/scalar")]
        self.assertEqual(len(rows), 4, result.stdout)  # two precisions, two layers
        for row in rows:
            self.assertIn("(2, 3, 4/2, 8)", row)
            dequantised, unquantised = map(float, row.split()[-2:])
            self.assertLess(dequantised, 1.5e-2)
            self.assertLess(unquantised, 0.1)
        best = self.run_qattn("demo", "--data", self.folder, "--device", "cpu", "--best")
        self.assertEqual(len({line.split()[0] for line in best.stdout.splitlines()
                              if line.startswith("cpu/")}), 1)

    def test_folders_that_do_not_serve(self):
        self.assert_refused(["demo", "--data", self.path("none")], "none: cannot be listed")
        self.assert_refused(["demo", "--data", self.folder], "holds no tensors")
        self.write("a_q.npy", "<f2", SHAPE_Q, self.floats["q"])
        self.assert_refused(["demo", "--data", self.folder], "a_k.npy: cannot be opened")

    def test_head_dim_beyond_the_library_names_the_file(self):
        for name in "qkv":
            self.write(f"a_{name}.npy", "<f4", (2, 1, 257), [1.0] * 514)
        self.assert_refused(["demo", "--data", self.folder, "--device", "cpu"],
                            f"qattn: {self.path('a_q.npy')}: head_dim is 257", "256")

    def test_says_why_no_kernel_is_usable(self):
        self.write("a_q.npy", "<f2", SHAPE_Q, self.floats["q"])
        env = {"CUDA_VISIBLE_DEVICES": ""}
        info = json.loads(self.run_qattn("info", "--json", env=env).stdout)
        result = self.run_qattn("demo", "--data", self.folder, "--device", "cuda", code=2, env=env)
        self.assertRegex(result.stderr,
                         r"\Aqattn: --device: no kernel is usable on cuda:0: [^\n]+\n\Z")
        for kernel in info["kernels"]:
            if kernel["name"].startswith("cuda/"):
                self.assertIn(kernel["reason"], result.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: command_test.py PATH_OF_QATTN [unittest arguments]")
    command_case.QATTN = sys.argv.pop(1)
    unittest.main(verbosity=1)
