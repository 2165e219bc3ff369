"""Losses as functions of PyTorch tensors, with autograd.

How the gradient comes about, in one of two ways.

In the forward pass already: "mean" and "sum" of float32 and bfloat16. One read of the
logits and one write of the gradient, and the logits need not be kept. The
backward pass hands the gradient out, multiplied in place by the upstream gradient
unless that is 1. The device finds out whether it is: nobody waits for the answer. A
gradient that is multiplied is rounded a second time; but these two dtypes have float32's
range, so that none was rounded to 0 before that.

In the backward pass: all else. The forward pass saves 32 bytes per row, and the
backward pass turns the logits into the gradient with one more read of them. All
factors are multiplied in float32, and the result is rounded once. float16 needs
that: a gradient divided by the number of rows would be rounded to 0 before a loss
scale could save it. "none" needs it, since its upstream gradients differ from row to row;
``inplace_backward`` does, since its memory is the logits' until then; and a compiler sees
operators, which may not write into what they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "greyhound.nn.functional needs PyTorch, which is not installed; "
        "greyhound.kernels.cross_entropy works on NumPy arrays without it",
        name="torch",
    ) from error

from greyhound import _torch, _torch_ops
from greyhound._arguments import LossOptions, as_index, as_number, check_leading_shapes, loss_options

__all__ = ["CrossEntropyOutputs", "cross_entropy", "cross_entropy_with_outputs", "log_prob_and_entropy"]

Reduction = Literal["none", "mean", "sum"]


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    z_loss_multiplier: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    inplace_backward: bool = False,
    validate: bool = False,
) -> torch.Tensor:
    """Cross-entropy of ``logits`` with class indices, differentiable in the logits.

    With ``x_j = logit_scale * logits[i, j]``, capped to ``softcap * tanh(x_j / softcap)`` if softcap is
    positive, ``lse_i = log(sum_j exp(x_j))``, ``e = label_smoothing`` and ``w = weight`` or 1, the loss
    of a row whose target ``y`` is not ``ignore_index`` is::

        loss_i = (1 - e) * w[y] * (lse_i - x_y)
               + e / vocab * sum_j(w[j] * (lse_i - x_j))
               + z_loss_multiplier * lse_i ** 2

    and 0 for the others. ``"sum"`` adds them up; ``"mean"`` divides the sum by the number of rows that
    are not ignored, or with ``weight`` by the sum of their ``w[y]``. The first two terms and the
    reductions are those of ``torch.nn.functional.cross_entropy``, except that the mean over no rows
    is 0, with gradient 0, and not NaN.

    ``logits`` is left as it was, and no other memory of its size is used than the gradient's. Nothing
    waits for a CUDA device. It may be compiled with ``torch.compile(fullgraph=True)`` and captured
    into a CUDA graph. Under autocast nothing is cast: the arithmetic is in float32 already.

    Args:
        logits: ``[..., vocab]``, float32, float16 or bfloat16, on CPU or CUDA. The classes are the
            *last* dimension (PyTorch's function wants them second). Rows may be strided if all lie equally far
            apart; other layouts are copied. If it does not require grad, the loss still has a
            ``backward()``, which does nothing.
        target: ``[...]``, int64 or int32, on the same device: the class of each row, in
            ``[0, vocab)`` or ``ignore_index``.
        weight: ``[vocab]``, floating point, on the same device: a factor for each class; or None.
        ignore_index: any int64, also one inside ``[0, vocab)``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: in ``[0, 1]``.
        z_loss_multiplier: finite; 0 turns the z-loss off.
        logit_scale: finite and positive; an inverse temperature.
        softcap: finite and positive, or 0: off.
        inplace_backward: **overwrites the memory of** ``logits`` **with their gradient in** ``backward()``,
            which then allocates nothing of their size. Only for logits that nobody reads after that.
            Tensors that share their memory change too. A second ``backward()`` raises. Under
            ``torch.compile`` it has no effect: there, memory is the compiler's to plan.
        validate: check that all labels are in range, and wait for the device to find out. Breaks the graph
            under ``torch.compile``.

    Returns:
        A tensor on the logits' device, 0-d, or of the target's shape for ``"none"``. It is float32
        whatever the logits' dtype.

    Raises:
        TypeError: an argument's type, dtype or layout is not supported.
        ValueError: a shape, device or value is not as said above, or ``inplace_backward`` is asked
            for logits that cannot be overwritten: leaves that require grad, or expanded memory.
        LabelError: a ``ValueError`` and an ``IndexError``; with ``validate``, and always on the CPU, a
            target out of range. Without it on CUDA, where nobody may wait for the answer, the loss
            and that row's gradient become NaN instead.
        RuntimeError: the library has no CUDA engine, there is no usable CUDA device, or CUDA
            reports an error; in ``backward``, a graph of it was asked for (``create_graph=True``):
            double backward is not supported.
        LibraryNotFoundError: a ``RuntimeError``; libgreyhound could not be loaded.
    """
    options = loss_options(ignore_index, reduction, label_smoothing, z_loss_multiplier, logit_scale, softcap)
    loss, _ = _loss(logits, target, weight, options, (), inplace_backward, validate)
    return loss


class CrossEntropyOutputs(NamedTuple):
    """The loss, and what else was asked for; None for what was not. Only the loss is differentiable.

    Rows whose target is ``ignore_index`` have 0 in their outputs, and an argmax of -1.
    """

    #: As ``cross_entropy`` returns it.
    loss: torch.Tensor
    #: 0-d float32, the part of the loss that is ``z_loss_multiplier * lse ** 2``. Not for the reduction "none".
    z_loss: torch.Tensor | None = None
    #: 0-d float32, rows that are not ignored.
    n_valid: torch.Tensor | None = None
    #: 0-d float32, rows whose argmax is the target.
    n_correct: torch.Tensor | None = None
    #: 0-d float32, rows whose target is out of range. If asked for, such a target makes the loss NaN on the CPU too,
    #: and is an error there no earlier than in backward().
    n_out_of_range: torch.Tensor | None = None
    #: ``[...]`` float32, the log-sum-exp of each row.
    lse: torch.Tensor | None = None
    #: ``[...]`` float32, the target's log-probability, without smoothing or weight.
    target_log_prob: torch.Tensor | None = None
    #: ``[...]`` float32, the entropy of each row's softmax, in nats.
    entropy: torch.Tensor | None = None
    #: ``[...]`` int64, the first index of the largest logit; -1 also if the row's loss is NaN.
    argmax: torch.Tensor | None = None


def cross_entropy_with_outputs(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    outputs: Sequence[str],
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    z_loss_multiplier: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    inplace_backward: bool = False,
    validate: bool = False,
) -> CrossEntropyOutputs:
    """``cross_entropy``, and what the same pass over the logits can tell besides: accuracy, lse, entropy, ...

    Args:
        outputs: names of fields of ``CrossEntropyOutputs``. What is not named is not computed.
        others: as for ``cross_entropy``.

    Returns:
        A ``CrossEntropyOutputs``: a named tuple.

    Raises:
        ValueError: ``outputs`` holds another name, or ``"z_loss"`` with the reduction ``"none"``; and
            what ``cross_entropy`` raises.
    """
    options = loss_options(ignore_index, reduction, label_smoothing, z_loss_multiplier, logit_scale, softcap)
    wanted = _check_outputs(outputs, options.reduction)
    loss, found = _loss(logits, target, weight, options, wanted, inplace_backward, validate)
    return CrossEntropyOutputs(loss, **found)


def log_prob_and_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    inplace_backward: bool = False,
    validate: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The target's log-probability and the entropy of each row, both differentiable in the logits.

    What policy-gradient methods want of a language model's logits, in one pass over them, and one
    more in ``backward``. ``logit_scale`` is the inverse of the sampling temperature. All arguments are
    as for ``cross_entropy``, and so is what is raised.

    Returns:
        ``(log_prob, entropy)``, float32 of the target's shape, in nats. Rows whose target is
        ``ignore_index`` have 0 in both, and a gradient of 0.
    """
    options = LossOptions(
        as_index(ignore_index),
        "none",
        logit_scale=as_number("logit_scale", logit_scale),
        softcap=as_number("softcap", softcap),
    )
    rows, labels, _ = _prepare(logits, target, None, options, inplace_backward, validate)
    if _torch_ops.in_use(logits):
        log_prob, entropy, _ = _torch_ops.log_prob_and_entropy(
            rows, labels, options.ignore_index, options.logit_scale, options.softcap
        )
    else:
        log_prob, entropy = _apply_log_prob_and_entropy(rows, labels, options, inplace_backward)
    return log_prob.view(target.shape), entropy.view(target.shape)


# ---- Arguments -----------------------------------------------------------------------------------

_OUTPUTS = CrossEntropyOutputs._fields[1:]


def _check_outputs(outputs: Sequence[str], reduction: str) -> tuple[str, ...]:
    if isinstance(outputs, str):
        raise TypeError(f"outputs: expected a sequence of names, got one string, {outputs!r}")
    for name in outputs:
        if name not in _OUTPUTS:
            raise ValueError(f"outputs: {name!r} is none of {', '.join(_OUTPUTS)}")
    if "z_loss" in outputs and reduction == "none":
        raise ValueError("outputs: there is no z_loss with the reduction 'none'")
    return tuple(outputs)


def _prepare(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    options: LossOptions,
    inplace_backward: bool,
    validate: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Logits, target and weight as ``greyhound._torch`` takes them."""
    if not isinstance(logits, torch.Tensor):
        raise TypeError(f"logits: expected a torch.Tensor, got {type(logits).__name__}")
    _torch.check(logits, target)
    shape = logits.shape
    check_leading_shapes(shape, target.shape)
    if shape[-1] == 0:
        raise ValueError("logits: no classes, vocab = 0")
    rows = _torch.rows_of(logits)
    if inplace_backward and not _torch_ops.in_use(logits):
        if logits.is_leaf and logits.requires_grad:
            raise ValueError("inplace_backward: logits is a leaf that requires grad; its values would be lost")
        if rows.data_ptr() != logits.data_ptr():
            raise ValueError(
                f"inplace_backward: logits of shape {list(logits.shape)} and strides {logits.stride()} have to be "
                "copied into rows, so that their own memory cannot be used"
            )
    if validate:
        _torch.check_labels(target, shape[-1], options.ignore_index)
    labels = target if len(shape) == 2 else target.reshape(-1)
    return rows, labels.contiguous(), _torch.prepare_weight(weight, logits)


# ---- The loss ------------------------------------------------------------------------------------


def _loss(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    options: LossOptions,
    outputs: tuple[str, ...],
    inplace_backward: bool,
    validate: bool,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    uses_operators = _torch_ops.in_use(logits)
    unusual = uses_operators or weight is not None or inplace_backward or validate
    if unusual or _torch.device_if_plain(logits, target) is None:
        rows, labels, weight = _prepare(logits, target, weight, options, inplace_backward, validate)
    else:
        rows, labels = logits, target
    needs_gradient = torch.is_grad_enabled() and logits.requires_grad
    others: Any
    if uses_operators:
        loss, _, *others = _torch_ops.cross_entropy(rows, labels, weight, *options, needs_gradient, outputs)
    else:
        early = (
            needs_gradient
            and not inplace_backward
            and options.reduction != "none"
            and logits.dtype is not torch.float16
        )
        loss, dlogits, statistics, others = _torch.forward(
            rows, labels, weight, options, early, needs_gradient and not early, outputs
        )
        if early:
            loss = _apply_with_gradient(rows, (loss, dlogits))
        elif needs_gradient:
            loss = _apply_with_statistics(rows, (loss, labels, weight, statistics), options, inplace_backward)
        elif torch.is_grad_enabled():
            # An input that requires grad gives the loss its backward().
            loss = _apply_without_gradient(torch.empty((), requires_grad=True), (loss,))
    if options.reduction == "none":
        loss = loss.view(target.shape)
    return loss, _named(outputs, target.shape, *others) if outputs else {}


def _named(
    outputs: tuple[str, ...], shape: torch.Size, sums: torch.Tensor, rows: torch.Tensor, argmax: torch.Tensor
) -> dict[str, torch.Tensor]:
    found = dict(zip([name for name in _torch.SUMS if name in outputs], sums.unbind(), strict=True))
    for name, row in zip([name for name in _torch.ROWS if name in outputs], rows.unbind(), strict=True):
        found[name] = row.view(shape)
    if "argmax" in outputs:
        found["argmax"] = argmax.view(shape)
    return found


# ---- Autograd ------------------------------------------------------------------------------------
#
# These functions link what the kernels have made to the logits. A loss comes in a tuple, so that autograd does not take
# it for an input.


class _WithGradient(torch.autograd.Function):
    """The loss, with its gradient made already."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, made: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        loss, dlogits = made
        ctx.save_for_backward(dlogits)
        return loss

    @staticmethod
    def backward(ctx: Any, dloss: torch.Tensor) -> tuple[torch.Tensor, None]:
        _refuse_double_backward()
        (dlogits,) = ctx.saved_tensors
        return _scaled(dlogits, dloss), None


# Is the graph kept for another backward()? PyTorch older than 2.6 cannot tell.
_keeps_graph: Callable[[], bool] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _scaled(dlogits: torch.Tensor, dloss: torch.Tensor) -> torch.Tensor:
    """``dloss * dlogits``, multiplied in float32. In ``dlogits``'s memory, unless another backward may want that."""
    if _keeps_graph():
        dlogits = dlogits.clone()
    _torch.scale(dlogits, dloss)
    return dlogits


class _WithStatistics(torch.autograd.Function):
    """The loss, with what its gradient will be made of."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        made: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor],
        options: LossOptions,
        inplace_backward: bool,
    ) -> torch.Tensor:
        loss, *others = made
        ctx.save_for_backward(logits, *others)
        ctx.options = options
        ctx.inplace_backward = inplace_backward
        return loss

    @staticmethod
    def backward(ctx: Any, dloss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_double_backward()
        logits, target, weight, statistics = ctx.saved_tensors
        gradient = _torch.backward(
            logits, target, weight, statistics, ctx.options, dloss, in_place=ctx.inplace_backward
        )
        return gradient, None, None, None


class _WithoutGradient(torch.autograd.Function):
    """The loss of logits that do not require grad. Its backward() does nothing, rather than raise."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, made: tuple[torch.Tensor]) -> torch.Tensor:
        return made[0]

    @staticmethod
    def backward(ctx: Any, dloss: torch.Tensor) -> tuple[None, None]:
        _refuse_double_backward()
        return None, None


class _LogProbAndEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, options: LossOptions, inplace_backward: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        needs_gradient: bool = ctx.needs_input_grad[0]
        loss, _, statistics, others = _torch.forward(
            logits, target, None, options, with_statistics=needs_gradient, outputs=("entropy",)
        )
        assert others is not None
        if needs_gradient:
            ctx.options = options
            ctx.inplace_backward = inplace_backward
            ctx.save_for_backward(logits, target, statistics)
            ctx.set_materialize_grads(False)
        return loss.neg_(), others.rows.squeeze_(0)

    @staticmethod
    def backward(
        ctx: Any, dlog_prob: torch.Tensor | None, dentropy: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        _refuse_double_backward()
        if dlog_prob is None and dentropy is None:
            return (None,) * 4
        logits, target, statistics = ctx.saved_tensors
        gradient = _torch.backward(
            logits,
            target,
            None,
            statistics,
            ctx.options,
            dlog_prob,
            dentropy,
            negated=True,
            in_place=ctx.inplace_backward,
        )
        return gradient, None, None, None


# Not public: another torch may be without it.
_base_apply = vars(torch._C._FunctionBase).get("apply")


def _apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without what that does for torch.func, whose transforms ``_torch_ops.in_use`` has refused.

    That part goes through the arguments in Python, which takes as long as all checks of this module.
    """
    if _base_apply is None:
        return lambda *arguments: function.apply(*arguments)
    apply: Callable[..., Any] = _base_apply.__get__(None, function)
    return apply


_apply_with_gradient = _apply(_WithGradient)
_apply_with_statistics = _apply(_WithStatistics)
_apply_without_gradient = _apply(_WithoutGradient)
_apply_log_prob_and_entropy = _apply(_LogProbAndEntropy)


def _refuse_double_backward() -> None:
    # once_differentiable would not do: it lets a graph through whose upstream gradient needs no grad, and the
    # second derivatives would then silently lack this function's part.
    if torch.is_grad_enabled():
        raise RuntimeError(_torch_ops.NO_DOUBLE_BACKWARD)
