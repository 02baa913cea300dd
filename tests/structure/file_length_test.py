"""No source file is longer than a person reads in one sitting: 400 lines.

usage: file_length_test.py SOURCE_FOLDER
"""

import pathlib
import sys

MAX_LINES = 400
FOLDERS = ("include", "src", "tests", "bench", "examples", "cmake", "python")
SUFFIXES = {".hpp", ".cpp", ".h", ".c", ".cu", ".cuh", ".inc", ".py", ".cmake", ".in"}


def main():
    root = pathlib.Path(sys.argv[1])
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
             if path.is_file() and (path.suffix in SUFFIXES or path.name == "CMakeLists.txt")]
    if not files:
        sys.exit(f"no sources in {root}")
    faults = 0
    for path in files:
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MAX_LINES:
            print(f"{path.relative_to(root)} has {lines} lines (allowed: {MAX_LINES})")
            faults += 1
    print(f"{len(files)} files, {faults} too long")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
