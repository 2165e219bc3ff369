"""The functional API with every option, on CPU and CUDA: against float64, with bounds from oracle.py."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from conftest import require_cuda

import greyhound
from greyhound.kernels.cross_entropy import cross_entropy_with_grad_kernel

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from greyhound.nn import CrossEntropyLoss  # noqa: E402
from greyhound.nn.functional import (  # noqa: E402
    cross_entropy,
    cross_entropy_with_outputs,
    log_prob_and_entropy,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1, 1), (1, 2), (3, 7), (17, 129), (5, 4099)]
REDUCTIONS = ["none", "mean", "sum"]


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda":
        require_cuda()
    return request.param


def name(dtype):
    return str(dtype).removeprefix("torch.")


def as_numpy(tensor):
    return tensor.detach().cpu().double().numpy()


def same_bits(a, b):
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def draw(generator, shape, device, dtype=torch.float32, ignored=0):
    """Logits that require grad, and targets of which the first `ignored` are -100."""
    logits = torch.from_numpy(4 * generator.standard_normal(shape)).to(device, dtype).requires_grad_()
    target = torch.from_numpy(generator.integers(0, shape[-1], size=shape[:-1])).to(device)
    target.view(-1)[:ignored] = -100
    return logits, target


def draw_weight(generator, vocab, device):
    return torch.from_numpy(generator.uniform(0, 2, size=vocab)).to(device, torch.float32)


# One option at a time, and all at once.
LOSSES = {
    "plain": {},
    "label_smoothing": {"label_smoothing": 0.1},
    "all smoothing": {"label_smoothing": 1.0},
    "weight": {"weight": True},
    "z_loss": {"z_loss_multiplier": 0.125},
    "logit_scale": {"logit_scale": 0.7},
    "softcap": {"softcap": 5.0},
    "all": {
        "weight": True,
        "label_smoothing": 0.1,
        "z_loss_multiplier": -0.01,
        "logit_scale": 1.7,
        "softcap": 8.0,
    },
}


def options_of(loss, generator, vocab, device):
    """An entry of LOSSES as keywords for our function, and for the oracle."""
    ours = dict(LOSSES[loss])
    theirs = dict(ours)
    if ours.pop("weight", False):
        ours["weight"] = draw_weight(generator, vocab, device)
        theirs["weight"] = ours["weight"].cpu().numpy()
    return ours, theirs


def torch_loss(logits, target, weight=None, *, reduction, z_loss_multiplier=0.0, logit_scale=1.0, softcap=0.0, **rest):
    """The same by PyTorch's operations."""
    x = logits * logit_scale
    if softcap:
        x = softcap * torch.tanh(x / softcap)
    rows = torch.nn.functional.cross_entropy(x, target, weight, reduction="none", **rest)
    valid = target != -100
    rows = rows + z_loss_multiplier * x.logsumexp(-1) ** 2 * valid
    if reduction == "none":
        return rows
    if reduction == "sum":
        return rows.sum()
    return rows.sum() / (valid if weight is None else weight[target.clamp(min=0)] * valid).sum()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_oracle_is_torch_in_float64(generator, loss, reduction):
    logits, target = draw(generator, (17, 129), "cpu", torch.float32, ignored=3)
    ours, theirs = options_of(loss, generator, 129, "cpu")
    ours = {
        key: torch.tensor(value, dtype=torch.float32).double().item() for key, value in ours.items() if key != "weight"
    } | {key: value.double() for key, value in ours.items() if key == "weight"}
    upstream = generator.uniform(0.5, 3, size=17 if reduction == "none" else ())
    double = logits.detach().double().requires_grad_()
    expected = torch_loss(double, target, reduction=reduction, **ours)
    expected.backward(torch.tensor(upstream))
    problem = oracle.Options(as_numpy(logits), target.numpy(), "float32", reduction=reduction, dloss=upstream, **theirs)
    # Both in float64: sums of 129 terms of a size below 1000, and of 17 such.
    tolerance = (129 + 17 + 64) * 2**-53 * 1000
    np.testing.assert_allclose(problem.loss.exact, as_numpy(expected), rtol=0, atol=tolerance)
    np.testing.assert_allclose(problem.dlogits.exact, as_numpy(double.grad), rtol=0, atol=tolerance)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_loss_and_gradient_match_float64(generator, device, reduction):
    for dtype in DTYPES:
        for shape in SHAPES:
            for loss in LOSSES:
                check_loss_and_gradient(generator, device, dtype, shape, loss, reduction)


