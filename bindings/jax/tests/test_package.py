"""Importing, finding the library, and the examples of the documentation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import greyhound
import jax
import numpy as np
import pytest

import greyhound_jax
from greyhound_jax import cross_entropy

ROOT = Path(__file__).resolve().parents[3]


def run_python(code, **environment):
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_version_is_the_librarys():
    assert greyhound_jax.__version__ == greyhound.__version__


def test_library_is_loaded_by_the_first_call():
    call = "greyhound_jax.cross_entropy(np.zeros((1, 1), np.float32), np.zeros(1, np.int32))"
    code = f"import numpy as np, greyhound_jax\nprint('imported')\n{call}"
    done = run_python(code, GREYHOUND_LIBRARY="/nowhere/libgreyhound.so")
    assert done.stdout == "imported\n"
    assert "LibraryNotFoundError: no usable libgreyhound was found" in done.stderr


def test_one_library_for_both_packages():
    cross_entropy(np.zeros((1, 1), np.float32), np.zeros(1, np.int32)).block_until_ready()
    maps = Path("/proc/self/maps").read_text()
    assert len(set(re.findall(r"/\S*/libgreyhound\.so\S*", maps))) == 1


# ---- Documentation -------------------------------------------------------------------------------

PAGES = [ROOT / "docs/jax.md", ROOT / "bindings/jax/README.md"]
BLOCK = re.compile(r"^(<!-- snippet: continues -->\n)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples():
    """The blocks, those that continue the one before joined to it."""
    found = []
    for page in PAGES:
        for continues, block in BLOCK.findall(page.read_text()):
            if continues:
                found[-1] += block
            else:
                found.append(block)
    return found


def test_there_are_examples():
    assert all("```python" in page.read_text() for page in PAGES)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.split("def ")[-1].split("(")[0])
def test_example(device, example):
    names = {}
    exec(compile(example, "example", "exec"), names)
    # What the examples call a loss is one, of logits that know nothing of their labels.
    assert np.isfinite(names["loss"]) and names["loss"] > 0
    if "gradient" in names:
        assert all(np.isfinite(leaf).all() and leaf.any() for leaf in jax.tree.leaves(names["gradient"]))
