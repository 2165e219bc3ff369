from __future__ import annotations

import os
import sys
from pathlib import Path

# Two devices on the CPU, for shard_map. JAX reads this when it first looks for devices.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
# A test wants little memory, and others may be using the GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
import pytest

import greyhound_jax

# The float64 reference of the other Python bindings.
sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "tests"))


@pytest.fixture
def generator():
    """A generator with a fresh seed, which pytest shows if the test fails."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed = {seed}")
    return np.random.default_rng(seed)


def gpu_is_missing() -> str:
    """Why tests on the GPU cannot run; or nothing."""
    try:
        gpu = jax.devices("cuda")[0]
    except RuntimeError:
        return "JAX has no CUDA device"
    try:
        with jax.default_device(gpu):
            greyhound_jax.cross_entropy(np.zeros((1, 1), np.float32), np.zeros(1, np.int32)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        if "built without CUDA" not in str(error):
            raise
        return "libgreyhound was built without its CUDA engine"
    return ""


@pytest.fixture(scope="session")
def gpu_missing():
    return gpu_is_missing()


@pytest.fixture(params=["cpu", "cuda"])
def device(request, gpu_missing):
    """Makes each kind of device the default one in turn."""
    if request.param == "cuda" and gpu_missing:
        pytest.skip(gpu_missing)
    with jax.default_device(jax.devices(request.param)[0]):
        yield request.param
