"""An installation with both libraries: shared_static_test.py BUILD_TREE"""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from installed import SOURCE, build_and_run, configure, needed_libraries, run  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1))
# What a consumer may lack, toolkits first.
WITHOUT_PACKAGES = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON"
                    for name in ("CUDAToolkit", "OpenMP", "Threads", "Eigen3")]


class Installation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="qattn-"))
        first = cls.folder / "first"
        run("cmake", "--install", BUILD, "--prefix", first)
        cls.prefix = cls.folder / "moved"
        first.rename(cls.prefix)
        cls.library = next(cls.prefix.rglob("libqattn.so"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def consume(self, components, library, *settings):
        """A consumer's program; fails unless it builds and runs."""
        build = self.folder / self.id()
        return build_and_run(HERE, build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                             f"-DCOMPONENTS={components}", f"-DLIBRARY={library}",
                             "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON", *settings)

    def test_shared_component(self):
        program = self.consume("shared", "qattn::qattn", *WITHOUT_PACKAGES)
        self.assertIn("libqattn.so.0", needed_libraries(program))

    def test_static_component(self):
        program = self.consume("static", "qattn::qattn")
        self.assertNotIn("libqattn.so.0", needed_libraries(program))

    def test_both_targets_without_components(self):
        program = self.consume("", "qattn::qattn_static")
        self.assertNotIn("libqattn.so.0", needed_libraries(program))
        shutil.rmtree(program.parent)
        program = self.consume("", "qattn::qattn_shared")
        self.assertIn("libqattn.so.0", needed_libraries(program))

    def test_build_shared_libs_decides(self):
        program = self.consume("", "qattn::qattn", "-DBUILD_SHARED_LIBS=ON")
        self.assertIn("libqattn.so.0", needed_libraries(program))
        shutil.rmtree(program.parent)
        program = self.consume("", "qattn::qattn", "-DBUILD_SHARED_LIBS=OFF")
        self.assertNotIn("libqattn.so.0", needed_libraries(program))

    def test_no_package_but_qattn_is_needed_for_the_shared_library(self):
        program = self.consume("", "qattn::qattn", *WITHOUT_PACKAGES)
        self.assertIn("libqattn.so.0", needed_libraries(program))

    def refusal(self, components, *settings):
        text = configure(HERE, self.folder / self.id(), f"-DCMAKE_PREFIX_PATH={self.prefix}",
                         f"-DCOMPONENTS={components}", "-DLIBRARY=qattn::qattn", *settings,
                         expect_success=False)
        return re.sub(r"\s+", " ", text)

    def test_static_component_says_what_it_lacks(self):
        self.assertIn("the static library needs language CXX with OpenMP",
                      self.refusal("static", *WITHOUT_PACKAGES))

    def test_unknown_component(self):
        self.assertIn("plugin", self.refusal("plugin"))

    def test_program_in_c_alone(self):
        program = build_and_run(HERE / "c_only", self.folder / self.id(),
                                f"-DCMAKE_PREFIX_PATH={self.prefix}",
                                f"-DPROGRAM={SOURCE / 'examples/c/forward.c'}")
        self.assertIn("libqattn.so.0", needed_libraries(program))

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_pkg_config(self):
        environment = {"PATH": "/usr/bin:/bin",
                       "PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig")}
        for package, shared in (("qattn", True), ("qattn-static", False)):
            program = self.folder / package
            flags = run("pkg-config", "--cflags", "--libs", package, env=environment).split()
            run("g++", "-std=c++17", HERE.parent / "consumer.cpp", *flags, "-o", program)
            self.assertEqual("libqattn.so.0" in needed_libraries(program), shared)
            run(program, env={"LD_LIBRARY_PATH": str(self.library.parent)})
        version = run("pkg-config", "--modversion", "qattn", env=environment)
        self.assertEqual(version.split(".")[:2], ["0", "1"])
        # The flags of a fully static link serve the C compiler as well.
        static = run("pkg-config", "--static", "--libs", "qattn", env=environment)
        self.assertIn("-lstdc++", static)

    def test_soname(self):
        self.assertIn("[libqattn.so.0]", run("readelf", "-d", self.library))
        self.assertEqual(self.library.resolve().name, "libqattn.so.0.1.0")

    def test_needed_libraries_are_those_of_every_system(self):
        for name in needed_libraries(self.library):
            self.assertRegex(name, r"^(lib(stdc\+\+|gomp|m|gcc_s|c|pthread|dl|rt)\.so|ld-linux)")

    def exports(self):
        """(name, version node) of what the shared library defines."""
        lines = run("nm", "-DC", "--defined-only", "--with-symbol-versions", self.library)
        symbols = [re.match(r"[0-9a-f]+ [A-Za-z] (.*?)@+(\S+)$", line)
                   for line in lines.splitlines() if " A QATTN" not in line]
        self.assertNotIn(None, symbols, lines)
        return [match.groups() for match in symbols]

    def test_exports_of_the_c_api_are_those_of_its_header(self):
        header = (self.prefix / "include/qattn/qattn.h").read_text(encoding="utf-8")
        declared = re.findall(r"QATTN_C_API[^;(]*?(qattn_\w+)\(", header)
        exported = [name for name, node in self.exports() if node == "QATTN_0"]
        self.assertEqual(sorted(exported), sorted(declared))

    def test_exports_of_the_cpp_api_are_in_its_namespace(self):
        names = {name for name, node in self.exports() if node != "QATTN_0"}
        self.assertEqual({node for _, node in self.exports()}, {"QATTN_0", "QATTN_CXX_0.1"})
        for name in names:
            self.assertRegex(name, r"^((typeinfo|typeinfo name|vtable) for )?qattn::")
            self.assertNotRegex(name, r"::(core|dispatch|cpu|cuda|reference|capi|quantization)::")
        self.assertIn("typeinfo for qattn::Error", names)


if __name__ == "__main__":
    unittest.main()
