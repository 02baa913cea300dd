"""What the tests of installed packages share."""

import os
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]


def run(*command, expect_success=True, **options):
    """Runs a command and returns what it printed; fails with that unless it succeeds (or fails)."""
    command = [str(part) for part in command]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            check=False, **options)
    if (result.returncode == 0) != expect_success:
        raise AssertionError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stdout}")
    return result.stdout


def configure(source, build, *settings, expect_success=True):
    return run("cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Debug", *settings,
               expect_success=expect_success)


def build_and_run(source, build, *settings, program="consumer"):
    """Configures, builds and runs a project; returns its program."""
    configure(source, build, *settings)
    run("cmake", "--build", build, "--parallel", os.cpu_count() or 1)
    run(build / program)
    return build / program


def needed_libraries(binary):
    """The shared libraries that the loader must find for a binary."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", binary))
