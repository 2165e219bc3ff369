"""Losses as modules."""

from __future__ import annotations

# First: where PyTorch is missing, it says what to do.
from greyhound.nn import functional  # isort: skip

import torch

__all__ = ["CrossEntropyLoss"]


class CrossEntropyLoss(torch.nn.Module):
    """Cross-entropy with class indices, as ``torch.nn.CrossEntropyLoss`` computes it, and more.

    Takes its place for logits ``[batch, vocab]`` with targets ``[batch]``, and ``[vocab]`` with
    ``[]``. What differs: logits of more dimensions have their classes *last*, ``[batch, time, vocab]``
    with ``[batch, time]``, where PyTorch wants ``[batch, vocab, time]``; targets are indices and not
    class probabilities; the loss is float32 whatever the logits' dtype; and the mean over no rows is 0 and not NaN.

    Args:
        weight: ``[vocab]``, a factor for each class, kept as a buffer; or None.
        others: as for ``greyhound.nn.functional.cross_entropy``, which also says what is raised.

    Shape:
        logits ``[..., vocab]``, target ``[...]``; the loss is 0-d, or ``[...]`` for the reduction ``"none"``.
    """

    weight: torch.Tensor | None

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: functional.Reduction = "mean",
        label_smoothing: float = 0.0,
        z_loss_multiplier: float = 0.0,
        logit_scale: float = 1.0,
        softcap: float = 0.0,
        inplace_backward: bool = False,
        validate: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.z_loss_multiplier = z_loss_multiplier
        self.logit_scale = logit_scale
        self.softcap = softcap
        self.inplace_backward = inplace_backward
        self.validate = validate

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss of ``logits`` with the class indices ``target``."""
        return functional.cross_entropy(
            logits,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss_multiplier=self.z_loss_multiplier,
            logit_scale=self.logit_scale,
            softcap=self.softcap,
            inplace_backward=self.inplace_backward,
            validate=self.validate,
        )

    def extra_repr(self) -> str:
        """The options that are not at their defaults."""
        defaults = functional.cross_entropy.__kwdefaults__ or {}
        changed = {name: getattr(self, name) for name in defaults if getattr(self, name) != defaults[name]}
        return ", ".join(f"{name}={value!r}" for name, value in changed.items())
