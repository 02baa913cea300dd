"""Cross-compiles qattn for 64-bit Arm without CUDA and runs its verification there, emulated.

The build folder is kept between runs, so that a second run compiles only what changed.

usage: aarch64_test.py --source SOURCE_FOLDER --build BUILD_FOLDER [--generator NAME]
"""

import argparse
import json
import os
import pathlib
import subprocess

EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, **options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--generator")
    options = parser.parse_args()
    generator = ["-G", options.generator] if options.generator else []
    run("cmake", "-S", options.source, "-B", options.build, *generator,
        f"-DCMAKE_TOOLCHAIN_FILE={options.source.resolve()}/cmake/aarch64-linux-gnu.cmake",
        "-DCMAKE_BUILD_TYPE=Release", "-DQATTN_CUDA=OFF", "-DQATTN_BUILD_TESTS=OFF",
        "-DQATTN_BUILD_BENCH=OFF", "-DQATTN_BUILD_EXAMPLES=OFF", "-DQATTN_BUILD_COMMAND=ON",
        "-DQATTN_WARNINGS_AS_ERRORS=ON")
    run("cmake", "--build", options.build, "--target", "qattn", "--parallel", os.cpu_count() or 1)
    command = options.build / "qattn"
    header = run("readelf", "-h", command, capture_output=True, text=True).stdout
    assert "AArch64" in header, header
    # More threads than the machine has gain nothing under emulation.
    environment = {**os.environ, "OMP_NUM_THREADS": str(os.cpu_count() or 1)}
    info = run(*EMULATOR, command, "info", "--json", env=environment, capture_output=True,
               text=True).stdout
    assert "cpu/scalar" in json.dumps(json.loads(info)), info
    run(*EMULATOR, command, "verify", "--quick", "--kernel", "cpu/scalar", env=environment)


if __name__ == "__main__":
    main()
