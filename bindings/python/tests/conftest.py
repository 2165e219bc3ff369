from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from greyhound import _library
from greyhound.kernels.cross_entropy import cross_entropy_with_grad_kernel

PACKAGE = Path(_library.__file__).parent


@pytest.fixture
def generator():
    """A generator with a fresh seed, which pytest shows if the test fails."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed = {seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def library_file():
    """The file that the library in use was loaded from, wherever it was found."""
    _library.load()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if "libgreyhound.so" in path:
            return Path("/" + path)
    raise AssertionError("libgreyhound is loaded, but not in /proc/self/maps")


@pytest.fixture
def run_python(tmp_path):
    """Runs code in an interpreter of its own, with the package's folder, or `path`, to import from."""

    def run(code, path=PACKAGE.parent, **environment):
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("GREYHOUND_LIBRARY", "PYTHONPATH") and (path == PACKAGE.parent or name != "LD_LIBRARY_PATH")
        }
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**inherited, "PYTHONPATH": str(path), **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def require_cuda():
    """Skips the test unless PyTorch and libgreyhound both have a CUDA device to use."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    try:
        cross_entropy_with_grad_kernel(torch.zeros(1, 1, device="cuda"), torch.zeros(1, device="cuda").long())
    except RuntimeError as error:
        if "built without CUDA" not in str(error):
            raise
        pytest.skip("libgreyhound was built without its CUDA engine")
