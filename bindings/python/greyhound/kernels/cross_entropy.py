"""Cross-entropy loss and gradient in one pass, the gradient in place of the logits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from greyhound._arguments import as_index, as_number

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["cross_entropy_with_grad_kernel"]

# By the exact type of the logits. Filled as types are met, so that neither PyTorch nor NumPy is
# imported on behalf of the other.
_implementations: dict[type, Callable[..., tuple[Any, Any, Any]]] = {}


@overload
def cross_entropy_with_grad_kernel(
    logits: torch.Tensor, target: torch.Tensor, *, z_loss_multiplier: float = ..., ignore_index: int = ...
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]: ...
@overload
def cross_entropy_with_grad_kernel(
    logits: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    *,
    z_loss_multiplier: float = ...,
    ignore_index: int = ...,
) -> tuple[np.float32, np.float32, np.float32]: ...
def cross_entropy_with_grad_kernel(
    logits: Any, target: Any, *, z_loss_multiplier: float = 0.0, ignore_index: int = -100
) -> tuple[Any, Any, Any]:
    """Adds up the loss of all rows and overwrites ``logits`` with its gradient.

    With ``lse_i = log(sum_j exp(logits[i, j]))``, over the rows whose target is not ``ignore_index``::

        ce_sum  = sum(lse_i - logits[i, target[i]])
        z_sum   = sum(lse_i ** 2)
        n_valid = the number of rows

    and ``logits`` becomes the gradient of ``ce_sum + z_loss_multiplier * z_sum``, divided by nothing.
    Rows whose target is ``ignore_index`` get a gradient of exactly 0.

    PyTorch tensors on CUDA are handled on the current stream of their device, without waiting.
    CPU tensors and NumPy arrays are finished on return; other Python threads run meanwhile.

    Args:
        logits: ``[batch, vocab]``, contiguous and writable; float32, float16 or bfloat16. A
            ``torch.Tensor`` on CPU or CUDA, or a ``numpy.ndarray`` (bfloat16 by ``ml_dtypes``).
            Overwritten with the gradient.
        target: ``[batch]``, contiguous, int64, of the same kind and on the same device: the class
            of each row, in ``[0, vocab)`` or ``ignore_index``.
        z_loss_multiplier: finite; 0 turns the z-loss off.
        ignore_index: any int64, also one inside ``[0, vocab)``.

    Returns:
        ``(ce_sum, z_sum, n_valid)``, in float32: 0-d tensors on the logits' device for PyTorch
        (three views of one small tensor), ``numpy.float32`` scalars for NumPy.

    Raises:
        TypeError: an argument's type, dtype or layout is not supported.
        ValueError: a shape, device, stride, alignment or value is not as said above, two arguments
            overlap in memory, NumPy logits are read-only, or logits require grad while grad mode
            is on (autograd could not know that they changed).
        LabelError: a ``ValueError``; on the CPU, a target out of range. On CUDA, where nobody may
            wait for the answer, that row's gradient, ``ce_sum`` and ``z_sum`` become NaN instead.
        RuntimeError: the library has no CUDA engine, there is no usable CUDA device, or CUDA
            reports an error. Nothing has been written after any of these errors.
        LibraryNotFoundError: a ``RuntimeError``; libgreyhound could not be loaded.
    """
    implementation = _implementations.get(type(logits)) or _implementation(type(logits))
    return implementation(logits, target, as_number("z_loss_multiplier", z_loss_multiplier), as_index(ignore_index))


def _implementation(kind: type) -> Callable[..., tuple[Any, Any, Any]]:
    # Logits of a package's type prove that it has been imported.
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    found: Callable[..., tuple[Any, Any, Any]]
    if torch is not None and issubclass(kind, torch.Tensor):
        from greyhound._torch import cross_entropy_with_grad as found
    elif numpy is not None and issubclass(kind, numpy.ndarray):
        from greyhound._numpy import cross_entropy_with_grad as found
    else:
        raise TypeError(f"logits: expected a torch.Tensor or a numpy.ndarray, got {kind.__name__}")
    _implementations[kind] = found
    return found
