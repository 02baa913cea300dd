"""What ISA objects and the library let the linker see.

Code compiled for AVX-512 must not stand in for code of the baseline: an ISA object has exactly one
global symbol, no weak ones, and nothing that runs before main(). A library exports names of qattn
alone.

usage: isa_symbols_test.py [--nm NM] [--readelf READELF] --objects FILE... [--static FILE]
                           [--shared FILE]
"""

import argparse
import pathlib
import re
import subprocess
import sys

# A kernel that another one's name begins: qattn_cpu_avx512_run, qattn_cpu_avx512vnni_run.
ENTRY = re.compile(r"^qattn_cpu_([a-z0-9_]+)_run$")
# Runs before main(), or is found by its section.
INITIALISERS = re.compile(r"^\.(init_array|ctors|preinit_array|init|fini_array|dtors)\b")
# What a shared library may export: C++ names within qattn (typeinfo, vtables and guard variables of
# them included) and the C API. In an archive, also nvcc's host stub of a kernel in namespace qattn.
EXPORTED = re.compile(r"^(qattn::|(typeinfo|typeinfo name|vtable|guard variable) for qattn::|qattn_)")
DEVICE_STUB = re.compile(r"^__device_stub__ZN5qattn")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parse_symbols(text):
    """(type letter, name) of every line of nm's portable format; archive headings are left out."""
    symbols = []
    for line in text.splitlines():
        match = re.match(r"^(.+?) ([a-zA-Z?]) *([0-9a-f ]*)$", line)
        if match:
            symbols.append((match.group(2), match.group(1)))
    return symbols


def symbols_of(nm, path, *options):
    return parse_symbols(output(nm, "--format=posix", *options, str(path)))


def object_faults(symbols, sections):
    """What is wrong with an ISA object."""
    defined_global = [name for kind, name in symbols if kind.isupper() and kind not in "UNWV"]
    if len(defined_global) != 1 or not ENTRY.match(defined_global[0]):
        yield f"global symbols: {', '.join(defined_global) or 'none'} (allowed: one entry point)"
    for kind, name in symbols:
        if kind in "WwVvu":
            yield f"weak or unique symbol: {name}"
    for section in sections:
        if INITIALISERS.match(section):
            yield f"section {section}: something would run before main()"


def sections_of(readelf, path):
    text = output(readelf, "--section-headers", "--wide", str(path))
    return re.findall(r"^\s*\[\s*\d+\]\s+(\S+)", text, re.MULTILINE)


def static_faults(symbols):
    """What an archive must not define globally. Weak names of the standard library are the baseline's
    own instantiations; ISA objects have none (checked for each object)."""
    for kind, name in symbols:
        if kind.isupper() and kind not in "UNWVu" and not (
                EXPORTED.match(name) or DEVICE_STUB.match(name)):
            yield f"global symbol outside qattn: {name}"


def shared_faults(symbols):
    for kind, name in symbols:
        # Kind A: the names of the symbol versions themselves.
        if kind not in "UwA" and not EXPORTED.match(name):
            yield f"exported symbol outside qattn: {name}"


def self_test():
    """The rules must be able to fail."""
    good = [("T", "qattn_cpu_avx2_run"), ("t", "helper"), ("U", "memcpy")]
    assert not list(object_faults(good, [".text"]))
    assert list(object_faults(good + [("T", "helper2")], [".text"]))
    assert list(object_faults(good + [("W", "std::max")], [".text"]))
    assert list(object_faults([], [".text"]))
    assert list(object_faults(good, [".init_array"]))
    assert list(static_faults([("T", "helper()")]))
    assert list(shared_faults([("W", "std::vector<int>::push_back(int)")]))
    assert not list(shared_faults([("T", "qattn::forward()"), ("V", "vtable for qattn::Error")]))
    assert parse_symbols("operator new(unsigned long) U         \nx T 0 1a\n") == [
        ("U", "operator new(unsigned long)"), ("T", "x")]


def main():
    self_test()
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--objects", nargs="+", type=pathlib.Path, required=True)
    parser.add_argument("--static", type=pathlib.Path)
    parser.add_argument("--shared", type=pathlib.Path)
    options = parser.parse_args()
    faults = []
    for path in options.objects:
        found = object_faults(symbols_of(options.nm, path), sections_of(options.readelf, path))
        faults += [f"{path.name}: {fault}" for fault in found]
    if options.static:
        found = static_faults(symbols_of(options.nm, options.static, "--demangle", "--defined-only"))
        faults += [f"{options.static.name}: {fault}" for fault in found]
    if options.shared:
        found = shared_faults(
            symbols_of(options.nm, options.shared, "--demangle", "--defined-only", "--dynamic"))
        faults += [f"{options.shared.name}: {fault}" for fault in found]
    for fault in faults:
        print(fault)
    print(f"{len(options.objects)} ISA objects, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
