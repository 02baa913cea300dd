#!/usr/bin/env python3
"""What bench/ makes of the rows of qattn_bench: python3 bench_report_test.py SOURCE_FOLDER."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop()).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import report  # noqa: E402
import results  # noqa: E402
import gpu_targets  # noqa: E402
import targets  # noqa: E402

MIDDLE = "causal/B1xS2048xH16xD128"
DECODE = "B1xHq32xHkv32xD128xL32768"


def entry(name, microseconds, **counters):
    return {"name": name + "/real_time", "run_name": name + "/real_time", "run_type": "iteration",
            "real_time": microseconds, "time_unit": "us", **counters}


def run_of(*entries):
    return {"context": {"cpu": "a processor", "threads": "2"}, "benchmarks": list(entries)}


ENTRIES = [
    entry("ceiling/avx512vnni", 10, TOPS=1.5, threads=2),
    entry("ceiling_1/avx512vnni", 10, TOPS=0.75, threads=1),
    entry("ceiling/memory_read", 10, GBps=24.0, threads=2),
    entry(f"peer/eigen_f32/{MIDDLE}", 900, TOPS=0.1, threads=2),
    # Three rounds: the median counts.
    entry(f"forward/cpu/avx512vnni/fast/{MIDDLE}", 100, TOPS=0.9, threads=2),
    entry(f"forward/cpu/avx512vnni/fast/{MIDDLE}", 900, TOPS=0.1, threads=2),
    entry(f"forward/cpu/avx512vnni/fast/{MIDDLE}", 90, TOPS=1.0, threads=2),
    entry(f"forward_1/cpu/avx512vnni/fast/{MIDDLE}", 180, TOPS=0.5, threads=1),
    entry(f"decode/cpu/avx512vnni/high/{DECODE}", 100, TOPS=0.01, GBps=18.0, threads=2),
    {**entry("peer/eigen_f32/full/B1xS8xH1xD8", 0), "error_occurred": True,
     "error_message": "differs"},
]


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, content, name="bench.json"):
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path

    def read(self, *entries):
        return results.read_rows(self.write(run_of(*entries)))


class Rows(Files):
    def test_medians_and_relations(self):
        rows = self.read(*ENTRIES)
        name = f"forward/cpu/avx512vnni/fast/{MIDDLE}"
        self.assertEqual(rows[name], results.Row(100, 0.9, None, 2))
        self.assertEqual(results.ceiling_of(name), "ceiling/avx512vnni")
        self.assertAlmostEqual(results.fraction(rows[name], rows["ceiling/avx512vnni"]), 0.6)
        self.assertAlmostEqual(results.speedup(name, rows[name], rows), 9)
        self.assertEqual(results.selected_kernel(rows), "cpu/avx512vnni")
        self.assertEqual(rows["peer/eigen_f32/full/B1xS8xH1xD8"].error, "differs")

    def test_units_and_aggregates(self):
        rows = self.read(
            {**entry("ceiling/fp32_fma", 2), "time_unit": "ms"},
            {**entry("decode/cpu/avx2/high/x", 3), "run_type": "aggregate",
             "aggregate_name": "median", "name": "decode/cpu/avx2/high/x/real_time_median"},
            {**entry("decode/cpu/avx2/high/x", 4), "run_type": "aggregate",
             "aggregate_name": "mean"})
        self.assertEqual(rows["ceiling/fp32_fma"].microseconds, 2000)
        self.assertEqual(rows["decode/cpu/avx2/high/x"].microseconds, 3)

    def test_time_on_a_processor(self):
        path = self.write(run_of(
            {**entry("ceiling_1/avx2_madd", 40, TOPS=1.0), "cpu_time": 10},
            {**entry("ceiling/avx2_madd", 40, TOPS=1.0), "cpu_time": 10}))
        rows = results.read_rows(path, cpu_time=True)
        self.assertEqual(rows["ceiling_1/avx2_madd"], results.Row(10, 4.0))
        self.assertEqual(rows["ceiling/avx2_madd"], results.Row(40, 1.0))

    def test_decode_is_bound_by_memory(self):
        rows = self.read(*ENTRIES)
        name = f"decode/cpu/avx512vnni/high/{DECODE}"
        self.assertAlmostEqual(results.fraction(rows[name], rows[results.ceiling_of(name)]), 0.75)

    def test_a_record_reads_like_the_run(self):
        run = self.write(run_of(*ENTRIES))
        record = self.folder / "results/cpu.json"
        subprocess.run([sys.executable, str(ROOT / "bench/record.py"), str(run), str(record)],
                       check=True)
        rows, recorded = results.read_rows(run), results.read_rows(record)
        self.assertEqual({name: row for name, row in rows.items() if not row.error}, recorded)
        self.assertEqual(json.loads(record.read_text())["cpu"], "a processor")


class Targets(Files):
    def lines(self, peers=()):
        return {(line[0], line[1], line[2]): line[3:]
                for line in targets.target_lines(self.read(*ENTRIES), list(peers))[1:]}

    def test_reached_near_and_missing(self):
        lines = self.lines()
        self.assertEqual(lines["avx512vnni (1,2048,16,128) of ceiling", "all", "fast"],
                         ["60.0 %", "60.0 %", "yes (100 %)"])
        self.assertEqual(lines["decode 32/32 heads of memory_read", "all", "high"],
                         ["85.0 %", "75.0 %", "near (88 %)"])
        self.assertEqual(lines["avx2 (1,2048,16,128) of ceiling", "1", "high"][2], "no row")

    def test_scaling(self):
        key = ("(1,2048,16,128) threads over one, of ceiling's", "all", "fast")
        self.assertEqual(self.lines()[key][1:], ["90.0 %", "near (95 %)"])

    def test_the_best_bfloat16_peer_counts(self):
        peers = [{"problem": MIDDLE, "threads": threads, "name": name, "fast": fast, "high": 1.0}
                 for threads, name, fast in ((1, "PyTorch SDPA bfloat16", 9.0),
                                             (2, "PyTorch SDPA bfloat16", 8.5),
                                             (2, "oneDNN graph bfloat16 (OpenMP)", 4.0),
                                             (2, "PyTorch SDPA float32", 2.0))]
        lines = self.lines(peers)
        name = "(1,2048,16,128) against bfloat16 peers"
        self.assertEqual(lines[name, "1", "fast"][1:], ["9.00 x", "yes (112 %)"])
        self.assertEqual(lines[name, "all", "fast"][1:], ["4.00 x", "no (50 %)"])


class GpuTargets(Files):
    def test_rates_and_times(self):
        large = "causal/B1xS16384xH16xD128"
        lines = {(line[0], line[1]): line[2:] for line in gpu_targets.gpu_target_lines(self.read(
            entry(f"forward/cuda/sm90/fast/{large}", 1, TOPS=1000.0),
            entry(f"forward/cuda/sm80/high/{large}", 1, TOPS=380.0),
            entry("graph/cuda/sm80/high/causal/B2xS72xH4xD32", 2.0),
            entry("graph/cuda/sm80/fast/causal/B2xS72xH4xD32", 4.0),
            entry("host/cuda/sm80/fast/causal/B2xS72xH4xD32", 0.0)))[1:]}
        self.assertEqual(lines[f"forward/cuda/sm90/{large}", "fast"],
                         ["1050 TFLOP/s", "1000 TFLOP/s", "near (95 %)"])
        self.assertEqual(lines[f"forward/cuda/sm90/{large}", "high"],
                         ["720 TFLOP/s", "", "no row"])
        self.assertEqual(lines[f"forward/cuda/sm80/{large}", "high"][2], "yes (100 %)")
        tiny = "graph/cuda/sm80/causal/B2xS72xH4xD32"
        self.assertEqual(lines[tiny, "high"], ["3 us", "2 us", "yes (150 %)"])
        self.assertEqual(lines[tiny, "fast"][2], "no (75 %)")
        self.assertEqual(lines["host/cuda/sm80/causal/B2xS72xH4xD32", "fast"][2], "yes (100 %)")


class Command(Files):
    def run_report(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        argv, sys.argv = sys.argv, ["report.py", *map(str, arguments)]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = report.main()
        finally:
            sys.argv = argv
        return status, out.getvalue()

    def test_a_failed_row_fails_the_report(self):
        status, text = self.run_report(self.write(run_of(*ENTRIES)))
        self.assertEqual(status, 1)
        self.assertIn("ERROR: differs", text)
        self.assertIn("60.0 %", text)

    def test_targets_and_filter(self):
        path = self.write(run_of(*ENTRIES[:-1]))
        status, text = self.run_report("--targets", "--filter", "avx512vnni", path)
        self.assertEqual(status, 0)
        self.assertIn("yes (100 %)", text)
        self.assertNotIn("decode", text)


if __name__ == "__main__":
    unittest.main()
