"""What PyTorch's own machinery does with the functional API: opcheck, compilers, fake tensors, transforms, tracers."""

from __future__ import annotations

import pytest
from conftest import require_cuda

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from greyhound import _torch_ops  # noqa: E402
from greyhound.nn import CrossEntropyLoss  # noqa: E402
from greyhound.nn.functional import (  # noqa: E402
    cross_entropy,
    cross_entropy_with_outputs,
    log_prob_and_entropy,
)

# What PyTorch itself says while it compiles is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")

REDUCTIONS = ["none", "mean", "sum"]
OPTIONS = (-100, 0.1, 0.01, 0.7, 5.0)  # ignore_index, label_smoothing, z_loss_multiplier, logit_scale, softcap
KEYWORDS = {"label_smoothing": 0.1, "z_loss_multiplier": 0.01, "logit_scale": 0.7, "softcap": 5.0}


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda":
        require_cuda()
    return request.param


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def draw(generator, shape, device, dtype=torch.float32):
    logits = torch.from_numpy(4 * generator.standard_normal(shape)).to(device, dtype).requires_grad_()
    target = torch.from_numpy(generator.integers(0, shape[-1], size=shape[:-1])).to(device)
    target.view(-1)[0] = -100
    weight = torch.from_numpy(generator.uniform(0, 2, size=shape[-1])).to(device, torch.float32)
    return logits, target, weight


def loss_options(reduction):
    ignore_index, *rest = OPTIONS
    return ignore_index, reduction, *rest


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("outputs", [[], ["n_valid", "n_correct", "lse", "entropy", "argmax"]], ids=["loss", "outputs"])
def test_opcheck_cross_entropy(generator, device, reduction, outputs):
    logits, target, weight = draw(generator, (6, 80), device)
    options = loss_options(reduction)
    torch.library.opcheck(_torch_ops.cross_entropy, (logits, target, weight, *options, True, outputs))
    torch.library.opcheck(_torch_ops.cross_entropy, (logits.detach(), target, None, *options, False, outputs))


def test_opcheck_log_prob_and_entropy(generator, device):
    logits, target, _ = draw(generator, (6, 80), device)
    torch.library.opcheck(_torch_ops.log_prob_and_entropy, (logits, target, -100, 0.7, 5.0))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_opcheck_backward(generator, device, reduction):
    logits, target, weight = draw(generator, (6, 80), device)
    options = loss_options(reduction)
    loss, statistics, *_ = _torch_ops.cross_entropy(logits.detach(), target, weight, *options, True, ["entropy"])
    dloss = torch.ones_like(loss)
    dentropy = torch.ones(6, device=device)
    arguments = (logits.detach(), target, weight, statistics, dloss, dentropy, False, *options)
    torch.library.opcheck(_torch_ops.cross_entropy_backward, arguments)


def losses(logits, target, weight, reduction):
    """Everything of the functional API, as one number."""
    found = cross_entropy_with_outputs(
        logits, target, weight, outputs=["lse", "n_correct"], reduction=reduction, inplace_backward=True, **KEYWORDS
    )
    log_prob, entropy = log_prob_and_entropy(logits, target, logit_scale=0.7)
    total = 3 * found.loss.sum() + log_prob.sum() + 2 * entropy.sum()
    return total, found.lse, found.n_correct


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_operators_compute_what_the_short_way_does(generator, device, monkeypatch, reduction):
    leaf, target, weight = draw(generator, (2, 3, 80), device, torch.float16)
    results = []
    for in_use in (_torch_ops.in_use, lambda logits: True):
        monkeypatch.setattr(_torch_ops, "in_use", in_use)
        total, lse, n_correct = losses(1 * leaf, target, weight, reduction)
        (gradient,) = torch.autograd.grad(total, leaf)
        results.append((total, lse, n_correct, gradient))
    for short, long in zip(*results, strict=True):
        assert torch.equal(short, long)


# The steps up to code, for any number of rows; and C++ or Triton code, for one.
@pytest.mark.parametrize(
    ("backend", "numbers_of_rows", "reductions"),
    [("aot_eager", (6, 4, 3), REDUCTIONS), ("inductor", (6,), ["mean", "none"])],
    ids=["aot_eager", "inductor"],
)
def test_compiles_without_a_graph_break(generator, device, fresh_compiler, backend, numbers_of_rows, reductions):
    if backend == "inductor":
        require_a_compiler(device)
    hidden, target, weight = draw(generator, (2, 6, 80), device)
    hidden = hidden.detach()
    matrix = torch.eye(80, device=device, requires_grad=True)

    def step(hidden, target, reduction):
        return losses(hidden @ matrix, target, weight, reduction)

    compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=len(numbers_of_rows) > 1)
    for reduction in reductions:
        for rows in numbers_of_rows:
            arguments = hidden[:, :rows], target[:, :rows], reduction
            found, *outputs = compiled(*arguments)
            (gradient,) = torch.autograd.grad(found, matrix)
            expected, *expected_outputs = step(*arguments)
            (expected_gradient,) = torch.autograd.grad(expected, matrix)
            # The same calls on the same numbers, but a compiler may sum in another order: 12 rows, of less than 64
            # each, and 12 hidden states of less than 32, times gradients of less than 16.
            torch.testing.assert_close(found, expected, rtol=0, atol=64 * 2**-24 * 12 * 64)
            torch.testing.assert_close(outputs, expected_outputs, rtol=0, atol=64 * 2**-24 * 64)
            torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=64 * 2**-24 * 12 * 32 * 16)


