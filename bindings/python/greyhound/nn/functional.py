"""Losses as functions of PyTorch tensors, with autograd."""

from __future__ import annotations

from typing import Any, Literal

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

from greyhound import _torch
from greyhound._arguments import as_index, as_multiplier

__all__ = ["cross_entropy"]


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    z_loss_multiplier: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
) -> torch.Tensor:
    """Cross-entropy of ``logits`` with class indices, as a differentiable scalar.

    With ``lse_i = log(sum_j exp(logits[i, j]))``, over the rows whose target is not ``ignore_index``::

        sum  = sum(lse_i - logits[i, target[i]] + z_loss_multiplier * lse_i ** 2)
        mean = sum / max(number of rows, 1)

    so the mean is 0, with gradient 0, if every row is ignored. ``logits`` is left as it was: the
    gradient is computed now, into a tensor of its own, and multiplied by the upstream gradient in
    ``backward``, in float32 and rounded once more. Nothing waits for a CUDA device.

    Args:
        logits: ``[batch, vocab]``, float32, float16 or bfloat16, on CPU or CUDA, of any strides.
            If it does not require grad, the loss still has a ``backward()``, which does nothing.
        target: ``[batch]``, int64, on the same device: the class of each row, in ``[0, vocab)`` or
            ``ignore_index``.
        ignore_index: any int64, also one inside ``[0, vocab)``.
        z_loss_multiplier: finite; 0 turns the z-loss off.
        reduction: ``"mean"`` or ``"sum"``.

    Returns:
        A 0-d float32 tensor on the logits' device, whatever the logits' dtype.

    Raises:
        TypeError: an argument's type, dtype or layout is not supported.
        ValueError: a shape, device or value is not as said above.
        LabelError: a ``ValueError``; on the CPU, a target out of range. On CUDA, where nobody may
            wait for the answer, the loss and that row's gradient become NaN instead.
        RuntimeError: the library has no CUDA engine, there is no usable CUDA device, or CUDA
            reports an error; in ``backward``, a graph of it was asked for (``create_graph=True``):
            double backward is not supported.
        LibraryNotFoundError: a ``RuntimeError``; libgreyhound could not be loaded.
    """
    if not isinstance(logits, torch.Tensor):
        raise TypeError(f"logits: expected a torch.Tensor, got {type(logits).__name__}")
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction: expected 'mean' or 'sum', got {reduction!r}")
    _torch.check(logits, target)
    # An input that requires grad gives the loss its backward() where the logits do not.
    anchor = None if logits.requires_grad or not torch.is_grad_enabled() else torch.empty((), requires_grad=True)
    loss: torch.Tensor = _CrossEntropy.apply(
        logits, target, as_index(ignore_index), as_multiplier(z_loss_multiplier), reduction == "mean", anchor
    )
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        target: torch.Tensor,
        ignore_index: int,
        z_loss_multiplier: float,
        mean: bool,
        anchor: torch.Tensor | None,
    ) -> torch.Tensor:
        dlogits = logits.clone(memory_format=torch.contiguous_format)
        sums = _torch.launch(dlogits, target.contiguous(), z_loss_multiplier, ignore_index)
        ce_sum, z_sum, n_valid = sums[0], sums[1], sums[2]
        # Without z-loss, z_sum stays out: it may be infinite where the loss is not.
        loss = torch.add(ce_sum, z_sum, alpha=z_loss_multiplier) if z_loss_multiplier else ce_sum.clone()
        divisor = None
        if mean:
            divisor = n_valid.clamp(min=1.0)
            loss = loss / divisor
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(dlogits, divisor)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # once_differentiable would not do: it lets a graph through whose upstream gradient needs no
        # grad, and the second derivatives would then silently lack this function's part.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "greyhound.nn.functional.cross_entropy does not support double backward: "
                "call backward() or torch.autograd.grad() with create_graph=False"
            )
        if not ctx.needs_input_grad[0]:
            return (None,) * 6
        dlogits, divisor = ctx.saved_tensors
        scale = upstream if divisor is None else upstream / divisor
        # As a [1, 1] tensor the scale takes part in type promotion: the product is formed in float32.
        # As a 0-d CUDA tensor it would be rounded to the logits' dtype first.
        gradient = torch.mul(dlogits, scale.reshape(1, 1), out=torch.empty_like(dlogits))
        return gradient, None, None, None, None, None
