"""Builds and runs a consumer of qattn: from an installation, or with qattn as a subdirectory.

usage: consumer_test.py installed --build BUILD_TREE [--generator NAME]
       consumer_test.py subdirectory --source SOURCE_FOLDER [--generator NAME] [--shared]
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(*command, **options):
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def generator_arguments(generator):
    return ["-G", generator] if generator else []


def build_and_run(source, build, *settings):
    run("cmake", "-S", source, "-B", build, *settings)
    run("cmake", "--build", build, "--parallel", os.cpu_count() or 1)
    run(build / "consumer")


def installed(options, folder):
    """The package must find what it needs by itself, wherever it lies and without CUDA's paths."""
    first = folder / "first"
    run("cmake", "--install", options.build, "--prefix", first)
    prefix = folder / "moved elsewhere"
    shutil.move(first, prefix)
    for path in prefix.rglob("*.cmake"):
        text = path.read_text(encoding="utf-8")
        for word in (str(first), str(options.build.resolve()), "CUDA::", "Eigen3::"):
            if word in text:
                sys.exit(f"{path.name} names {word}, which a consumer does not have")
    build_and_run(HERE / "find_package", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
                  "-DCMAKE_BUILD_TYPE=Debug", *generator_arguments(options.generator))
    for binary in [folder / "build/consumer", *prefix.rglob("libqattn.so*")]:
        needed = subprocess.run(["readelf", "-d", binary], check=True, capture_output=True,
                                text=True).stdout
        if "libcuda" in needed:  # the driver's library, or a shared runtime
            sys.exit(f"{binary.name} does not start without CUDA:\n{needed}")


def subdirectory(options, folder):
    build_and_run(HERE / "add_subdirectory", folder / "build",
                  f"-DQATTN_SOURCE_DIR={options.source.resolve()}", "-DQATTN_CUDA=OFF",
                  "-DCMAKE_BUILD_TYPE=Debug", f"-DBUILD_SHARED_LIBS={'ON' if options.shared else 'OFF'}",
                  *generator_arguments(options.generator))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["installed", "subdirectory"])
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--source", type=pathlib.Path)
    parser.add_argument("--generator")
    parser.add_argument("--shared", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qattn-") as temporary:
        {"installed": installed, "subdirectory": subdirectory}[options.kind](
            options, pathlib.Path(temporary))


if __name__ == "__main__":
    main()
