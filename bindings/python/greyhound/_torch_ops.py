"""The operators that PyTorch's own machinery sees: ``torch.ops.greyhound.*``.

Compilers, fake tensors and tracers follow a program by its
operators. Each one here has a kernel, a rule for shapes, and a derivative.
``greyhound.nn.functional`` goes through them wherever such machinery is at work.
Elsewhere it calls the kernels itself, because the way through the dispatcher and
back takes more host time than the rest of the call.

All take logits as ``[batch, vocab]`` with contiguous rows, target as ``[batch]``,
and weight as contiguous float32: what ``greyhound._torch`` prepares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from greyhound import _abi, _torch
from greyhound._arguments import LossOptions

_LOSS = (
    "int ignore_index, str reduction, float label_smoothing, float z_loss_multiplier, float logit_scale, float softcap"
)

_library = torch.library.Library("greyhound", "DEF")
_library.define(
    f"cross_entropy(Tensor logits, Tensor target, Tensor? weight, {_LOSS}, bool save_statistics, str[] outputs)"
    " -> (Tensor loss, Tensor statistics, Tensor sums, Tensor rows, Tensor argmax)"
)
_library.define(
    "log_prob_and_entropy(Tensor logits, Tensor target, int ignore_index, float logit_scale, float softcap)"
    " -> (Tensor log_prob, Tensor entropy, Tensor statistics)"
)
_library.define(
    "cross_entropy_backward(Tensor logits, Tensor target, Tensor? weight, Tensor statistics, "
    f"Tensor? dloss, Tensor? dentropy, bool negated, {_LOSS}) -> Tensor"
)

cross_entropy = torch.ops.greyhound.cross_entropy.default
log_prob_and_entropy = torch.ops.greyhound.log_prob_and_entropy.default
cross_entropy_backward = torch.ops.greyhound.cross_entropy_backward.default

_Tensors = tuple[torch.Tensor, ...]

NO_DOUBLE_BACKWARD = (
    "greyhound.nn.functional does not support double backward: "
    "call backward() or torch.autograd.grad() with create_graph=False"
)


NO_FUNCTION_TRANSFORMS = (
    "greyhound.nn.functional does not support the transforms of torch.func (grad, vmap, jvp, ...): "
    "use backward() or torch.autograd.grad(), or PyTorch's own cross_entropy"
)


def in_use(logits: torch.Tensor) -> bool:
    """Is anything at work that must see operators?"""
    if torch.compiler.is_compiling():
        return True
    if _are_transforms_active():
        raise RuntimeError(NO_FUNCTION_TRANSFORMS)
    return type(logits) not in _PLAIN_TYPES or _count_modes() > 0 or _is_tracing()


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_C: Any = torch._C
_are_transforms_active, _count_modes, _is_tracing = (
    _C._are_functorch_transforms_active,
    _C._len_torch_dispatch_stack,
    _C._is_tracing,
)


# ---- Kernels -------------------------------------------------------------------------------------


def _cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss_multiplier: float,
    logit_scale: float,
    softcap: float,
    save_statistics: bool,
    outputs: Sequence[str],
) -> _Tensors:
    options = LossOptions(ignore_index, reduction, label_smoothing, z_loss_multiplier, logit_scale, softcap)
    loss, _, statistics, others = _torch.forward(
        _torch.rows_of(logits),
        target.contiguous(),
        weight,
        options,
        with_statistics=save_statistics,
        outputs=tuple(outputs),
    )
    sums, rows, argmax = others or (None, None, None)

    def or_empty(tensor: torch.Tensor | None, *size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return logits.new_empty(size, dtype=dtype) if tensor is None else tensor

    return (
        loss,
        or_empty(statistics, 0, _abi.GH_ROW_STATISTICS_BYTES, dtype=torch.uint8),
        or_empty(sums, 0),
        or_empty(rows, 0, logits.shape[0]),
        or_empty(argmax, 0, dtype=torch.int64),
    )


def _log_prob_and_entropy(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int, logit_scale: float, softcap: float
) -> _Tensors:
    options = LossOptions(ignore_index, "none", logit_scale=logit_scale, softcap=softcap)
    loss, _, statistics, others = _torch.forward(
        _torch.rows_of(logits),
        target.contiguous(),
        None,
        options,
        with_statistics=True,
        outputs=("entropy",),
    )
    assert others is not None and statistics is not None
    return loss.neg_(), others.rows[0].clone(), statistics


def _cross_entropy_backward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    statistics: torch.Tensor,
    dloss: torch.Tensor | None,
    dentropy: torch.Tensor | None,
    negated: bool,
    *options: Any,
) -> torch.Tensor:
    rows = _torch.rows_of(logits)
    return _torch.backward(
        rows, target.contiguous(), weight, statistics, LossOptions(*options), dloss, dentropy, negated=negated
    )


for _device in ("CPU", "CUDA"):
    _library.impl("cross_entropy", _cross_entropy, _device)
    _library.impl("log_prob_and_entropy", _log_prob_and_entropy, _device)
    _library.impl("cross_entropy_backward", _cross_entropy_backward, _device)

# ---- Shapes --------------------------------------------------------------------------------------


@torch.library.register_fake("greyhound::cross_entropy", lib=_library)
def _(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss_multiplier: float,
    logit_scale: float,
    softcap: float,
    save_statistics: bool,
    outputs: Sequence[str],
) -> _Tensors:
    batch = logits.shape[0]
    return (
        logits.new_empty((batch,) if reduction == "none" else (), dtype=torch.float32),
        logits.new_empty((batch if save_statistics else 0, _abi.GH_ROW_STATISTICS_BYTES), dtype=torch.uint8),
        logits.new_empty(sum(name in outputs for name in _torch.SUMS), dtype=torch.float32),
        logits.new_empty((sum(name in outputs for name in _torch.ROWS), batch), dtype=torch.float32),
        logits.new_empty(batch if "argmax" in outputs else 0, dtype=torch.int64),
    )


@torch.library.register_fake("greyhound::log_prob_and_entropy", lib=_library)
def _(logits: torch.Tensor, target: torch.Tensor, ignore_index: int, logit_scale: float, softcap: float) -> _Tensors:
    batch = logits.shape[0]
    return (
        logits.new_empty(batch, dtype=torch.float32),
        logits.new_empty(batch, dtype=torch.float32),
        logits.new_empty((batch, _abi.GH_ROW_STATISTICS_BYTES), dtype=torch.uint8),
    )


@torch.library.register_fake("greyhound::cross_entropy_backward", lib=_library)
def _(logits: torch.Tensor, *others: Any) -> torch.Tensor:
    return logits.new_empty(logits.shape)


# ---- Derivatives ---------------------------------------------------------------------------------


def _save_cross_entropy(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    logits, target, weight, *options, save_statistics, _ = inputs
    ctx.options = options
    ctx.save_for_backward(logits, target, weight, output[1] if save_statistics else None)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _differentiate_cross_entropy(ctx: Any, dloss: torch.Tensor | None, *_: Any) -> tuple[Any, ...]:
    logits, target, weight, statistics = ctx.saved_tensors
    if dloss is None:
        return (None,) * 11
    if statistics is None:
        raise RuntimeError("torch.ops.greyhound.cross_entropy: a derivative needs save_statistics=True")
    gradient = cross_entropy_backward(logits, target, weight, statistics, dloss, None, False, *ctx.options)
    return gradient, *(None,) * 10


def _save_log_prob_and_entropy(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    logits, target, *ctx.options = inputs
    ctx.save_for_backward(logits, target, output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _differentiate_log_prob_and_entropy(
    ctx: Any, dlog_prob: torch.Tensor | None, dentropy: torch.Tensor | None, _: Any
) -> tuple[Any, ...]:
    if dlog_prob is None and dentropy is None:
        return (None,) * 5
    logits, target, statistics = ctx.saved_tensors
    ignore_index, logit_scale, softcap = ctx.options
    options = LossOptions(ignore_index, "none", logit_scale=logit_scale, softcap=softcap)
    gradient = cross_entropy_backward(logits, target, None, statistics, dlog_prob, dentropy, True, *options)
    return gradient, *(None,) * 4


def _refuse(ctx: Any, *_: Any) -> tuple[Any, ...]:
    raise RuntimeError(NO_DOUBLE_BACKWARD)


torch.library.register_autograd(
    "greyhound::cross_entropy", _differentiate_cross_entropy, setup_context=_save_cross_entropy, lib=_library
)
torch.library.register_autograd(
    "greyhound::log_prob_and_entropy",
    _differentiate_log_prob_and_entropy,
    setup_context=_save_log_prob_and_entropy,
    lib=_library,
)
torch.library.register_autograd("greyhound::cross_entropy_backward", _refuse, lib=_library)