def check_loss_and_gradient(generator, device, dtype, shape, loss, reduction):
    case = f"{name(dtype)} {shape} {loss}"
    logits, target = draw(generator, shape, device, dtype, ignored=shape[0] // 3)
    before = logits.detach().clone()
    ours, theirs = options_of(loss, generator, shape[1], device)
    upstream = generator.uniform(0.5, 3, size=shape[0] if reduction == "none" else ()).astype(np.float32)
    found = cross_entropy(logits, target, reduction=reduction, **ours)
    assert (found.dtype, found.device) == (torch.float32, logits.device), case
    found.backward(torch.from_numpy(np.asarray(upstream)).to(device))
    assert same_bits(logits.detach(), before), case
    assert (logits.grad.shape, logits.grad.dtype) == (logits.shape, dtype), case
    expected = oracle.Options(
        as_numpy(before), target.cpu().numpy(), name(dtype), reduction=reduction, dloss=upstream, **theirs
    )
    if reduction != "none" and dtype is not torch.float16:
        # The gradient is made in the forward pass and scaled in backward: rounded to the dtype, then once more.
        roundoff, step = oracle.ROUNDOFF[name(dtype)]
        extra = roundoff * (np.abs(expected.dlogits.exact) + expected.dlogits.bound) + step * (1 + float(upstream))
        expected.dlogits.bound = expected.dlogits.bound + extra
    expected.loss.check(as_numpy(found), f"{case}: loss")
    expected.dlogits.check(as_numpy(logits.grad), f"{case}: dlogits")


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("loss", LOSSES)
def test_outputs_match_float64(generator, device, dtype, loss):
    logits, target = draw(generator, (17, 129), device, dtype, ignored=5)
    ours, theirs = options_of(loss, generator, 129, device)
    expected = oracle.Options(as_numpy(logits), target.cpu().numpy(), name(dtype), **theirs)
    names = ("entropy", "z_loss", "n_valid", "n_correct", "n_out_of_range", "lse", "target_log_prob", "argmax")
    found = cross_entropy_with_outputs(logits, target, outputs=names, **ours)
    expected.loss.check(as_numpy(found.loss), "loss")
    for field in ("z_loss", "lse", "target_log_prob", "entropy"):
        getattr(expected, field).check(as_numpy(getattr(found, field)), field)
    assert found.n_valid == expected.n_valid == 12 and found.n_out_of_range == 0
    # Distinct logits may round to the same one once they are scaled and capped: then the first counts.
    chosen = torch.where(found.argmax < 0, 0, found.argmax)[:, None]
    assert torch.equal(logits.gather(1, chosen)[:, 0][5:], logits.max(1).values[5:])
    assert torch.equal(found.argmax[:5], torch.full((5,), -1, device=device))
    assert found.n_correct == (found.argmax == target).sum()
    assert found.loss.requires_grad and not any(value.requires_grad for value in found[1:])
    found.loss.backward()
    assert torch.count_nonzero(logits.grad[5:]) > 0


def test_outputs_that_are_not_asked_for_are_none(generator, device):
    logits, target = draw(generator, (2, 3, 5), device, ignored=1)
    found = cross_entropy_with_outputs(logits, target, outputs=["lse", "n_valid"], reduction="none")
    assert [field for field, value in found._asdict().items() if value is not None] == ["loss", "n_valid", "lse"]
    assert found.loss.shape == found.lse.shape == (2, 3) and found.n_valid == 5
    same_lse = torch.where(target == -100, 0, logits.logsumexp(-1))
    # Both in fp32: 5 terms, and a logarithm.
    torch.testing.assert_close(found.lse, same_lse, rtol=0, atol=32 * 2**-24 * 16)


def test_outputs_may_be_modified(generator, device):
    logits, target = draw(generator, (4, 5), device)
    found = cross_entropy_with_outputs(logits, target, outputs=["n_valid", "n_correct", "lse"])
    found.n_correct.add_(1)
    found.lse.zero_()
    found.loss.backward()
    assert found.n_valid == 4


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("upstreams", ["both", "log_prob", "entropy"])
def test_log_prob_and_entropy_match_float64(generator, device, dtype, upstreams):
    logits, target = draw(generator, (17, 129), device, dtype, ignored=5)
    options = {"logit_scale": 0.7, "softcap": 20.0}
    dlog_prob, dentropy = generator.standard_normal((2, 17)).astype(np.float32)
    if upstreams == "entropy":
        dlog_prob[:] = 0
    if upstreams == "log_prob":
        dentropy[:] = 0
    expected = oracle.Options(
        as_numpy(logits),
        target.cpu().numpy(),
        name(dtype),
        reduction="none",
        dloss=-dlog_prob,
        dentropy=dentropy,
        **options,
    )
    log_prob, entropy = log_prob_and_entropy(logits, target, **options)
    expected.target_log_prob.check(as_numpy(log_prob), "log_prob")
    expected.entropy.check(as_numpy(entropy), "entropy")
    wanted = {"both": (log_prob, entropy), "log_prob": (log_prob,), "entropy": (entropy,)}[upstreams]
    upstream = [torch.from_numpy(dlog_prob).to(device), torch.from_numpy(dentropy).to(device)]
    torch.autograd.backward(wanted, [upstream[0 if value is log_prob else 1] for value in wanted])
    expected.dlogits.check(as_numpy(logits.grad), "dlogits")


# ---- Shapes and strides ----------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_leading_dimensions_are_flattened(generator, device, reduction):
    logits, target = draw(generator, (2, 3, 4, 7), device, ignored=2)
    flat = logits.detach().view(-1, 7).requires_grad_()
    loss = cross_entropy(logits, target, reduction=reduction)
    same = cross_entropy(flat, target.view(-1), reduction=reduction)
    assert same_bits(loss.flatten(), same.flatten())
    assert loss.shape == (target.shape if reduction == "none" else ())
    loss.sum().backward()
    same.sum().backward()
    assert same_bits(logits.grad.view(-1, 7), flat.grad)


def test_one_row_without_leading_dimensions(generator, device):
    logits, target = draw(generator, (7,), device)
    loss = cross_entropy(logits, target, reduction="none")
    assert loss.shape == ()
    assert loss == cross_entropy(logits[None], target[None])


def test_strided_rows_are_not_copied(generator, device):
    wide, target = draw(generator, (2, 3, 1024), device)
    narrow = wide.detach()[..., :992]  # tight rows start on lines of 128 bytes too: the same bits
    tight = narrow.contiguous()
    target %= 992
    from greyhound import _torch

    assert _torch.rows_of(narrow).data_ptr() == narrow.data_ptr()
    losses = []
    for logits in (narrow, tight):
        logits.requires_grad_()
        losses.append(cross_entropy(logits, target))
        losses[-1].backward()
    assert same_bits(losses[0], losses[1])
    assert same_bits(narrow.grad, tight.grad)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: x[:1].expand(6, -1),
        lambda x: x.repeat_interleave(2, 1)[:, ::2],
        lambda x: x.view(2, 3, -1)[:, :2],
    ],
    ids=["columns", "expanded", "every other column", "not one stride"],
)
def test_other_layouts_are_copied(generator, device, change):
    logits, _ = draw(generator, (6, 8), device)
    strided = change(logits.detach())
    target = torch.from_numpy(generator.integers(0, 8, size=strided.shape[:-1])).to(device)
    tight = strided.contiguous().requires_grad_()
    strided = strided.requires_grad_()
    for tensor in (strided, tight):
        cross_entropy(tensor, target).backward()
    assert same_bits(strided.grad, tight.grad)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_rows(device, reduction):
    logits = torch.empty(2, 0, 5, device=device, requires_grad=True)
    target = torch.empty(2, 0, dtype=torch.int64, device=device)
    found = cross_entropy_with_outputs(logits, target, outputs=["n_valid", "lse", "argmax"], reduction=reduction)
    assert torch.equal(found.loss, torch.zeros(target.shape if reduction == "none" else (), device=device))
    assert found.n_valid == 0 and found.lse.shape == found.argmax.shape == (2, 0)
    found.loss.sum().backward()
    assert logits.grad.shape == logits.shape
    log_prob, entropy = log_prob_and_entropy(logits, target)
    assert log_prob.shape == entropy.shape == (2, 0)
    (log_prob.sum() + entropy.sum()).backward()


