"""Every C++ source of the library compiles under -fsanitize=undefined: a constant expression may be
one without it and none with it (GCC bug 71962).

usage: sanitize_test.py SOURCE_FOLDER COMPILER [INCLUDE_FOLDER...]
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

# Kernels are compiled with flags of their own and hold no tables.
FOLDERS = ("capi", "core", "dispatch", "quantize", "verify")


def errors_of(root, compiler, includes, path):
    command = [compiler, "-std=c++20", "-fsyntax-only", "-fsanitize=undefined", "-DQATTN_WITH_CUDA=0",
               f"-I{root / 'src'}", f"-I{root / 'include'}",
               *(f"-isystem{include}" for include in includes), str(path)]
    return subprocess.run(command, capture_output=True, text=True).stderr


def main():
    root, compiler, includes = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    paths = [path for folder in FOLDERS for path in sorted((root / "src" / folder).glob("*.cpp"))]
    if not paths:
        sys.exit(f"no sources in {root}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = list(pool.map(lambda path: errors_of(root, compiler, includes, path), paths))
    faults = 0
    for path, text in zip(paths, errors):
        if "error:" in text:
            print(f"{path.relative_to(root)} does not compile:\n{text}")
            faults += 1
    print(f"{len(paths)} sources, {faults} do not compile under -fsanitize=undefined")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
