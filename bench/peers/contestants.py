"""Who takes turns: peers in processes of their own, and qattn_bench."""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile

from peer import Missing, Peer
from problems import Problem

HERE = pathlib.Path(__file__).parent
PATIENCE_SECONDS = 180  # for one answer


class Worker:
    """A peer's process. It is stopped between its turns, so that no idle thread of it spins."""

    def __init__(self, peer: Peer, threads: int) -> None:
        self.name = peer.name
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), peer.name, str(threads)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=os.environ | peer.environment(threads))
        self.version = ""

    def start(self) -> None:
        """Waits until the peer is loaded."""
        self.version = self._answer()["version"]
        self._stop()

    def ask(self, **request: object) -> dict:
        self.process.send_signal(signal.SIGCONT)
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            return self._answer()
        except BrokenPipeError as error:
            raise Missing("its process ended") from error
        finally:
            self._stop()

    def _answer(self) -> dict:
        if not select.select([self.process.stdout], [], [], PATIENCE_SECONDS)[0]:
            self.end()
            raise Missing(f"no answer within {PATIENCE_SECONDS} s")
        line = self.process.stdout.readline()
        if not line:
            raise Missing(f"its process ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "missing" in answer:
            raise Missing(answer["missing"])
        return answer

    def _stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Bench:
    """Rows of qattn_bench: ours at both precisions, and its Eigen peer."""

    def __init__(self, binary: pathlib.Path, kernel: str | None) -> None:
        self.binary = binary
        listed = subprocess.run([str(binary), "--benchmark_list_tests"], text=True, check=True,
                                capture_output=True).stdout.splitlines()
        self.rows = {name.rsplit("/", 1)[0] for name in listed}
        # The table of kernels has the best first, and so has the list of rows.
        kernels = ["/".join(name.split("/")[1:3]) for name in listed
                   if name.startswith("forward/cpu/")]
        self.kernel = kernel or next(iter(kernels), None)

    def row_names(self, problem: Problem) -> dict[str, str]:
        """Name in the table -> row."""
        word = "decode" if problem.is_decode else "forward"
        names = {f"qattn {precision}": f"{word}/{self.kernel}/{precision}/{problem.name}"
                 for precision in ("high", "fast")}
        if not problem.is_decode:
            names["Eigen float32"] = f"peer/eigen_f32/{problem.name}"
        return {name: row for name, row in names.items() if row in self.rows}

    def times(self, problem: Problem, threads: int, seconds: float,
              cpu_time: bool) -> dict[str, float]:
        """Name in the table -> seconds."""
        names = self.row_names(problem)
        if not names:
            return {}
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [str(self.binary), f"--benchmark_filter=^({'|'.join(names.values())})/",
                       f"--benchmark_min_time={seconds}", f"--benchmark_out={out.name}",
                       "--benchmark_out_format=json"]
            subprocess.run(command, check=True, capture_output=True,
                           env=os.environ | {"OMP_NUM_THREADS": str(threads)})
            entries = json.loads(pathlib.Path(out.name).read_text())["benchmarks"]
        scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
        clock = "cpu_time" if cpu_time else "real_time"
        found = {entry["name"].rsplit("/", 1)[0]: entry[clock] * scale[entry["time_unit"]]
                 for entry in entries if not entry.get("error_occurred")}
        return {name: found[row] for name, row in names.items() if row in found}
