"""PyTorch tensors on CPU and CUDA: the raw helper and the functional API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracle
import pytest
from conftest import require_cuda

import greyhound
from greyhound.kernels.cross_entropy import (
    cross_entropy_kernel,
    cross_entropy_with_grad_kernel,
    cross_entropy_workspace_size,
)

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from greyhound.nn.functional import cross_entropy  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1, 1), (1, 2), (3, 7), (17, 129), (5, 4099)]


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda":
        require_cuda()
    return request.param


def draw(generator, batch, vocab, device, dtype=torch.float32, ignored=0):
    """Logits, and targets of which the first `ignored` are -100."""
    logits = torch.from_numpy(4 * generator.standard_normal((batch, vocab))).to(device, dtype)
    target = torch.from_numpy(generator.integers(0, vocab, size=batch)).to(device)
    target[:ignored] = -100
    return logits, target


def as_float64(tensor):
    return tensor.detach().double().cpu().numpy()


def name(dtype):
    return str(dtype).removeprefix("torch.")


def same_bits(a, b):
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


# ---- The raw helper ----------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("z_loss_multiplier", [0.0, 1e-4, -0.25])
def test_kernel_matches_float64(generator, device, dtype, shape, z_loss_multiplier):
    logits, target = draw(generator, *shape, device, dtype, ignored=shape[0] // 3)
    expected = oracle.cross_entropy(as_float64(logits), target.cpu().numpy(), name(dtype), z_loss_multiplier)
    sums = cross_entropy_with_grad_kernel(logits, target, z_loss_multiplier=z_loss_multiplier)
    expected.check(*sums, as_float64(logits))
    assert torch.count_nonzero(logits[target == -100]) == 0


def test_kernel_returns_scalars_on_the_device(generator, device):
    logits, target = draw(generator, 2, 3, device)
    for value in cross_entropy_with_grad_kernel(logits, target):
        assert (value.shape, value.dtype, value.device) == ((), torch.float32, logits.device)
        assert not value.requires_grad
        value += torch.ones((), device=device, requires_grad=True)  # no part of the other two, to autograd either


def test_kernel_without_rows(device):
    logits, target = torch.empty(0, 5, device=device), torch.empty(0, dtype=torch.int64, device=device)
    assert [value.item() for value in cross_entropy_with_grad_kernel(logits, target)] == [0, 0, 0]


def test_kernel_on_unaligned_rows(generator, device):
    storage, target = draw(generator, 1, 31, device, torch.bfloat16)
    logits = storage.view(-1)[1:].view(6, 5)
    target = target % 5 + torch.zeros(6, dtype=torch.int64, device=device)
    first = storage[0, 0].item()
    expected = oracle.cross_entropy(as_float64(logits), target.cpu().numpy(), "bfloat16")
    expected.check(*cross_entropy_with_grad_kernel(logits, target), as_float64(logits))
    assert storage[0, 0].item() == first


REFUSED = {
    # what is wrong: (arguments from logits [2, 4] and target [2], exception, in the message)
    "target is a list": (lambda x, t: (x, t.tolist()), TypeError, "target: expected a torch.Tensor.*got list"),
    "target is NumPy's": (lambda x, t: (x, t.cpu().numpy()), TypeError, "target: expected a torch.Tensor.*got ndarray"),
    "float64": (lambda x, t: (x.double(), t), TypeError, "logits: expected float32.*torch.float64"),
    "int16 target": (lambda x, t: (x, t.short()), TypeError, "target: expected int64 or int32, got torch.int16"),
    "sparse": (lambda x, t: (x.to_sparse(), t), TypeError, "dense tensors.*torch.sparse_coo"),
    "2-d target": (lambda x, t: (x, t[:, None]), ValueError, r"target: expected.*\[2\], got \[2, 1\]"),
    "short target": (lambda x, t: (x, t[:1]), ValueError, r"target: expected.*\[2\], got \[1\]"),
    "no classes": (lambda x, t: (x[:, :0].contiguous(), t), ValueError, "vocab = 0"),
    "logits on meta": (lambda x, t: (x.to("meta"), t), ValueError, "logits: expected a CPU or CUDA tensor.*meta"),
    "target on meta": (lambda x, t: (x, t.to("meta")), ValueError, "target: on meta, but logits is on (cpu|cuda)"),
}
REFUSED_BY_KERNEL_ONLY = {
    "int32 target": (lambda x, t: (x, t.int()), TypeError, "target: expected int64, got torch.int32"),
    "1-d logits": (lambda x, t: (x[0], t), ValueError, r"logits: expected the shape \[batch, vocab\], got \[4\]"),
    "3-d logits": (lambda x, t: (x[None], t), ValueError, r"logits: .*got \[1, 2, 4\]"),
    "logits is a list": (
        lambda x, t: (x.tolist(), t),
        TypeError,
        "logits: expected a torch.Tensor, a numpy.ndarray or a cupy.ndarray",
    ),
    "strided logits": (lambda x, t: (x[:, ::2], t), ValueError, r"logits: must be contiguous.*\(4, 2\)"),
    "strided target": (lambda x, t: (x, t.repeat_interleave(2)[::2]), ValueError, "target: must be contiguous"),
    "overlap": (lambda x, t: (x, x.view(torch.int64).view(-1)[:2]), ValueError, "labels.*overlaps logits"),
    "requires grad": (lambda x, t: (x.requires_grad_(), t), ValueError, "logits: requires grad"),
}


@pytest.mark.parametrize("case", REFUSED | REFUSED_BY_KERNEL_ONLY)
def test_kernel_refuses_and_writes_nothing(generator, device, case):
    logits, target = draw(generator, 2, 4, device)
    before = logits.clone()
    change, exception, message = (REFUSED | REFUSED_BY_KERNEL_ONLY)[case]
    arguments = change(logits, target)
    with pytest.raises(exception, match=message):
        cross_entropy_with_grad_kernel(*arguments)
    assert same_bits(logits.detach(), before)


def test_kernel_takes_a_parameter_under_no_grad(generator, device):
    logits, target = draw(generator, 2, 4, device)
    parameter = torch.nn.Parameter(logits.clone())
    with torch.no_grad():
        cross_entropy_with_grad_kernel(parameter, target)
    cross_entropy_with_grad_kernel(logits, target)
    assert same_bits(parameter.detach(), logits)


def test_kernel_takes_a_subclass(generator, device):
    class Subclass(torch.Tensor):
        pass

    logits, target = draw(generator, 2, 4, device)
    subclass = logits.clone().as_subclass(Subclass)
    sums = cross_entropy_with_grad_kernel(subclass, target.as_subclass(Subclass))
    expected = cross_entropy_with_grad_kernel(logits, target)
    assert same_bits(subclass.as_subclass(torch.Tensor), logits)
    assert [value.item() for value in sums] == [value.item() for value in expected]


def test_kernel_refuses_a_view_of_a_leaf(generator, device):
    logits, target = draw(generator, 3, 4, device)
    leaf = logits.clone().requires_grad_()
    for _ in range(2):
        with pytest.raises(ValueError, match="logits: requires grad"):
            cross_entropy_with_grad_kernel(leaf[:2], target[:2])
    assert same_bits(leaf.detach(), logits)
    with torch.no_grad():
        cross_entropy_with_grad_kernel(leaf[:2], target[:2])
    cross_entropy_with_grad_kernel(logits[:2], target[:2])
    assert same_bits(leaf.detach(), logits)


@pytest.mark.parametrize("ignore_index", [-(2**63), -1, 2, 2**31, 2**63 - 1])
def test_kernel_takes_any_ignore_index(generator, device, ignore_index):
    logits, target = draw(generator, 5, 4, device)
    target[0] = ignore_index
    sums = cross_entropy_with_grad_kernel(logits, target, ignore_index=ignore_index)
    assert sums[2] == (target != ignore_index).sum()
    assert torch.count_nonzero(logits[0]) == 0


def test_kernel_takes_inference_tensors(generator, device):
    logits, target = draw(generator, 2, 4, device)
    with torch.inference_mode():
        inference = logits.clone()
        cross_entropy_with_grad_kernel(inference, target)
    cross_entropy_with_grad_kernel(logits, target)
    assert same_bits(inference.clone(), logits)


def test_kernel_leaves_inference_tensors_alone_outside_inference_mode(generator, device):
    logits, target = draw(generator, 2, 4, device)
    with torch.inference_mode():
        inference = logits.clone()
    with pytest.raises(ValueError, match="inference tensor"):
        cross_entropy_with_grad_kernel(inference, target)
    assert same_bits(inference.clone(), logits)


def test_autograd_notices_that_the_kernel_overwrote_a_saved_tensor(generator, device):
    logits, target = draw(generator, 2, 4, device)
    weight = torch.ones(2, 4, device=device, requires_grad=True)
    product = (weight * logits).sum()  # saves logits
    cross_entropy_with_grad_kernel(logits, target)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_kernel_sums_are_each_calls_own(generator, device):
    logits, target = draw(generator, 3, 5, device)
    target[0] = -100
    calls = []
    for i in range(100):
        with torch.inference_mode(i % 3 == 0):
            sums = cross_entropy_with_grad_kernel(logits.clone(), target)
        calls.append([value.clone() for value in sums])
        for value in sums:
            assert value.shape == () and not value.is_inference()
            value.fill_(7)  # another call's must not notice
    for sums in calls[1:]:
        assert sums == calls[0]  # two terms: their order does not matter
    assert calls[0][2] == 2


@pytest.mark.parametrize("streams", [1, 2])
def test_kernel_sums_of_threads_are_apart(generator, device, streams):
    if streams > 1 and device == "cpu":
        pytest.skip("the CPU has no streams")
    logits, target = draw(generator, 1, 5, device)
    expected = [value.item() for value in cross_entropy_with_grad_kernel(logits.clone(), target)]

    def work(i):
        stream = torch.cuda.Stream() if streams > 1 else None
        with torch.cuda.stream(stream):
            calls = [cross_entropy_with_grad_kernel(logits.clone(), target) for _ in range(200)]
            return [[value.item() for value in sums] for sums in calls]

    with ThreadPoolExecutor(8) as pool:
        for calls in pool.map(work, range(8)):
            assert calls == [expected] * 200


# ---- The functional API ------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("z_loss_multiplier", [0.0, 0.125])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_functional_matches_float64(generator, device, dtype, shape, z_loss_multiplier, reduction):
    logits, target = draw(generator, *shape, device, dtype, ignored=shape[0] // 3)
    before = logits.clone()
    logits.requires_grad_()
    upstream = float(generator.uniform(0.5, 3))
    loss = cross_entropy(logits, target, z_loss_multiplier=z_loss_multiplier, reduction=reduction)
    assert (loss.shape, loss.dtype, loss.device) == ((), torch.float32, logits.device)
    (upstream * loss).backward()
    assert same_bits(logits.detach(), before)
    assert (logits.grad.shape, logits.grad.dtype) == (logits.shape, dtype)

    expected = oracle.cross_entropy(as_float64(before), target.cpu().numpy(), name(dtype), z_loss_multiplier)
    divisor = max(expected.n_valid, 1) if reduction == "mean" else 1
    exact = (expected.ce_sum + z_loss_multiplier * expected.z_sum) / divisor
    bound = (expected.ce_bound + z_loss_multiplier * expected.z_bound) / divisor
    assert abs(loss.item() - exact) <= bound + 4 * oracle.E * (abs(exact) + bound)  # the last sum, product, quotient

    # Scaled in fp32 (upstream, quotient and product each rounded), then rounded to dtype once more.
    scale = upstream / divisor
    roundoff, step = oracle.ROUNDOFF[name(dtype)]
    exact = expected.dlogits * scale
    bound = expected.dlogits_bound * scale
    bound = bound + (roundoff + 4 * oracle.E) * (np.abs(exact) + bound) + step
    assert np.all(np.abs(as_float64(logits.grad) - exact) <= bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_functional_scale_is_not_rounded_to_the_dtype(generator, device, dtype):
    logits, target = draw(generator, 3, 1000, device, dtype)
    scale = torch.tensor(1.1, device=device)
    assert scale.to(torch.bfloat16) != scale and scale.to(torch.float16) != scale
    expected = torch.empty_like(logits)
    size = cross_entropy_workspace_size(None if device == "cpu" else 0)
    workspace = torch.empty(size, dtype=torch.uint8, device=device)
    # Where the gradient is made in the forward pass already, it is scaled afterwards, in float32.
    scaled_later = dtype is not torch.float16
    cross_entropy_kernel(
        logits,
        target,
        dlogits=expected,
        reduction="mean",
        dloss=1.0 if scaled_later else scale,
        workspace=workspace if size else None,
    )
    if scaled_later:
        expected = (expected.float() * scale).to(dtype)
    logits.requires_grad_()
    (1.1 * cross_entropy(logits, target)).backward()
    assert same_bits(logits.grad, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_functional_with_every_row_ignored(generator, device, reduction):
    logits, target = draw(generator, 4, 5, device, ignored=4)
    logits.requires_grad_()
    loss = cross_entropy(logits, target, reduction=reduction, z_loss_multiplier=0.1)
    loss.backward()
    assert loss.item() == 0
    assert torch.count_nonzero(logits.grad) == 0 and logits.grad.shape == logits.shape


def test_functional_takes_strided_tensors(generator, device):
    wide, target = draw(generator, 6, 10, device)
    plain = wide[::2, 1:8].contiguous().requires_grad_()
    cross_entropy(plain, target[::2].contiguous() % 7).backward()
    for strided in (wide[::2, 1:8], wide[::2, 1:8].t().contiguous().t()):
        strided = strided.detach().requires_grad_()
        assert not strided.is_contiguous()
        cross_entropy(strided, target[::2] % 7).backward()
        assert torch.equal(strided.grad, plain.grad)


def test_functional_passes_the_gradient_on(generator, device):
    hidden, target = draw(generator, 5, 3, device)
    weight = torch.nn.Parameter(draw(generator, 7, 3, device)[0])
    cross_entropy(hidden @ weight.t(), target).backward()
    dlogits = (hidden @ weight.detach().t()).contiguous()
    cross_entropy_with_grad_kernel(dlogits, target)
    # The same dlogits / 5, up to the roundings of a quotient, a product and 5-term sums.
    torch.testing.assert_close(
        weight.grad, dlogits.t() @ hidden / 5, rtol=0, atol=16 * 2**-24 * hidden.abs().sum().item()
    )


def test_functional_where_no_gradient_is_needed(generator, device):
    logits, target = draw(generator, 2, 3, device)
    expected = cross_entropy(logits.clone().requires_grad_(), target).item()
    loss = cross_entropy(logits, target)
    loss.backward()
    assert logits.grad is None
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            quiet = cross_entropy(logits, target)
        assert not quiet.requires_grad
        assert quiet.item() == loss.item() == expected


def test_functional_loss_may_be_modified_in_place(generator, device):
    logits, target = draw(generator, 2, 3, device)
    for requires_grad in (False, True):
        leaf = logits.clone().requires_grad_(requires_grad)
        for reduction in ("mean", "sum"):
            loss = cross_entropy(leaf, target, reduction=reduction)
            loss *= 2
            loss.backward()


def test_functional_in_threads(generator, device):
    logits, target = draw(generator, 64, 257, device)

    def step(logits):
        leaf = logits.clone().requires_grad_()
        loss = cross_entropy(leaf, target)
        loss.backward()
        return loss.detach(), leaf.grad

    batches = [logits * i for i in range(8)]
    expected = [step(batch) for batch in batches]

    def work(i):
        return [step(batches[i]) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        for (loss, gradient), found in zip(expected, pool.map(work, range(8)), strict=True):
            assert all(torch.equal(loss, other[0]) and torch.equal(gradient, other[1]) for other in found)


def test_functional_backward_twice(generator, device):
    logits, target = draw(generator, 2, 3, device)
    logits.requires_grad_()
    loss = cross_entropy(logits, target)
    loss.backward(retain_graph=True)
    once = logits.grad.clone()
    loss.backward()
    assert torch.equal(logits.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_functional_refuses_double_backward(generator, device):
    logits, target = draw(generator, 2, 3, device)
    weight = torch.ones(2, 3, device=device, requires_grad=True)
    # The product's own second derivative exists: what must not happen is that ours silently counts as 0.
    loss = cross_entropy(weight * logits, target)
    with pytest.raises(RuntimeError, match="does not support double backward"):
        torch.autograd.grad(loss, weight, create_graph=True)
    with pytest.raises(RuntimeError, match="does not support double backward"):
        cross_entropy(weight * logits, target).backward(create_graph=True)


@pytest.mark.parametrize("case", REFUSED)
def test_functional_refuses(generator, device, case):
    logits, target = draw(generator, 2, 4, device)
    change, exception, message = REFUSED[case]
    arguments = change(logits, target)
    with pytest.raises(exception, match=message):
        cross_entropy(*arguments)


@pytest.mark.parametrize(
    ("keyword", "value", "exception", "message"),
    [
        ("reduction", "avg", ValueError, "reduction: expected 'none', 'mean' or 'sum', got 'avg'"),
        ("z_loss_multiplier", float("nan"), ValueError, "z_loss_multiplier = -?nan"),
        ("z_loss_multiplier", "0", TypeError, "z_loss_multiplier: expected a number, got str"),
        ("ignore_index", 2**63, ValueError, "ignore_index = 9223372036854775808: does not fit"),
        ("ignore_index", 1.0, TypeError, "ignore_index: expected an integer, got float"),
    ],
)
def test_functional_refuses_options(generator, device, keyword, value, exception, message):
    logits, target = draw(generator, 2, 4, device)
    with pytest.raises(exception, match=message):
        cross_entropy(logits, target, **{keyword: value})


def test_functional_refuses_other_arrays():
    with pytest.raises(TypeError, match=r"logits: expected a torch\.Tensor, got ndarray"):
        cross_entropy(np.zeros((1, 1), np.float32), np.zeros(1, np.int64))
    with pytest.raises(TypeError, match=r"logits: expected a torch\.Tensor, got list"):
        cross_entropy([[0.0]], [0])


def test_label_out_of_range_on_cpu(generator):
    logits, target = draw(generator, 2, 4, "cpu")
    target[1] = 4
    before = logits.clone()
    for function in (cross_entropy_with_grad_kernel, cross_entropy):
        with pytest.raises(greyhound.LabelError, match=r"labels\[1\] = 4"):
            function(logits, target)
    assert same_bits(logits, before)


# ---- CUDA alone --------------------------------------------------------------


@pytest.fixture
def cuda():
    require_cuda()
    return torch.device("cuda", torch.cuda.current_device())


def test_tensors_on_different_devices(cuda, generator):
    logits, target = draw(generator, 2, 4, cuda)
    for function in (cross_entropy_with_grad_kernel, cross_entropy):
        with pytest.raises(ValueError, match="target: on cpu, but logits is on cuda:"):
            function(logits, target.cpu())
        with pytest.raises(ValueError, match=r"target: on cuda:.*, but logits is on cpu"):
            function(logits.cpu(), target)


def test_label_out_of_range_on_cuda(cuda, generator):
    logits, target = draw(generator, 3, 5, cuda)
    good = logits.clone()
    cross_entropy_with_grad_kernel(good, target)
    target[1] = 5
    leaf = logits.clone().requires_grad_()
    loss = cross_entropy(leaf, target)
    loss.backward()
    assert loss.isnan() and leaf.grad[1].isnan().all() and leaf.grad[[0, 2]].isfinite().all()
    ce_sum, z_sum, n_valid = cross_entropy_with_grad_kernel(logits, target)
    assert ce_sum.isnan() and z_sum.isnan() and n_valid == 3
    assert logits[1].isnan().all()
    assert same_bits(logits[[0, 2]], good[[0, 2]])


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("inplace_backward", [False, True])
def test_functional_waits_for_nothing(cuda, generator, reduction, inplace_backward):
    leaf, target = draw(generator, 64, 1000, cuda)
    leaf.requires_grad_()
    weight = torch.ones(1000, device=cuda)

    def step():
        logits = 1 * leaf
        loss = cross_entropy(logits, target, weight, reduction=reduction, inplace_backward=inplace_backward)
        (2 * loss).sum().backward()

    step()  # the first launch may wait for its code to be loaded
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(10**9)
        step()
        assert not torch.cuda.current_stream().query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()


def test_functional_uses_no_more_memory_than_the_gradient(cuda, generator):
    leaf, target = draw(generator, 512, 32000, cuda, torch.bfloat16)
    leaf.requires_grad_()
    size = leaf.numel() * leaf.element_size()
    cross_entropy(1 * leaf, target).backward()
    leaf.grad = None
    for inplace_backward, copies in ((False, 1), (True, 0)):
        logits = 1 * leaf
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        (gradient,) = torch.autograd.grad(cross_entropy(logits, target, inplace_backward=inplace_backward), logits)
        used = torch.cuda.max_memory_allocated() - before
        # Beside it: 32 bytes a row, the workspace, and single numbers; in blocks of 512 bytes.
        assert copies * size <= used < copies * size + 512 * 64 + cross_entropy_workspace_size() + 4096
        del gradient


def test_functional_keeps_the_gradient_instead_of_the_logits(cuda, generator):
    leaf, target = draw(generator, 512, 32000, cuda, torch.bfloat16)
    leaf.requires_grad_()
    size = leaf.numel() * leaf.element_size()
    cross_entropy(1 * leaf, target).backward()
    before = torch.cuda.memory_allocated()
    loss = cross_entropy(1 * leaf, target)
    # Beside it: single numbers, in blocks of 512 bytes.
    assert size <= torch.cuda.memory_allocated() - before < size + 4096
    del loss


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("inplace_backward", [False, True])
def test_capture_forward_and_backward_into_a_graph(cuda, generator, reduction, inplace_backward):
    static, target = draw(generator, 8, 1000, cuda)

    def step():
        leaf.grad = None
        logits = 1 * leaf
        loss = cross_entropy(logits, target, reduction=reduction, inplace_backward=inplace_backward).sum()
        (3 * loss).backward()
        # A loss that keeps its graph would keep the leaf's AccumulateGrad, which belongs to the stream that it was
        # made on, for the next step on another stream.
        return loss.detach()

    leaf = static.clone().requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()  # allocations of the first backward must not be the graph's
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    captured = leaf.grad
    for _ in range(3):
        fresh, _ = draw(generator, 8, 1000, cuda)
        with torch.no_grad():
            leaf.copy_(fresh)
        graph.replay()
        found_loss, found = loss.clone(), captured.clone()
        expected_loss = step()
        assert same_bits(found, leaf.grad)
        torch.testing.assert_close(found_loss, expected_loss, rtol=8 * 2**-23, atol=0)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_nothing_waits_for_the_device(cuda, generator):
    logits, target = draw(generator, 64, 1000, cuda)
    cross_entropy_with_grad_kernel(logits, target)  # the first launch may wait for its code to be loaded
    torch.cuda.set_sync_debug_mode("error")
    try:
        cross_entropy_with_grad_kernel(logits, target)
        cross_entropy(logits.requires_grad_(), target).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    # The mode sees PyTorch's own waits. A wait inside the library would outlast this stream's sleep.
    logits = logits.detach()
    torch.cuda._sleep(10**9)
    cross_entropy_with_grad_kernel(logits, target)
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


def test_runs_on_the_current_stream(cuda, generator):
    logits, target = draw(generator, 8, 1000, cuda)
    expected = logits.clone()
    cross_entropy_with_grad_kernel(expected, target)
    late = torch.zeros_like(logits)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10**8)
        late.copy_(logits)
        cross_entropy_with_grad_kernel(late, target)
    stream.synchronize()
    assert same_bits(late, expected)


def test_capture_into_a_graph(cuda, generator):
    logits, target = draw(generator, 8, 1000, cuda)
    expected = logits.clone()
    expected_sums = cross_entropy_with_grad_kernel(expected, target)
    static = logits.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sums = cross_entropy_with_grad_kernel(static, target)
    for _ in range(3):
        static.copy_(logits)
        graph.replay()
        assert same_bits(static, expected)
        # Rows are added up in no fixed order: 8 terms.
        for value, other in zip(sums, expected_sums, strict=True):
            torch.testing.assert_close(value, other, rtol=8 * 2**-23, atol=0)


def test_each_graph_zeroes_its_own_sums(cuda, generator):
    logits, target = draw(generator, 8, 1000, cuda)
    expected_sums = cross_entropy_with_grad_kernel(logits.clone(), target)
    static = logits.clone()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        cross_entropy_with_grad_kernel(static, target)  # leaves zeroed sums for this stream
    torch.cuda.synchronize()
    graphs = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
    sums = []
    for graph in graphs:
        with torch.cuda.graph(graph, stream=stream):
            sums.append(cross_entropy_with_grad_kernel(static, target))
    for _ in range(2):
        for graph, found in zip(reversed(graphs), reversed(sums), strict=True):
            static.copy_(logits)
            graph.replay()
            for value, other in zip(found, expected_sums, strict=True):
                torch.testing.assert_close(value, other, rtol=8 * 2**-23, atol=0)


def test_on_a_device_that_is_not_current(cuda, generator):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    other = torch.device("cuda", (cuda.index + 1) % torch.cuda.device_count())
    logits, target = draw(generator, 8, 1000, other)
    expected = oracle.cross_entropy(as_float64(logits), target.cpu().numpy(), "float32")
    for stream in (torch.cuda.default_stream(other), torch.cuda.Stream(other)):
        mine = logits.clone()
        torch.cuda.synchronize(other)
        with torch.cuda.stream(stream), torch.cuda.device(cuda):
            sums = cross_entropy_with_grad_kernel(mine, target)
            assert torch.cuda.current_device() == cuda.index
            leaf = logits.clone().requires_grad_()
            cross_entropy(leaf, target, reduction="sum").backward()
            assert torch.cuda.current_device() == cuda.index
        torch.cuda.synchronize(other)
        expected.check(*sums, as_float64(mine))
        assert leaf.grad.device == logits.device and leaf.grad.isfinite().all()
    with pytest.raises(ValueError, match=f"target: on {cuda}, but logits is on {other}"):
        cross_entropy_with_grad_kernel(logits, target.to(cuda))
