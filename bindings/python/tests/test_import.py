"""What importing the package needs, and what it does not."""

from __future__ import annotations

import re

import pytest

import greyhound
from greyhound import _abi

# Makes packages look uninstalled.
BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def test_versions():
    wanted = f"{_abi.GH_VERSION_MAJOR}.{_abi.GH_VERSION_MINOR}."
    assert re.fullmatch(re.escape(wanted) + r"\d+", greyhound.library_version())
    assert greyhound.__version__.startswith(wanted)


def test_other_packages_get_the_library_and_its_functions():
    library = greyhound.load_library()
    assert library is greyhound.load_library()
    assert all(getattr(library, name).argtypes == list(p.values()) for name, (_, p) in _abi.FUNCTIONS.items())


def test_needs_neither_torch_nor_numpy_nor_library(run_python):
    code = BLOCK.format(blocked=("torch", "numpy")) + "import greyhound, greyhound.kernels.cross_entropy, greyhound.nn"
    done = run_python(code, GREYHOUND_LIBRARY="/nowhere/libgreyhound.so")
    assert done.returncode == 0, done.stderr


def test_imports_neither_torch_nor_numpy(run_python):
    code = "import sys, greyhound.kernels.cross_entropy; print({'torch', 'numpy'} & set(sys.modules))"
    assert run_python(code).stdout == "set()\n"


def test_kernel_without_torch(run_python, library_file):
    code = BLOCK.format(blocked=("torch",)) + (
        "import numpy as np\n"
        "from greyhound.kernels.cross_entropy import cross_entropy_with_grad_kernel\n"
        "print(cross_entropy_with_grad_kernel(np.zeros((2, 1), np.float32), np.zeros(2, np.int64))[2])\n"
    )
    done = run_python(code, GREYHOUND_LIBRARY=str(library_file))
    assert (done.stdout, done.returncode) == ("2.0\n", 0), done.stderr


def test_kernel_without_numpy_names_the_type(run_python):
    code = BLOCK.format(blocked=("torch", "numpy")) + (
        "from greyhound.kernels.cross_entropy import cross_entropy_with_grad_kernel\n"
        "cross_entropy_with_grad_kernel([[0.0]], [0])\n"
    )
    message = r"TypeError: logits: expected a torch\.Tensor, a numpy\.ndarray or a cupy\.ndarray, .*, got list; "
    assert re.search(message, run_python(code).stderr)


def test_every_option_without_torch(run_python, library_file):
    code = BLOCK.format(blocked=("torch",)) + (
        "import numpy as np\n"
        "from greyhound.kernels.cross_entropy import cross_entropy_kernel\n"
        "n_valid = np.zeros(1, np.float32)\n"
        "cross_entropy_kernel(np.zeros((2, 1), np.float32), np.zeros(2, np.int64), n_valid=n_valid)\n"
        "print(n_valid[0])\n"
    )
    done = run_python(code, GREYHOUND_LIBRARY=str(library_file))
    assert (done.stdout, done.returncode) == ("2.0\n", 0), done.stderr


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "loss"])
def test_module_without_torch_says_so(run_python, name):
    done = run_python(BLOCK.format(blocked=("torch",)) + f"from greyhound.nn import {name}")
    assert done.returncode == 1
    assert "\nImportError: greyhound.nn.functional needs PyTorch, which is not installed" in done.stderr


def test_functional_without_torch_says_so(run_python):
    done = run_python(BLOCK.format(blocked=("torch",)) + "import greyhound.nn.functional")
    assert done.returncode == 1
    assert "\nImportError: greyhound.nn.functional needs PyTorch, which is not installed" in done.stderr
