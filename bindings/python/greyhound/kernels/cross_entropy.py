"""Cross-entropy loss and gradient in one pass, on the caller's own memory.

``cross_entropy_with_grad_kernel``
    The short call: three sums, and the gradient in place of the logits.
``cross_entropy_kernel``, ``cross_entropy_backward_kernel``
    Every option of the library. They allocate nothing: all that they write is given by the caller.
``scale_dlogits_kernel``
    A gradient times an upstream gradient that is in device memory; not touched if that is 1.
``cross_entropy_workspace_size``
    What the two with every option want of scratch memory on a CUDA device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from greyhound import _abi, _raw
from greyhound._arguments import ArrayOption, as_index, as_number, loss_options

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = [
    "ROW_STATISTICS_BYTES",
    "cross_entropy_backward_kernel",
    "cross_entropy_kernel",
    "cross_entropy_with_grad_kernel",
    "cross_entropy_workspace_size",
    "scale_dlogits_kernel",
]

#: Bytes of ``row_statistics`` for each row.
ROW_STATISTICS_BYTES = _abi.GH_ROW_STATISTICS_BYTES

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
            ``torch.Tensor`` on CPU or CUDA, a ``numpy.ndarray`` (bfloat16 by ``ml_dtypes``), a
            ``cupy.ndarray``, or an array of a library that follows the array API standard. Overwritten
            with the gradient.
        target: ``[batch]``, contiguous, int64, of the same kind and on the same device: the class
            of each row, in ``[0, vocab)`` or ``ignore_index``.
        z_loss_multiplier: finite; 0 turns the z-loss off.
        ignore_index: any int64, also one inside ``[0, vocab)``.

    Returns:
        ``(ce_sum, z_sum, n_valid)``, in float32: 0-d tensors on the logits' device for PyTorch
        (three views of one small tensor), ``numpy.float32`` scalars for NumPy, 0-d arrays of the
        logits' library otherwise.

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
    cupy = sys.modules.get("cupy")
    found: Callable[..., tuple[Any, Any, Any]]
    if torch is not None and issubclass(kind, torch.Tensor):
        from greyhound._torch import cross_entropy_with_grad as found
    elif numpy is not None and issubclass(kind, numpy.ndarray):
        from greyhound._numpy import cross_entropy_with_grad as found
    elif cupy is not None and issubclass(kind, cupy.ndarray):
        from greyhound._raw import cross_entropy_with_grad_of_cupy as found
    elif hasattr(kind, "__array_namespace__"):
        from greyhound._raw import cross_entropy_with_grad as found
    else:
        raise TypeError(
            "logits: expected a torch.Tensor, a numpy.ndarray or a cupy.ndarray, or an array that can make others of "
            f"its kind (__array_namespace__), got {kind.__name__}; cross_entropy_kernel takes anything with DLPack or "
            "__cuda_array_interface__"
        )
    _implementations[kind] = found
    return found


def cross_entropy_kernel(
    logits: Any,
    target: Any,
    *,
    dlogits: Any = None,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "sum",
    label_smoothing: float = 0.0,
    z_loss_multiplier: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    dloss: Any = 1.0,
    row_dloss: Any = None,
    row_dentropy: Any = None,
    row_loss: Any = None,
    row_lse: Any = None,
    row_target_log_prob: Any = None,
    row_entropy: Any = None,
    row_argmax: Any = None,
    row_statistics: Any = None,
    loss: Any = None,
    z_loss: Any = None,
    n_valid: Any = None,
    n_correct: Any = None,
    n_out_of_range: Any = None,
    accumulate: bool = False,
    workspace: Any = None,
    stream: int | None = None,
) -> None:
    """The loss and its gradient with every option, in one pass over the logits, into memory of the caller's.

    ``greyhound.nn.functional.cross_entropy`` has the formula of the loss. ``dlogits`` becomes the
    gradient of ``sum_i g_i * loss_i + row_dentropy[i] * entropy_i``, where ``g_i`` is
    ``dloss * row_dloss[i]``, for the reduction ``"mean"`` divided by its divisor. All is multiplied
    in float32 and rounded once.

    Arrays may be PyTorch's, NumPy's, or of any library whose arrays have ``__cuda_array_interface__``
    (CuPy, Numba) or DLPack; also mixed, on one device. On CUDA the work goes to the stream that the logits'
    library works on now: PyTorch's and CuPy's current one, otherwise the one that the array names, otherwise
    the default stream of the current device. Nothing waits for it, and nothing is allocated. What
    is not given is not computed and costs nothing.

    Args:
        logits: ``[batch, vocab]``, float32, float16 or bfloat16; the rows contiguous, and at least
            ``vocab`` elements apart.
        target: ``[batch]``, int64 or int32, contiguous: in ``[0, vocab)`` or ``ignore_index``.
        dlogits: the gradient, like logits; may be ``logits`` itself.
        weight: ``[vocab]`` float32.
        ignore_index, reduction, label_smoothing, z_loss_multiplier, logit_scale, softcap:
            as for ``greyhound.nn.functional.cross_entropy``. With the reduction ``"none"`` the
            gradient is that of the sum, and ``loss`` and ``z_loss`` must not be given.
        dloss: the upstream gradient: a number, or an array of one float32, read when the stream gets there.
        row_dloss: ``[batch]`` float32, an upstream gradient for each row.
        row_dentropy: ``[batch]`` float32, the upstream gradient of each row's entropy.
        row_loss, row_lse, row_target_log_prob, row_entropy: ``[batch]`` float32, written.
        row_argmax: ``[batch]`` int64, written.
        row_statistics: ``batch * ROW_STATISTICS_BYTES`` bytes of any dtype, aligned to 8, written:
            what ``cross_entropy_backward_kernel`` reads.
        loss, z_loss, n_valid, n_correct, n_out_of_range: arrays of one float32 each, written.
        accumulate: add to these five, instead of overwriting what they hold.
        workspace: at least ``cross_entropy_workspace_size()`` bytes of any dtype, aligned to 8. On
            CUDA, the reduction ``"mean"`` needs it, and so does label smoothing with class weights; with it
            the five sums are bitwise repeatable.
        stream: the handle of a CUDA stream to use instead.

    Raises what ``cross_entropy_with_grad_kernel`` raises.
    """
    options = loss_options(ignore_index, reduction, label_smoothing, z_loss_multiplier, logit_scale, softcap)
    sums = _abi.GH_SUMS_ADD if accumulate else _abi.GH_SUMS_OVERWRITE
    arrays = _given(
        weight, row_dloss, row_dentropy, row_loss, row_lse, row_target_log_prob, row_entropy, row_argmax,
        loss, z_loss, n_valid, n_correct, n_out_of_range,
    )  # fmt: skip
    if stream is None:
        try_to_run = _shortcuts.get(type(logits)) or _shortcut(type(logits))
        if try_to_run(logits, target, dlogits, options, sums, dloss, arrays, row_statistics, workspace):
            return
    call = _raw.Call(logits, target, options, sums)
    if dlogits is not None:
        call.add_dlogits(dlogits)
    call.add_dloss(dloss)
    call.add_options(arrays)
    if row_statistics is not None:
        call.save_statistics(row_statistics)
    call.add_workspace(workspace)
    call.run(stream)


def cross_entropy_backward_kernel(
    logits: Any,
    target: Any,
    dlogits: Any,
    *,
    row_statistics: Any = None,
    row_lse: Any = None,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "sum",
    label_smoothing: float = 0.0,
    z_loss_multiplier: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    dloss: Any = 1.0,
    row_dloss: Any = None,
    row_dentropy: Any = None,
    workspace: Any = None,
    stream: int | None = None,
) -> None:
    """The gradient alone, from what an earlier call saved; the logits are read once.

    ``dlogits``, which may be ``logits`` itself, becomes what ``cross_entropy_kernel`` with the same
    options makes of it: bit for bit, if ``row_statistics`` is what that wrote for the same logits,
    target, ``logit_scale`` and ``softcap``, on the same device, and if the rows of both calls start
    alike within lines of 128 bytes. ``row_dentropy`` needs the statistics of a call that had
    ``row_entropy`` or ``row_dentropy``.

    Args:
        row_statistics: as ``cross_entropy_kernel`` wrote it. This or row_lse must be given.
        row_lse: ``[batch]`` float32: each row's log-sum-exp from anywhere. Less exact: a probability
            has a relative error of up to ``abs(lse) * 2 ** -24``.
        others: as for ``cross_entropy_kernel``.

    Raises what ``cross_entropy_with_grad_kernel`` raises.
    """
    options = loss_options(ignore_index, reduction, label_smoothing, z_loss_multiplier, logit_scale, softcap)
    call = _raw.Call(logits, target, options, _abi.GH_SUMS_ADD)
    call.add_dlogits(dlogits)
    call.add_dloss(dloss)
    call.add_options(_given(weight, row_dloss, row_dentropy))
    statistics = None if row_statistics is None else call.add_statistics(row_statistics, written=False)
    lse = None if row_lse is None else call.add("row_lse", row_lse, (call.batch,), "float32").address
    call.add_workspace(workspace)
    call.run(stream, statistics, lse)


def scale_dlogits_kernel(dlogits: Any, dloss: Any, *, stream: int | None = None) -> None:
    """Multiplies a gradient by ``dloss``, in place. If that is exactly 1, the gradient is neither read nor written.

    For an upstream gradient that is known only when the gradient has been computed, and that nobody wants to wait
    for. The gradient, already rounded to its dtype, is multiplied in float32 and rounded a second time;
    ``cross_entropy_backward_kernel`` rounds once. Prefer that for float16 with the reduction
    ``"mean"``: there a gradient may have been rounded to 0 before a loss scale reaches it.

    Args:
        dlogits: ``[batch, vocab]``, float32, float16 or bfloat16; the rows contiguous, and at least ``vocab``
            elements apart. What lies between them stays as it is. Arrays and streams are as for
            ``cross_entropy_kernel``.
        dloss: an array of one float32, read when the stream gets there.
        stream: the handle of a CUDA stream to use instead.

    Raises what ``cross_entropy_with_grad_kernel`` raises.
    """
    _raw.scale_dlogits(dlogits, dloss, stream)


def cross_entropy_workspace_size(stream: int | None = 0) -> int:
    """Bytes of workspace that suffice for any call on ``stream``: about 100 KiB on a large GPU.

    Args:
        stream: the handle of a CUDA stream; 0 for the current device's default one; None for the CPU,
            which needs 0 bytes.

    Raises:
        RuntimeError: the library has no CUDA engine, or there is no usable CUDA device.
    """
    return _raw.workspace_size(stream)


# The first three are a backward pass's too.
_ARRAY_OPTIONS = (
    ArrayOption("class_weights", "weight", "vocab", "float32", written=False),
    ArrayOption("row_dloss", "row_dloss", "batch", "float32", written=False),
    ArrayOption("row_dentropy", "row_dentropy", "batch", "float32", written=False),
    ArrayOption("row_loss", "row_loss", "batch", "float32", written=True),
    ArrayOption("row_lse", "row_lse", "batch", "float32", written=True),
    ArrayOption("row_target_log_prob", "row_target_log_prob", "batch", "float32", written=True),
    ArrayOption("row_entropy", "row_entropy", "batch", "float32", written=True),
    ArrayOption("row_argmax", "row_argmax", "batch", "int64", written=True),
    ArrayOption("loss", "loss", None, "float32", written=True),
    ArrayOption("z_loss", "z_loss", None, "float32", written=True),
    ArrayOption("n_valid", "n_valid", None, "float32", written=True),
    ArrayOption("n_correct", "n_correct", None, "float32", written=True),
    ArrayOption("n_out_of_range", "n_out_of_range", None, "float32", written=True),
)


def _given(*arrays: Any) -> list[tuple[ArrayOption, Any]]:
    """Of arrays in the order of _ARRAY_OPTIONS, those that are not None."""
    return [pair for pair in zip(_ARRAY_OPTIONS, arrays, strict=False) if pair[1] is not None]


# By the exact type of the logits, as _implementations.
_shortcuts: dict[type, Callable[..., bool]] = {}


def _shortcut(kind: type) -> Callable[..., bool]:
    torch = sys.modules.get("torch")
    found: Callable[..., bool]
    if torch is not None and kind is torch.Tensor:
        from greyhound._torch_kernel import try_to_run as found
    else:
        found = _no_shortcut
    _shortcuts[kind] = found
    return found


def _no_shortcut(*arguments: Any) -> bool:
    return False