def require_a_compiler(device):
    if device == "cpu":
        from torch._inductor.cpp_builder import get_cpp_compiler

        try:
            get_cpp_compiler()
        except Exception as error:
            pytest.skip(f"no C++ compiler for torch.compile: {error}")
    else:
        pytest.importorskip("triton", reason="no Triton for torch.compile")


def test_compiles_the_module(generator, device, fresh_compiler):
    logits, target, weight = draw(generator, (6, 80), device)
    module = CrossEntropyLoss(weight, label_smoothing=0.1)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(logits, target), module(logits, target))
    with torch.no_grad():
        assert torch.equal(compiled(logits, target), module(logits, target))


def test_exports(generator):
    logits, target, weight = draw(generator, (6, 80), "cpu")
    module = CrossEntropyLoss(weight)
    program = torch.export.export(module, (logits.detach(), target))
    assert torch.equal(program.module()(logits.detach(), target), module(logits.detach(), target))


def test_fake_tensors(device):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        logits = torch.empty(2, 3, 5, dtype=torch.bfloat16, device=device, requires_grad=True)
        target = torch.empty(2, 3, dtype=torch.int64, device=device)
        found = cross_entropy_with_outputs(logits, target, outputs=["lse", "argmax"], reduction="none")
        assert (found.loss.shape, found.loss.dtype) == ((2, 3), torch.float32)
        assert (found.argmax.shape, found.argmax.dtype) == ((2, 3), torch.int64)
        found.loss.sum().backward()
        assert (logits.grad.shape, logits.grad.dtype) == (logits.shape, torch.bfloat16)


def test_tracers_see_the_operator(generator):
    from torch.fx.experimental.proxy_tensor import make_fx

    logits, target, _ = draw(generator, (6, 80), "cpu")
    traced = make_fx(lambda logits, target: cross_entropy(logits, target))(logits.detach(), target)
    assert any(node.target is _torch_ops.cross_entropy for node in traced.graph.nodes)
    others, target, _ = draw(generator, (6, 80), "cpu")
    assert torch.equal(traced(others.detach(), target), cross_entropy(others.detach(), target))


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "jacrev"])
def test_function_transforms_are_refused(generator, device, transform):
    logits, target, _ = draw(generator, (2, 3, 80), device)
    logits = logits.detach()

    def loss(logits):
        return cross_entropy(logits, target if logits.dim() == 3 else target[0])

    calls = {
        "grad": lambda: torch.func.grad(loss)(logits),
        "vmap": lambda: torch.func.vmap(loss)(logits),
        "jvp": lambda: torch.func.jvp(loss, (logits,), (logits,)),
        "jacrev": lambda: torch.func.jacrev(loss)(logits),
    }
    with pytest.raises(RuntimeError, match=r"does not support the transforms of torch\.func"):
        calls[transform]()


def test_double_backward_through_the_operators_is_refused(generator, device, monkeypatch):
    logits, target, _ = draw(generator, (6, 80), device)
    monkeypatch.setattr(_torch_ops, "in_use", lambda logits: True)
    (gradient,) = torch.autograd.grad(cross_entropy(logits, target), logits, create_graph=True)
    with pytest.raises(RuntimeError, match="does not support double backward"):
        torch.autograd.grad(gradient.sum(), logits)


def test_forward_mode_is_refused(generator, device):
    from torch.autograd import forward_ad

    logits, target, _ = draw(generator, (6, 80), device)
    with forward_ad.dual_level(), pytest.raises((RuntimeError, NotImplementedError)):
        cross_entropy(forward_ad.make_dual(logits.detach(), torch.ones_like(logits)).requires_grad_(), target)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_nothing(generator, device, dtype):
    logits, target, _ = draw(generator, (6, 80), device, dtype)
    expected = cross_entropy(logits, target)
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    with torch.autocast(device, dtype=dtype):
        found = cross_entropy(logits, target)
    (gradient,) = torch.autograd.grad(found, logits)
    assert found.dtype is torch.float32 and torch.equal(found, expected)
    assert gradient.dtype is dtype and torch.equal(gradient, expected_gradient)


def test_checkpoint(generator, device):
    logits, target, _ = draw(generator, (6, 80), device)
    cross_entropy(2 * logits, target).backward()
    expected, logits.grad = logits.grad, None
    torch.utils.checkpoint.checkpoint(lambda x: cross_entropy(2 * x, target), logits, use_reentrant=False).backward()
    assert torch.equal(logits.grad, expected)