def test_int32_targets_and_strided_targets(generator, device):
    logits, target = draw(generator, (6, 8), device, ignored=1)
    loss = cross_entropy(logits, target)
    assert same_bits(cross_entropy(logits, target.int()), loss)
    assert same_bits(cross_entropy(logits, target.repeat_interleave(2)[::2]), loss)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weight_of_any_floating_dtype(generator, device, dtype):
    logits, target = draw(generator, (6, 8), device)
    weight = draw_weight(generator, 8, device).to(torch.bfloat16)
    expected = cross_entropy(logits, target, weight.float())
    assert same_bits(cross_entropy(logits, target, weight.to(dtype)), expected)
    assert same_bits(cross_entropy(logits, target, weight.to(dtype).repeat_interleave(2)[::2]), expected)


# ---- Autograd --------------------------------------------------------------------------------------


def test_known_upstream_of_one_changes_no_bit(generator, device):
    logits, target = draw(generator, (6, 80), device, torch.bfloat16)
    cross_entropy(logits, target, reduction="sum").backward()
    raw = logits.detach().clone()
    cross_entropy_with_grad_kernel(raw, target)
    assert same_bits(logits.grad, raw)


def test_small_upstream_gradients_survive_float16(generator, device):
    # 8192 rows: a gradient divided by their number is below float16's smallest step, unless the loss scale comes first.
    logits, target = draw(generator, (8192, 64), device, torch.float16)
    (cross_entropy(logits, target) * 8192).backward()
    summed = logits.detach().clone().requires_grad_()
    cross_entropy(summed, target, reduction="sum").backward()
    # The same but for the rounding of two factors, at most one step apart in float16.
    a, b = logits.grad.float(), summed.grad.float()
    assert torch.all((a - b).abs() <= 2**-10 * b.abs() + 2**-24)
    assert torch.count_nonzero(a) > 0.5 * a.numel()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("upstream", [1.0, 3.0])
