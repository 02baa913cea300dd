"""Who may include whom: include <- core <- {reference, cpu, cuda} <- dispatch.

usage: include_direction_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

# Folders of src/ (and include/, as "qattn") that a folder may include from, besides its own.
ALLOWED = {
    "qattn": set(),
    "core": {"qattn"},
    "reference": {"qattn", "core"},
    "cpu": {"qattn", "core"},
    "cuda": {"qattn", "core"},
    "dispatch": {"qattn", "core", "reference", "cpu", "cuda"},
    # Front ends and yardsticks see what any user sees.
    "capi": {"qattn"},
    "verify": {"qattn"},
    "command": {"qattn", "verify"},
    # A second entry point beside dispatch.
    "quantize": {"qattn", "core", "cpu", "cuda", "dispatch"},
}

# Third-party headers, by folder. Whatever is not listed is the C++ standard library, the C library
# or the operating system.
THIRD_PARTY = {
    re.compile(r"^Eigen/"): {"reference", "verify", "command"},
    re.compile(r"^xsimd/"): {"cpu"},
    re.compile(r"^CLI/"): {"command"},
    re.compile(r"^(cuda|cub|thrust|cooperative_groups|nv|mma|device_launch)"): {"cuda"},
    re.compile(r"^(gtest|gmock|benchmark)/"): set(),
}
# <vector>, <cstdint>; and the two C headers that a C API needs.
STANDARD = re.compile(r"^([a-z_]+|std(int|def|bool)\.h)$")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
SUFFIXES = {".hpp", ".cpp", ".h", ".c", ".cu", ".cuh", ".inc"}


def faults_of(path, folder, text):
    """Sentences about the includes of one file."""
    for quote, name in INCLUDE.findall(text):
        if quote == '"':
            target = name.split("/")[0]
            if "/" not in name or target not in ALLOWED:
                yield f'{path}: "{name}" is not a path below src/ or include/'
            elif target != folder and target not in ALLOWED[folder]:
                yield f'{path}: {folder} must not include {target} ("{name}")'
        elif folder == "qattn" and not STANDARD.match(name):
            yield f"{path}: a public header must not include <{name}>"
        else:
            for pattern, folders in THIRD_PARTY.items():
                if pattern.match(name) and folder not in folders:
                    yield f"{path}: {folder} must not include <{name}>"


def self_test():
    """The rules must be able to fail."""
    broken = {
        "cpu": '#include "cuda/device.hpp"',
        "cuda": '#include "dispatch/select.hpp"',
        "core": '  #  include "cpu/work.hpp"',
        "qattn": "#include <cuda_runtime.h>",
        "dispatch": "#include <Eigen/Core>",
        "command": '#include "core/problem.hpp"',
        "verify": '#include "measure.hpp"',
    }
    for folder, text in broken.items():
        assert list(faults_of("x", folder, text)), f"{folder}: {text} was accepted"
    assert not list(faults_of("x", "cpu", '#include "core/problem.hpp"\n#include <xsimd/xsimd.hpp>'))


def main():
    self_test()
    root = pathlib.Path(sys.argv[1])
    faults = []
    files = 0
    for top in (root / "include", root / "src"):
        for path in sorted(top.rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            files += 1
            folder = path.relative_to(top).parts[0]
            if folder not in ALLOWED:
                faults.append(f"{path}: the folder {folder} is not known to this test")
                continue
            faults += faults_of(path.relative_to(root), folder, path.read_text(encoding="utf-8"))
    for fault in faults:
        print(fault)
    if files == 0:
        sys.exit(f"no sources in {root}")
    print(f"{files} files, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
