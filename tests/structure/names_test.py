"""The kernel table and the tree agree; nothing is built for the machine that builds it.

usage: names_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

ROW = re.compile(r"^QATTN_(CPU|CUDA|REFERENCE)_KERNEL\(([a-z0-9_]+)", re.MULTILINE)
FILES = {"CPU": "src/cpu/{}.cpp", "CUDA": "src/cuda/{}.cu", "REFERENCE": "src/reference/{}.cpp"}
# Built code must run elsewhere (a comment may say so).
NATIVE = re.compile(r"-m(arch|cpu|tune)=native|-arch=native|ARCHITECTURES[ \"]+native", re.IGNORECASE)
# Tiers are named by what they can do, not by who makes or brands it.
BRANDS = re.compile(r"haswell|skylake|icelake|cascadelake|sapphire|zen\d|epyc|xeon|ryzen|core_i\d")


def table_faults(table, exists):
    rows = ROW.findall(table)
    if not rows:
        yield "kernels.inc has no rows"
    for kind, name in rows:
        path = FILES[kind].format(name)
        if not exists(path):
            yield f"kernels.inc names {name}, but there is no {path}"
        if BRANDS.search(name):
            yield f"{name} names a brand"
    names = [kind + name for kind, name in rows]
    for name in sorted(set(names)):
        if names.count(name) > 1:
            yield f"{name} is in the table twice"


def native_faults(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("#")[0] if path.suffix in {".cmake", ".txt", ".json", ""} else line
        if NATIVE.search(code):
            yield f"{path}:{number}: builds for the machine at hand: {line.strip()}"


def build_files(root):
    for path in [root / "CMakeLists.txt", root / "CMakePresets.json", root / "dev"]:
        if path.exists():
            yield path
    for folder in ("cmake", "src", "bench", "tests", "examples", "python", ".ci"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and (path.suffix in {".cmake", ".txt", ".in", ".sh"}
                                   or path.parent.name == ".ci"):
                yield path


def self_test():
    assert list(table_faults('QATTN_CPU_KERNEL(avx3, any, "")', lambda path: False))
    assert list(table_faults('QATTN_CPU_KERNEL(zen4, any, "")', lambda path: True))
    assert list(native_faults(pathlib.Path("a.cmake"), "add_compile_options(-march=native)"))
    assert list(native_faults(pathlib.Path("a.cmake"), "set(CMAKE_CUDA_ARCHITECTURES native)"))
    assert not list(native_faults(pathlib.Path("a.cmake"), "# never -march=native"))


def main():
    self_test()
    root = pathlib.Path(sys.argv[1])
    table = (root / "src/dispatch/kernels.inc").read_text(encoding="utf-8")
    faults = list(table_faults(table, lambda path: (root / path).is_file()))
    for path in build_files(root):
        relative = path.relative_to(root)
        faults += native_faults(relative, path.read_text(encoding="utf-8"))
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
