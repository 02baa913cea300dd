"""The packages that cpack makes: cpack_test.py BUILD_TREE"""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from installed import build_and_run, run  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1))
CONSUMER = HERE.parent / "shared_static"


class Packages(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qattn-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def pack(self, generator, pattern):
        run("cpack", "-G", generator, "-B", self.folder / "packages", cwd=BUILD)
        return sorted((self.folder / "packages").glob(pattern))

    def check(self, prefix):
        """Both libraries serve a consumer, and the command runs."""
        for kind in ("shared", "static"):
            build_and_run(CONSUMER, self.folder / kind, f"-DCMAKE_PREFIX_PATH={prefix}",
                          f"-DCOMPONENTS={kind}", "-DLIBRARY=qattn::qattn",
                          "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON")
        self.assertIn("cpu/scalar", run(prefix / "bin/qattn", "info"))

    def test_archive(self):
        archives = self.pack("TGZ", "*.tar.gz")
        self.assertEqual(len(archives), 1, archives)
        self.assertRegex(archives[0].name, r"^qattn-0\.1\.0-linux-\w+(-cuda\d+)?\.tar\.gz$")
        root = self.folder / "root"
        root.mkdir()
        run("tar", "xzf", archives[0], "-C", root)
        (prefix,) = root.iterdir()
        self.check(prefix)

    @unittest.skipUnless(shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps"),
                         "dpkg-deb or dpkg-shlibdeps is not installed")
    def test_debian_packages(self):
        packages = {run("dpkg-deb", "--field", path, "Package").strip(): path
                    for path in self.pack("DEB", "*.deb")}
        self.assertEqual(sorted(packages), ["libqattn-dev", "libqattn0", "qattn"])
        root = self.folder / "root"
        owners = {}
        for name, path in packages.items():
            for line in run("dpkg-deb", "--contents", path).splitlines():
                file = line.split()[5]
                if not file.endswith("/"):
                    self.assertNotIn(file, owners, f"{name} and {owners.get(file)} share a file")
                    owners[file] = name
            run("dpkg-deb", "-x", path, root)
        self.assertEqual([file for file, owner in owners.items() if owner == "libqattn0"],
                         ["./usr/lib/libqattn.so.0", "./usr/lib/libqattn.so.0.1.0"])
        depends = run("dpkg-deb", "--field", packages["libqattn0"], "Depends")
        self.assertIn("libstdc++6", depends)
        self.assertNotRegex(depends, re.compile("cuda|nvidia", re.IGNORECASE))
        self.assertIn("libqattn0 (= 0.1.0)",
                      run("dpkg-deb", "--field", packages["libqattn-dev"], "Depends"))
        self.check(root / "usr")


if __name__ == "__main__":
    unittest.main()
