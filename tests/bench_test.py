"""qattn_bench from outside: python3 bench_test.py PATH_OF_QATTN_BENCH. Standard library only."""

import json
import subprocess
import sys
import unittest

BENCH = ""


class MinTimeTest(unittest.TestCase):
    def test_the_flag_suits_the_library(self):
        """Google Benchmark refuses a time that it cannot read, or warns of one without a unit."""
        result = subprocess.run([BENCH, "--benchmark_filter=^no such row$"], capture_output=True,
                                text=True, timeout=600)
        self.assertNotIn("min_time", result.stderr)
        self.assertIn("no such row", result.stderr)  # past the flags: no row matches

    def test_the_value_of_a_user_wins(self):
        listed = subprocess.run([BENCH, "--benchmark_list_tests"], capture_output=True, text=True,
                                timeout=600, check=True).stdout.splitlines()
        row = next(name for name in listed if "fp32_fma" in name or "ceiling" in name)
        times = []
        for seconds in ("0.01", "0.4"):
            result = subprocess.run(
                [BENCH, f"--benchmark_filter=^{row}$", "--benchmark_format=json",
                 f"--benchmark_min_time={seconds}"], capture_output=True, text=True, timeout=600)
            self.assertEqual(result.returncode, 0, result.stderr)
            entry = json.loads(result.stdout)["benchmarks"][0]
            times.append(entry["iterations"])
        self.assertGreater(times[1], times[0])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: bench_test.py PATH_OF_QATTN_BENCH [unittest arguments]")
    BENCH = sys.argv.pop(1)
    unittest.main(verbosity=1)