def test_backward_twice(generator, device, reduction, upstream):
    logits, target = draw(generator, (6, 80), device)
    loss = cross_entropy(logits, target, reduction=reduction).sum() * upstream
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    kept = first.clone()
    first.zero_()  # whoever gets a gradient may do with it what he likes
    (second,) = torch.autograd.grad(loss, logits)
    assert same_bits(second, kept)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, logits)


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_every_backward_scales_the_same_gradient(generator, device, reduction, dtype):
    # Logits close to each other, and factors that are powers of two: nothing underflows, and no product is rounded.
    logits, target = draw(generator, (6, 80), device)
    logits = (logits.detach() / 32).to(dtype).requires_grad_()
    loss = cross_entropy(logits, target, reduction=reduction)
    (once,) = torch.autograd.grad(cross_entropy(logits, target, reduction=reduction), logits)
    for factor, retain_graph in ((1, True), (4, True), (-0.5, True), (1, True), (2, False)):
        dloss = torch.tensor(factor, dtype=torch.float32, device=device)
        (gradient,) = torch.autograd.grad(loss, logits, dloss, retain_graph=retain_graph)
        assert same_bits(gradient, factor * once)
        gradient.zero_()


def test_the_gradient_is_made_in_the_forward_pass_where_it_can_be(generator, device, monkeypatch):
    from greyhound import _torch

    made = []
    forward = _torch.forward

    def spy(*arguments, **keywords):
        loss, dlogits, statistics, others = forward(*arguments, **keywords)
        made.append((dlogits is not None, statistics is not None))
        return loss, dlogits, statistics, others

    monkeypatch.setattr(_torch, "forward", spy)
    for dtype in DTYPES:
        for reduction in REDUCTIONS:
            leaf, target = draw(generator, (6, 80), device, dtype)
            early = reduction != "none" and dtype is not torch.float16
            cross_entropy(leaf, target, reduction=reduction)
            assert made.pop() == (early, not early)
            cross_entropy(1 * leaf, target, reduction=reduction, inplace_backward=True)
            assert made.pop() == (False, True)
            cross_entropy(leaf.detach(), target, reduction=reduction)
            assert made.pop() == (False, False)
            with torch.no_grad():
                cross_entropy(leaf, target, reduction=reduction)
            assert made.pop() == (False, False)


@pytest.mark.parametrize("function", ["cross_entropy", "log_prob_and_entropy"])
def test_double_backward_is_refused(generator, device, function):
    logits, target = draw(generator, (6, 8), device)
    weight = torch.ones(6, 8, device=device, requires_grad=True)
    if function == "cross_entropy":
        loss = cross_entropy(weight * logits, target, reduction="none").sum()
    else:
        loss = sum(value.sum() for value in log_prob_and_entropy(weight * logits, target))
    with pytest.raises(RuntimeError, match="does not support double backward"):
        torch.autograd.grad(loss, weight, create_graph=True)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(generator, device, mode):
    logits, target = draw(generator, (6, 8), device)
    expected = cross_entropy_with_outputs(logits, target, outputs=["lse"])
    with mode():
        found = cross_entropy_with_outputs(logits, target, outputs=["lse"])
        log_prob, entropy = log_prob_and_entropy(logits, target)
    assert not found.loss.requires_grad and not log_prob.requires_grad and not entropy.requires_grad
    assert same_bits(found.lse.clone(), expected.lse)


