"""The README's Python examples run: as printed where they ask for CUDA and there is one, and on the CPU."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from conftest import require_cuda

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(
    r"^(<!-- snippet: continues -->\n)?```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL
)


def examples():
    """The blocks, those that continue the one before joined to it."""
    found = []
    for continues, block in BLOCKS:
        if continues:
            found[-1] += block
        else:
            found.append(block)
    return found


EXAMPLES = examples()
FOR_TORCH = [example for example in EXAMPLES if "import torch" in example]
FOR_NUMPY = [example for example in EXAMPLES if "import numpy" in example]
FOR_CUPY = [example for example in EXAMPLES if "import cupy" in example]


def title(example):
    return re.search(r"from greyhound\S* import (\w+)", example).group(1)


def execute(example):
    names = {}
    exec(compile(example, str(README), "exec"), names)
    return names


def run(example):
    names = execute(example)
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


# Those whose logits are random and whose loss is that of a guess.
GUESSES = [example for example in FOR_TORCH if example.count("8192, 128256") == 1]


def test_every_example_is_run():
    assert [title(example) for example in GUESSES] == ["cross_entropy", "cross_entropy_with_grad_kernel"]
    assert [title(example) for example in FOR_NUMPY] == ["cross_entropy_with_grad_kernel", "cross_entropy_kernel"]
    assert [title(example) for example in FOR_CUPY] == ["cross_entropy_kernel"]
    assert len(FOR_TORCH) + len(FOR_NUMPY) + len(FOR_CUPY) == len(EXAMPLES)


@pytest.mark.parametrize("example", GUESSES, ids=title)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_torch_example(example, device):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    if device == "cuda":
        require_cuda()
    else:
        assert example.count('device="cuda"') == 2
        example = example.replace('device="cuda"', 'device="cpu"').replace("8192, 128256", "64, 1000")
    names = run(example)
    assert names["loss"].device.type == device
    if "dlogits" in names:
        check_dlogits(names)


@pytest.mark.parametrize("example", [example for example in FOR_TORCH if example not in GUESSES], ids=title)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_other_torch_example(example, device):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if device == "cuda":
        require_cuda()
    else:
        example = example.replace('device="cuda"', 'device="cpu"').replace("32000", "1000")
    names = execute(example)
    assert names["loss"].device.type == device and names["loss"].isfinite() and names["loss"].requires_grad
    if "inplace_backward" in example:
        assert names["accuracy"] <= 1
        # What the last example says of the logits: a row's gradient sums to 0.
        sums = names["logits"].detach().double().sum(-1)
        rows = names["target"].numel()
        assert torch.all(sums.abs() <= 2 * 2**-8 / rows)
        assert names["model"].weight.grad.isfinite().all()


def test_numpy_example():
    check_dlogits(run(FOR_NUMPY[0]))


def test_numpy_example_of_every_option():
    names = execute(FOR_NUMPY[1])
    rows = names["row_dloss"] > 0
    assert rows.sum() == 32
    assert abs(names["dlogits"][~rows]).max() == 0 < abs(names["dlogits"][rows]).max(1).min()
    # Of a row's gradient, as above; in float32.
    assert abs(names["dlogits"].astype(float).sum(1)).max() <= 2 * 1000 * 2**-24
    # Standard normal logits: less than the entropy of no knowledge, log(vocab).
    assert names["row_entropy"].min() > 0 and names["row_entropy"].max() < math.log(1000)
    assert abs(names["loss"][0] - (math.log(1000) + 0.5)) < 8 / math.sqrt(64) + 4 / math.sqrt(1000)


def test_cupy_example():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    require_cuda()
    names = execute(FOR_CUPY[0])
    assert abs(float(names["loss"][0]) - (math.log(128256) + 0.5)) < 8 / math.sqrt(8192) + 4 / math.sqrt(128256)
