"""Where libgreyhound is looked for, and what a failed search says."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from conftest import PACKAGE

VERSION = "import greyhound; print(greyhound.library_version())"
LOADED = (
    VERSION + "; print([l.split()[-1] for l in open('/proc/self/maps') if 'libgreyhound' in l or 'stand_in' in l][0])"
)


@pytest.fixture
def package(tmp_path):
    """A copy of the package that has no library beside it and lies in no source checkout."""
    copy = tmp_path / "site" / "greyhound"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so*", "lib"))
    return copy


@pytest.fixture
def compile_library(tmp_path):
    """Makes a shared library from C source; a C compiler built libgreyhound too, if it was built here."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")

    def make(source):
        file = tmp_path / "stand_in.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", file], input=source, text=True, check=True)
        return file

    return make


def last_lines(done):
    """The failure's own lines, after the traceback."""
    assert done.returncode == 1, done.stdout
    return done.stderr.partition("LibraryNotFoundError: ")[2].splitlines()


def test_environment_variable(run_python, package, library_file):
    done = run_python(LOADED, package.parent, GREYHOUND_LIBRARY=str(library_file))
    assert done.stdout.split()[1] == str(library_file), done.stderr


def test_environment_variable_is_the_only_place(run_python, package, library_file, tmp_path):
    shutil.copy(library_file, package / "libgreyhound.so")
    missing = tmp_path / "missing.so"
    assert last_lines(run_python(VERSION, package.parent, GREYHOUND_LIBRARY=str(missing))) == [
        "no usable libgreyhound was found. Tried:",
        f"  {missing}: cannot open shared object file: No such file or directory",
        "GREYHOUND_LIBRARY is set, so no other place was tried.",
    ]


def test_not_a_library(run_python, package, tmp_path):
    text = tmp_path / "text.so"
    text.write_text("not a library, but long enough for its first bytes to be looked at " * 4)
    reason = last_lines(run_python(VERSION, package.parent, GREYHOUND_LIBRARY=str(text)))[1]
    assert reason.startswith(f"  {text}: ") and "ELF" in reason


def test_another_library(run_python, package, compile_library):
    file = compile_library("int something_else(void) { return 1; }")
    assert last_lines(run_python(VERSION, package.parent, GREYHOUND_LIBRARY=str(file)))[1] == (
        f"  {file}: has no function gh_version"
    )


@pytest.mark.parametrize("version", ["0.2.0", "1.1.7"])
def test_another_version(run_python, package, compile_library, version):
    major, minor, patch = version.split(".")
    file = compile_library(f"unsigned gh_version(void) {{ return {major}u << 16 | {minor}u << 8 | {patch}u; }}")
    assert last_lines(run_python(VERSION, package.parent, GREYHOUND_LIBRARY=str(file)))[1] == (
        f"  {file}: is version {version}, but this package needs 0.1.x"
    )


def test_another_patch_version_that_lacks_a_function(run_python, package, compile_library):
    file = compile_library("unsigned gh_version(void) { return 0u << 16 | 1u << 8 | 255u; }")
    assert last_lines(run_python(VERSION, package.parent, GREYHOUND_LIBRARY=str(file)))[1] == (
        f"  {file}: has no function gh_version_string"
    )


@pytest.mark.parametrize("place", ["libgreyhound.so", "lib/libgreyhound.so"])
def test_beside_the_package(run_python, package, library_file, place):
    file = package / place
    file.parent.mkdir(exist_ok=True)
    shutil.copy(library_file, file)
    done = run_python(LOADED, package.parent)
    assert done.stdout.split()[1] == str(file), done.stderr


def test_refused_place_is_passed_over(run_python, package, library_file):
    (package / "libgreyhound.so").write_text("not a library")
    (package / "lib").mkdir()
    shutil.copy(library_file, package / "lib" / "libgreyhound.so")
    done = run_python(LOADED, package.parent)
    assert done.stdout.split()[1] == str(package / "lib" / "libgreyhound.so"), done.stderr


def test_loader_path(run_python, package, library_file, tmp_path):
    for name in ("libgreyhound.so.0.1", "libgreyhound.so"):
        folder = tmp_path / f"holds {name}"
        folder.mkdir()
        shutil.copy(library_file, folder / name)
        done = run_python(VERSION, package.parent, LD_LIBRARY_PATH=str(folder))
        assert done.returncode == 0, done.stderr


@pytest.fixture
def checkout(package, tmp_path):
    """The package inside a source checkout."""
    root = tmp_path / "checkout"
    (root / "bindings").mkdir(parents=True)
    shutil.move(package.parent, root / "bindings" / "python")
    (root / "include" / "greyhound").mkdir(parents=True)
    (root / "include" / "greyhound" / "greyhound.h").touch()
    return root


def test_newest_build_tree(run_python, checkout, library_file):
    for age, preset in enumerate(["cpu", "release", "hopper"]):
        file = checkout / "build" / preset / "libgreyhound.so"
        file.parent.mkdir(parents=True)
        shutil.copy(library_file, file)
        os.utime(file, (10**9 - age, 10**9 - age))
    path = checkout / "bindings" / "python"
    done = run_python(LOADED, path)
    assert done.stdout.split()[1] == str(checkout / "build" / "cpu" / "libgreyhound.so"), done.stderr
    os.utime(checkout / "build" / "hopper" / "libgreyhound.so")
    done = run_python(LOADED, path)
    assert done.stdout.split()[1] == str(checkout / "build" / "hopper" / "libgreyhound.so"), done.stderr


def test_failure_lists_every_place(run_python, checkout):
    path = checkout / "bindings" / "python"
    done = run_python(VERSION, path)
    if done.returncode == 0:
        pytest.skip("a libgreyhound is installed on the loader's path")
    missing = "cannot open shared object file: No such file or directory"
    assert last_lines(done) == [
        "no usable libgreyhound was found. Tried:",
        f"  {path}/greyhound/libgreyhound.so: {missing}",
        f"  {path}/greyhound/lib/libgreyhound.so: {missing}",
        f"  {checkout}/build/release/libgreyhound.so: {missing}",
        f"  {checkout}/build/ci/libgreyhound.so: {missing}",
        f"  {checkout}/build/hopper/libgreyhound.so: {missing}",
        f"  {checkout}/build/cpu/libgreyhound.so: {missing}",
        f"  libgreyhound.so.0.1: {missing}",
        f"  libgreyhound.so: {missing}",
        "Build the library, or name it in the environment variable GREYHOUND_LIBRARY.",
    ]


def test_failure_is_not_remembered(run_python, package, library_file):
    code = (
        "import os, greyhound\n"
        "try: greyhound.library_version()\n"
        "except RuntimeError: print('failed')\n"
        f"os.environ['GREYHOUND_LIBRARY'] = {str(library_file)!r}\n"
        "greyhound.library_version(); print('found')\n"
    )
    done = run_python(code, package.parent, GREYHOUND_LIBRARY="/nowhere/libgreyhound.so")
    assert done.stdout == "failed\nfound\n", done.stderr
