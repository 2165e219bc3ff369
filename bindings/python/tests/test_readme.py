"""The README's Python examples run: as printed where they ask for CUDA and there is one, and on the CPU."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from conftest import require_cuda

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
FOR_TORCH = [example for example in EXAMPLES if "import torch" in example]
FOR_NUMPY = [example for example in EXAMPLES if "import numpy" in example]


def title(example):
    return re.search(r"from greyhound\S* import (\w+)", example).group(1)


def run(example):
    names = {}
    exec(compile(example, str(README), "exec"), names)
    loss = float(names["loss"].detach() if hasattr(names["loss"], "detach") else names["loss"])
    # Random logits say nothing about the target: the loss is that of a guess, log(vocab) + 1/2 in expectation
    # for standard normal logits, and each row's differs from it by little more than its target's logit.
    batch, vocab = names["logits"].shape
    assert abs(loss - (math.log(vocab) + 0.5)) < 8 / math.sqrt(batch) + 4 / math.sqrt(vocab)
    return names


def check_dlogits(names):
    """A row's gradient sums to 0: the softmax to 1, less the target's 1."""
    dlogits = names["dlogits"][:8]
    sums = dlogits.double().sum(-1).cpu().numpy() if hasattr(dlogits, "double") else dlogits.astype(float).sum(-1)
    # Each element is off by at most bfloat16's roundoff, and their magnitudes sum to less than 2.
    assert abs(sums).max() <= 2 * 2**-8


def test_every_example_is_run():
    assert [title(example) for example in FOR_TORCH] == ["cross_entropy", "cross_entropy_with_grad_kernel"]
    assert len(FOR_NUMPY) == 1 and len(EXAMPLES) == 3


@pytest.mark.parametrize("example", FOR_TORCH, ids=title)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_torch_example(example, device):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    if device == "cuda":
        require_cuda()
    else:
        assert example.count('device="cuda"') == 2 and example.count("8192, 128256") == 1
        example = example.replace('device="cuda"', 'device="cpu"').replace("8192, 128256", "64, 1000")
    names = run(example)
    assert names["loss"].device.type == device
    if "dlogits" in names:
        check_dlogits(names)


@pytest.mark.parametrize("example", FOR_NUMPY, ids=title)
def test_numpy_example(example):
    check_dlogits(run(example))