def test_log_prob_of_logits_without_gradient(generator, device):
    logits, target = draw(generator, (6, 8), device)
    log_prob, entropy = log_prob_and_entropy(logits.detach(), target)
    assert not log_prob.requires_grad and not entropy.requires_grad


# ---- inplace_backward ------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["none", "mean", "sum", "log_prob_and_entropy"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_inplace_backward_takes_the_logits_memory(generator, device, function, dtype):
    leaf, target = draw(generator, (2, 3, 80), device, dtype, ignored=1)

    def gradient_of(inplace):
        logits = 1 * leaf
        grads = []
        logits.register_hook(grads.append)
        if function == "log_prob_and_entropy":
            log_prob, entropy = log_prob_and_entropy(logits, target, inplace_backward=inplace)
            loss = log_prob.sum() + 2 * entropy.sum()
        else:
            loss = 3 * cross_entropy(logits, target, reduction=function, inplace_backward=inplace).sum()
        before = logits.detach().clone()
        assert same_bits(logits.detach(), before)
        loss.backward()
        assert (grads[0].data_ptr() == logits.data_ptr()) == inplace
        return grads[0]

    with_statistics = gradient_of(True)
    expected = gradient_of(False)
    if function in ("mean", "sum") and dtype is not torch.float16:
        # Out of place, a gradient is scaled that was rounded already. Either is a product of up to four factors in
        # fp32, in another order: then one is rounded once and the other twice.
        roundoff, step = oracle.ROUNDOFF[name(dtype)]
        bound = (8 * oracle.E + 3 * roundoff) * expected.double().abs() + 4 * step
        assert torch.all((with_statistics.double() - expected.double()).abs() <= bound)
    else:
        assert same_bits(with_statistics, expected)


