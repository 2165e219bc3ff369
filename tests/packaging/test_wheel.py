"""Builds the Python wheel, from the checkout and from a source distribution, and uses it as a stranger would.

Everything lies under --work. Its build folders, pip's tools and the NumPy wheel stay there, so that a second run
compiles and downloads nothing; the environment that the wheel is installed into is new each time. Exits with 77
and a reason where there is no way to get the tools. Needs Python 3.10; standard library only.
"""

import argparse
import email.parser
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import unittest
import zipfile
from pathlib import Path

import check_library
import declarations

COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "clang++", "nvcc", "cmake", "ninja", "make", "ld")

# pip says one of these if it could not ask the package index; a package that the index does not have is a failure.
NO_INDEX = re.compile(r"Retrying \(|Could not fetch URL|ConnectionError|ProxyError|[Tt]imed out")

RUN_EXAMPLE = """
import os, sys
import numpy as np

new_generator = np.random.default_rng
seed = int.from_bytes(os.urandom(4), "little")
print(f"seed = {seed}")
np.random.default_rng = lambda: new_generator(seed)
names = {}
exec(compile(open(sys.argv[1]).read(), "README.md", "exec"), names)

generator = new_generator(seed)
logits = generator.standard_normal(names["logits"].shape, dtype=np.float32).astype(np.float64)
target = generator.integers(0, logits.shape[1], size=logits.shape[0])
exponentials = np.exp(logits)
rows = np.arange(len(target))
loss = np.mean(np.log(exponentials.sum(1)) - logits[rows, target])
gradient = exponentials / exponentials.sum(1, keepdims=True)
gradient[rows, target] -= 1

# Sums in float32 of `vocab` positive terms and then of `batch` losses: each addition rounds by at most 2**-24 of
# a partial sum, and no partial sum exceeds the whole. The logarithm turns the first part into an absolute error,
# and so it is for a gradient, which is at most 1; the loss is greater than 1.
batch, vocab = logits.shape
bound = (batch + vocab) * 2**-24
assert loss > 1 and abs(names["loss"] - loss) <= bound * loss, (names["loss"], loss)
assert abs(names["dlogits"] - gradient).max() <= bound, abs(names["dlogits"] - gradient).max()
"""

LOADED = """
import greyhound
print(greyhound.library_version())
print({line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "libgreyhound" in line}.pop())
"""


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def run(*command, **options):
    """Output of a command that must succeed, both streams in one."""
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


class Workplace:
    """Where things lie, and pip in an environment that has the tools to build."""

    def __init__(self, source, folder):
        self.source = source
        self.project = source / "bindings" / "python"
        self.folder = folder
        self.tools = folder / "tools"
        self.downloads = folder / "downloads"

    def prepare(self):
        """Gets the tools, or skips all."""
        if sys.version_info < (3, 10):
            skip(f"the package needs Python 3.10 or newer, and this is {sys.version.split()[0]}")
        if importlib.util.find_spec("ensurepip") is None:
            skip(f"{sys.executable} has no ensurepip (Debian and Ubuntu have it in python3-venv)")
        # pip 22.3 is the first that installs into another environment.
        requirements = ["pip>=22.3", *self.build_requirements()]
        ready = self.tools / "ready"
        if not ready.is_file() or ready.read_text() != str(requirements):
            run(sys.executable, "-m", "venv", "--clear", self.tools)
            self.get("install", *requirements)
            ready.write_text(str(requirements))
        if not list(self.downloads.glob("numpy-*.whl")):
            self.get("download", "--only-binary=:all:", f"--dest={self.downloads}", "numpy")

    def build_requirements(self):
        text = (self.project / "pyproject.toml").read_text()
        (requires,) = re.findall(r"^requires = \[(.*)\]$", text, re.MULTILINE)
        return re.findall(r'"([^"]+)"', requires)

    def get(self, *arguments):
        try:
            self.pip(*arguments, "--retries=1", "--timeout=20")
        except AssertionError as failure:
            if not NO_INDEX.search(str(failure)) and not os.environ.get("PIP_NO_INDEX"):
                raise
            skip(f"pip cannot reach a package index\n{failure}")

    def pip(self, *arguments, **options):
        return run(self.tools / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *arguments, **options)

    @functools.cached_property
    def wheel(self):
        return self.build_wheel(self.project, "wheel")

    def build_wheel(self, source, name):
        output = self.folder / name
        shutil.rmtree(output, ignore_errors=True)
        self.pip(
            "wheel", source, "--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={output}",
            "--config-settings=cmake.define.GREYHOUND_CUDA=OFF", f"--config-settings=build-dir={self.folder / name}-build")
        (wheel,) = output.iterdir()
        return wheel

    def build_sdist(self):
        hook = "import sys, scikit_build_core.build as backend; backend.build_sdist(sys.argv[1])"
        output = self.folder / "sdist"
        shutil.rmtree(output, ignore_errors=True)
        run(self.tools / "bin" / "python", "-c", hook, output, cwd=self.project)
        (sdist,) = output.iterdir()
        return sdist

    def unpack(self, sdist):
        """Unpacks over an earlier one without touching what is the same, which need not be compiled again."""
        folder = self.folder / "unpacked"
        with tarfile.open(sdist) as archive:
            files = {Path(*Path(m.name).parts[1:]): archive.extractfile(m).read() for m in archive if m.isfile()}
        for path in list(folder.rglob("*")):
            if path.is_file() and path.relative_to(folder) not in files:
                path.unlink()
        for name, content in files.items():
            path = folder / name
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return folder


