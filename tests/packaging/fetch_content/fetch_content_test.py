"""qattn through FetchContent: fetch_content_test.py"""

import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from installed import SOURCE, build_and_run, needed_libraries, run  # noqa: E402


class FetchContent(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qattn-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def test_consumer_gets_the_library_and_nothing_else(self):
        build = self.folder / "build"
        program = build_and_run(HERE, build, f"-DFETCHCONTENT_SOURCE_DIR_QATTN={SOURCE}",
                                "-DFETCHCONTENT_FULLY_DISCONNECTED=ON", "-DQATTN_CUDA=OFF",
                                "-DBUILD_SHARED_LIBS=ON")
        self.assertIn("libqattn.so.0", needed_libraries(program))
        self.assertEqual(list(build.rglob("libqattn.a")), [], "the static library is built too")
        run("cmake", "--install", build, "--prefix", self.folder / "prefix")
        installed = [path.name for path in (self.folder / "prefix").rglob("*") if path.is_file()]
        self.assertEqual(installed, ["consumer"], "qattn installs itself into another project")


if __name__ == "__main__":
    unittest.main()
