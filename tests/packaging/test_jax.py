"""Builds the wheel of greyhound-jax, looks at what is in it, and runs its tests in an environment that has JAX.

Everything lies under --work, and the environment stays there, so that a second run downloads nothing. Exits with 77
and a reason where there is no way to get JAX or the tools. The library under test is the one that the environment
variable GREYHOUND_LIBRARY names. Standard library only.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unittest
import zipfile
from pathlib import Path

import check_library
import declarations
from test_wheel import NO_INDEX, run, skip


class Workplace:
    """Where things lie, and an environment with JAX and what the build needs."""

    def __init__(self, source, folder):
        self.source = source
        self.project = source / "bindings" / "jax"
        self.folder = folder
        self.tools = folder / "tools"
        self.python = self.tools / "bin" / "python"
        self.site = folder / "site"

    def prepare(self):
        """Gets the environment, or skips all."""
        if sys.version_info < (3, 10):
            skip(f"the package needs Python 3.10 or newer, and this is {sys.version.split()[0]}")
        if importlib.util.find_spec("ensurepip") is None:
            skip(f"{sys.executable} has no ensurepip (Debian and Ubuntu have it in python3-venv)")
        text = (self.project / "pyproject.toml").read_text()
        (requires,) = re.findall(r"^requires = \[(.*)\]$", text, re.MULTILINE)
        requirements = [*re.findall(r'"([^"]+)"', requires), "jax", "pytest"]
        ready = self.tools / "ready"
        if ready.is_file() and ready.read_text() == str(requirements):
            return
        run(sys.executable, "-m", "venv", "--clear", self.tools)
        try:
            # No wheel, no JAX: building jaxlib takes hours.
            self.pip("install", "--no-compile", "--only-binary=:all:", "--retries=1", "--timeout=20", *requirements)
        except AssertionError as failure:
            if "No matching distribution" in str(failure) and not NO_INDEX.search(str(failure)):
                skip(f"there is no JAX for this machine\n{failure}")
            if not NO_INDEX.search(str(failure)) and not os.environ.get("PIP_NO_INDEX"):
                raise
            skip(f"pip cannot reach a package index\n{failure}")
        ready.write_text(str(requirements))

    def pip(self, *arguments):
        return run(self.python, "-m", "pip", "--disable-pip-version-check", *arguments)

    def build_wheel(self):
        output = self.folder / "wheel"
        shutil.rmtree(output, ignore_errors=True)
        self.pip(
            "wheel", self.project, "--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={output}",
            f"--config-settings=build-dir={self.folder / 'build'}")
        (wheel,) = output.iterdir()
        return wheel


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheel = place.build_wheel()
        header = declarations.parse_header((place.source / "include/greyhound/greyhound.h").read_text())
        cls.version = ".".join(map(str, header.version))

    def test_1_suits_any_python_3_on_this_kind_of_machine(self):
        self.assertEqual(self.wheel.name, f"greyhound_jax-{self.version}-py3-none-linux_{os.uname().machine}.whl")

    def test_2_holds_the_package_and_the_handlers_and_nothing_else(self):
        with zipfile.ZipFile(self.wheel) as archive:
            files = set(archive.namelist())
        modules = {f"greyhound_jax/{path.name}" for path in (place.project / "greyhound_jax").glob("*.py")}
        self.assertIn("greyhound_jax/_functions.py", modules)
        info = f"greyhound_jax-{self.version}.dist-info"
        information = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}
        self.assertEqual(files, modules | {"greyhound_jax/py.typed", "greyhound_jax/libgreyhound_jax.so"} | information)

    def test_3_handlers_need_neither_python_nor_jaxlib_nor_cuda(self):
        with zipfile.ZipFile(self.wheel) as archive:
            handlers = archive.extract("greyhound_jax/libgreyhound_jax.so", place.folder / "extracted")
        exported = check_library.output_of(options.nm, "-D", "--defined-only", "--format=posix", handlers)
        names = {line.split()[0] for line in exported.splitlines()}
        calls = {f"greyhound_jax_cross_entropy{way}_{device}" for way in ("", "_backward") for device in ("cpu", "cuda")}
        self.assertEqual(names, {"greyhound_jax_use_library", *calls})
        entries = check_library.dynamic_section(options.readelf, handlers)
        needed = [value for tag, value in entries if tag == "NEEDED"]
        self.assertIn("libc.so.6", needed)
        for name in needed:
            self.assertRegex(name, check_library.ALLOWED_DEPENDENCIES)
        self.assertEqual([tag for tag, _ in entries if tag in ("RPATH", "RUNPATH")], [])

    def test_4_passes_the_tests_of_the_package(self):
        shutil.rmtree(place.site, ignore_errors=True)
        place.pip("install", "--quiet", "--no-deps", "--no-index", f"--target={place.site}", self.wheel)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(place.site), str(place.source / "bindings/python")]),
            # Bytecode saves time here, as several processes import JAX; but none goes into the source tree.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(place.folder / "bytecode"),
        }
        done = subprocess.run(
            [place.tools / "bin" / "pytest", "-q", "-p", "no:cacheprovider", "-c", place.project / "pyproject.toml",
             f"--rootdir={place.project}", place.project / "tests"],
            env=environment, cwd=place.folder)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--readelf", default="readelf")
    options = parser.parse_args()
    # What is kept suits the Python that it was fetched for.
    place = Workplace(options.source.resolve(), options.work.resolve() / sys.implementation.cache_tag)
    place.prepare()
    unittest.main(argv=sys.argv[:1], verbosity=2)