class Wheel(unittest.TestCase):
    """What is in the wheel that the checkout gives."""

    @classmethod
    def setUpClass(cls):
        cls.wheel = place.wheel
        with zipfile.ZipFile(cls.wheel) as archive:
            cls.files = {name: archive.read(name) for name in archive.namelist()}
        header = declarations.parse_header((place.source / "include/greyhound/greyhound.h").read_text())
        cls.version = ".".join(map(str, header.version))
        cls.info = f"greyhound-{cls.version}.dist-info"

    def test_suits_any_python_3_on_this_kind_of_machine(self):
        self.assertEqual(self.wheel.name, f"greyhound-{self.version}-py3-none-linux_{os.uname().machine}.whl")
        self.assertIn("Root-Is-Purelib: false", self.files[f"{self.info}/WHEEL"].decode().splitlines())

    def test_holds_the_package_and_one_library_and_nothing_else(self):
        package = place.project / "greyhound"
        modules = {f"greyhound/{path.relative_to(package)}" for path in package.rglob("*.py")}
        self.assertIn("greyhound/nn/functional.py", modules)
        information = {f"{self.info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}
        self.assertEqual(set(self.files), modules | {"greyhound/py.typed", "greyhound/libgreyhound.so"} | information)

    def test_library_is_whole_and_names_no_place_of_this_machine(self):
        name = "greyhound/libgreyhound.so"
        with zipfile.ZipFile(self.wheel) as archive:
            library = archive.extract(name, place.folder / "extracted")
        header = place.source / "include/greyhound/greyhound.h"
        self.assertEqual(list(check_library.problems(options.nm, options.readelf, header, library)), [])
        for folder in (place.source, place.folder, Path.home()):
            self.assertNotIn(os.fsencode(folder) + b"/", self.files[name])

    def test_metadata(self):
        text = self.files[f"{self.info}/METADATA"].decode()
        metadata = email.parser.HeaderParser().parsestr(text)
        wanted = {"Name": "greyhound", "Version": self.version, "Requires-Python": ">=3.10",
                  "License-Expression": "Apache-2.0", "License-File": "LICENSE"}
        self.assertEqual({name: metadata[name] for name in wanted}, wanted)
        self.assertEqual(self.files[f"{self.info}/licenses/LICENSE"], (place.source / "LICENSE").read_bytes())
        # Whoever wants NumPy or PyTorch has them; neither is forced on the other's users.
        for requirement in metadata.get_all("Requires-Dist"):
            self.assertIn("; extra == ", requirement)

    def test_a_source_distribution_gives_the_same_wheel(self):
        wheel = place.build_wheel(place.unpack(place.build_sdist()), "wheel-from-sdist")
        self.assertEqual(wheel.name, self.wheel.name)
        with zipfile.ZipFile(wheel) as archive:
            self.assertEqual(set(archive.namelist()), set(self.files))
            for name in set(self.files) - {f"{self.info}/RECORD", "greyhound/libgreyhound.so"}:
                self.assertEqual(archive.read(name), self.files[name], name)


class Installed(unittest.TestCase):
    """The wheel in a new environment that has neither a compiler nor a package index, and no PyTorch."""

    @classmethod
    def setUpClass(cls):
        cls.wheel = place.wheel
        cls.home = place.folder / "fresh"
        run(sys.executable, "-m", "venv", "--clear", "--without-pip", cls.home)
        cls.environment = {"PATH": str(cls.home / "bin")}
        cls.pip("install", "--quiet", "--no-compile", "--no-index", f"--find-links={place.downloads}", cls.wheel, "numpy")

    @classmethod
    def pip(cls, *arguments):
        place.pip(f"--python={cls.home / 'bin' / 'python'}", *arguments, env=cls.environment)

    def python(self, *arguments):
        return subprocess.run(
            [self.home / "bin" / "python", "-I", *arguments],
            env=self.environment, cwd=place.folder, capture_output=True, text=True, timeout=120)

    def test_there_is_no_compiler(self):
        found = [name for name in COMPILERS if shutil.which(name, path=self.environment["PATH"])]
        self.assertEqual(found, [])

    def test_loads_the_library_it_brought(self):
        done = self.python("-c", LOADED)
        self.assertEqual(done.returncode, 0, done.stderr)
        version, library = done.stdout.splitlines()
        self.assertEqual(f"greyhound-{version}", "-".join(self.wheel.name.split("-")[:2]))
        (brought,) = self.home.resolve().glob("lib/python3*/site-packages/greyhound/libgreyhound.so")
        self.assertEqual(Path(library), brought)

    def test_runs_the_example_for_numpy(self):
        readme = (place.project / "README.md").read_text()
        examples = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
        example = next(e for e in examples if "numpy" in e)
        (place.folder / "example.py").write_text(example)
        done = self.python("-c", RUN_EXAMPLE, "example.py")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_says_that_pytorch_is_missing(self):
        done = self.python("-c", "import greyhound.nn.functional")
        self.assertEqual(done.returncode, 1)
        self.assertIn("\nImportError: greyhound.nn.functional needs PyTorch, which is not installed", done.stderr)

    def test_uninstalls_without_a_trace(self):
        # Last in the alphabet, and so the last to run.
        (packages,) = self.home.glob("lib/python3*/site-packages")
        self.assertTrue(list(packages.glob("greyhound*")))
        self.pip("uninstall", "--quiet", "--yes", "greyhound")
        self.assertEqual(list(packages.glob("greyhound*")), [])


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
