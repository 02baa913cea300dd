"""Every public header compiles alone, as C++17 (or C), without a warning, with every compiler given.

usage: headers_test.py SOURCE_FOLDER COMPILER...
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def compile_alone(compiler, include, header, folder):
    """Compiles a file that includes the header twice and nothing else; its messages, or ""."""
    name = header.relative_to(include).as_posix()
    text = f'#include "{name}"\n#include "{name}"\n'
    # A C header must please C++ as well.
    languages = [("c++", ".cpp", "-std=c++17")]
    if header.suffix == ".h":
        languages.append(("c", ".c", "-std=c99"))
    messages = ""
    for language, suffix, standard in languages:
        source = folder / (f"{pathlib.Path(compiler).name}_{name}".replace("/", "_") + suffix)
        source.write_text(text, encoding="utf-8")
        run = subprocess.run(
            [compiler, "-x", language, standard, *WARNINGS, f"-I{include}", "-fsyntax-only",
             str(source)], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            messages += f"{compiler}, {standard}, {name}:\n{run.stderr}"
    return messages


def main():
    include = pathlib.Path(sys.argv[1]) / "include"
    compilers = sys.argv[2:]
    headers = sorted(include.rglob("*.h*"))
    if not headers or not compilers:
        sys.exit("no headers or no compilers")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        broken = folder / "include"
        broken.mkdir()
        (broken / "broken.hpp").write_text("inline std::string f() { return {}; }\n")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(compile_alone, compiler, include, header, folder)
                    for compiler in compilers for header in headers]
            controls = [pool.submit(compile_alone, compiler, broken, broken / "broken.hpp", folder)
                        for compiler in compilers]
        messages = "".join(job.result() for job in jobs)
        for control in controls:
            assert control.result(), "a header that needs another one was accepted"
    print(messages, end="")
    print(f"{len(headers)} headers with {', '.join(compilers)}")
    sys.exit(1 if messages else 0)


if __name__ == "__main__":
    main()