def test_inplace_backward_is_noticed_by_autograd(generator, device):
    leaf, target = draw(generator, (6, 8), device)
    logits = torch.tanh(leaf)  # saves its result
    loss = cross_entropy(logits, target, inplace_backward=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    logits = 2 * leaf
    loss = cross_entropy(logits, target, inplace_backward=True)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inplace_backward_where_it_cannot_be(generator, device):
    leaf, target = draw(generator, (6, 8), device)
    with pytest.raises(ValueError, match="inplace_backward: logits is a leaf that requires grad"):
        cross_entropy(leaf, target, inplace_backward=True)
    expanded = (1 * leaf)[:1].expand(6, 8)
    with pytest.raises(ValueError, match=r"inplace_backward: logits of shape .* have to be copied"):
        cross_entropy(expanded, target, inplace_backward=True)


# ---- Checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [-1, 8, 2**40])
def test_validate_names_row_and_value(generator, device, label):
    logits, target = draw(generator, (2, 3, 8), device)
    target[1, 2] = label
    for function in (cross_entropy, log_prob_and_entropy):
        with pytest.raises(IndexError, match=rf"target\[1, 2\] = {label}: not in \[0, 8\)") as caught:
            function(logits, target, validate=True)
        assert caught.type is greyhound.LabelError
    cross_entropy(logits, target, ignore_index=label, validate=True)


def test_labels_out_of_range_are_counted(generator, device):
    logits, target = draw(generator, (6, 8), device)
    target[2] = 8
    found = cross_entropy_with_outputs(logits, target, outputs=["n_out_of_range", "n_valid"], reduction="none")
    assert found.n_out_of_range == 1 and found.n_valid == 6
    assert found.loss[2].isnan() and found.loss[[0, 1, 3, 4, 5]].isfinite().all()
    if device == "cpu":
        with pytest.raises(greyhound.LabelError, match=r"labels\[2\] = 8"):
            found.loss.sum().backward()
    else:
        found.loss.sum().backward()
        assert logits.grad[2].isnan().all() and logits.grad[[0, 1, 3, 4, 5]].isfinite().all()


REFUSED = {
    # what is wrong: (arguments and keywords from logits [2, 4] and target [2], exception, in the message)
    "probabilities": (lambda x, t: ((x, x), {}), TypeError, "target: .*class probabilities are not supported"),
    "classes second": (lambda x, t: ((x[None], t), {}), ValueError, r"target: expected .* \[1, 2\], got \[2\]"),
    "0-d logits": (lambda x, t: ((x[0, 0], t), {}), ValueError, r"logits: expected the shape \[..., vocab\]"),
    "weight is a list": (lambda x, t: ((x, t, [1.0] * 4), {}), TypeError, "weight: expected a torch.Tensor, got list"),
    "integer weight": (lambda x, t: ((x, t, torch.ones(4).long()), {}), TypeError, "weight: expected .*floating-point"),
    "short weight": (
        lambda x, t: ((x, t, x.detach()[0, :3]), {}),
        ValueError,
        r"weight: .*\[vocab\] = \[4\], got \[3\]",
    ),
    "weight requires grad": (lambda x, t: ((x, t, x[0]), {}), ValueError, "weight: requires grad"),
    "weight elsewhere": (lambda x, t: ((x, t, torch.ones(4, device="meta")), {}), ValueError, "weight: on meta"),
    "reduction": (lambda x, t: ((x, t), {"reduction": "avg"}), ValueError, "reduction: expected .*got 'avg'"),
    "reduction's type": (lambda x, t: ((x, t), {"reduction": []}), ValueError, r"reduction: expected .*got \[\]"),
    "smoothing > 1": (lambda x, t: ((x, t), {"label_smoothing": 1.5}), ValueError, "label_smoothing = 1.5"),
    "smoothing's type": (lambda x, t: ((x, t), {"label_smoothing": "0"}), TypeError, "label_smoothing: expected a num"),
    "no scale": (lambda x, t: ((x, t), {"logit_scale": 0.0}), ValueError, "logit_scale = 0"),
    "negative softcap": (lambda x, t: ((x, t), {"softcap": -1.0}), ValueError, "softcap = -1"),
    "infinite z": (lambda x, t: ((x, t), {"z_loss_multiplier": float("inf")}), ValueError, "z_loss_multiplier = inf"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(generator, device, case):
    logits, target = draw(generator, (2, 4), device)
    change, exception, message = REFUSED[case]
    arguments, keywords = change(logits, target)
    with pytest.raises(exception, match=message):
        cross_entropy(*arguments, **keywords)


@pytest.mark.parametrize(
    ("outputs", "exception", "message"),
    [
        ("lse", TypeError, "outputs: expected a sequence of names, got one string"),
        (["loss"], ValueError, "outputs: 'loss' is none of z_loss, n_valid"),
        (["z_loss"], ValueError, "outputs: there is no z_loss with the reduction 'none'"),
    ],
)
def test_refuses_outputs(generator, device, outputs, exception, message):
    logits, target = draw(generator, (2, 4), device)
    with pytest.raises(exception, match=message):
        cross_entropy_with_outputs(logits, target, outputs=outputs, reduction="none")


# ---- The module ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 80), (80,)])
def test_module_takes_torch_s_place(generator, device, reduction, weighted, shape):
    logits, target = draw(generator, shape, device, ignored=len(shape) - 1)
    weight = draw_weight(generator, 80, device) if weighted else None
    options = {"ignore_index": -100, "reduction": reduction, "label_smoothing": 0.1}
    theirs = torch.nn.CrossEntropyLoss(weight, **options)
    ours = CrossEntropyLoss(weight, **options)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    found, expected = ours(logits, target), theirs(logits, target)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    # Both in fp32: logits below 32, sums of 80 and of 6 terms, weights below 2.
    torch.testing.assert_close(found, expected, rtol=(80 + 6 + 32) * 2**-24, atol=(80 + 6 + 32) * 2**-24 * 64)


def test_module_moves_its_weight(generator, device):
    logits, target = draw(generator, (6, 8), device)
    weight = draw_weight(generator, 8, "cpu")
    module = CrossEntropyLoss(weight).to(device)
    assert same_bits(module(logits, target), cross_entropy(logits, target, weight.to(device)))


def test_module_shows_its_options():
    assert repr(CrossEntropyLoss()) == "CrossEntropyLoss()"
    shown = repr(CrossEntropyLoss(torch.ones(3), reduction="sum", softcap=30.0, inplace_backward=True))
    assert shown == "CrossEntropyLoss(reduction='sum', softcap=30.0, inplace_backward=True)"
