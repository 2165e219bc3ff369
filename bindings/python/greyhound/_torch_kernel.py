"""``cross_entropy_kernel`` on PyTorch tensors about which there is nothing to say.

``greyhound._raw`` takes arrays of every library, and finds out and says what is wrong with one. This takes tensors that
need none of that, in a fraction of the host time.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, strided

from greyhound import _abi, _library, _torch
from greyhound._arguments import ArrayOption, LossOptions, options_struct
from greyhound._errors import raise_status

_DTYPES = {"float32": torch.float32, "int64": torch.int64}


def try_to_run(
    logits: Any,
    target: Any,
    dlogits: Any,
    loss_options: LossOptions,
    sums: int,
    dloss: Any,
    arrays: list[tuple[ArrayOption, Any]],
    row_statistics: Any,
    workspace: Any,
) -> bool:
    """Makes the call, on the current stream; or does nothing and returns False, and ``_raw`` has to look closer."""
    device = _torch.device_if_plain(logits, target)
    if device is None:
        return False
    stream = device.current_stream()
    if stream == 0 and not device.is_current():
        return False
    shape, torch_device = logits.shape, logits.device
    batch, vocab = shape
    options = options_struct(loss_options, _torch.LABEL_DTYPES[target.dtype], sums)
    if type(dloss) is float:
        options.dloss = dloss
    elif _is_plain(dloss, torch.float32, torch_device) and dloss.numel() == 1:
        options.dloss_ptr = dloss.data_ptr()
    else:
        return False
    written = []
    if dlogits is not None:
        if not (_is_plain(dlogits, logits.dtype, torch_device) and dlogits.shape == shape):
            return False
        written.append(dlogits)
    lengths = {"batch": batch, "vocab": vocab}
    for option, array in arrays:
        if not _is_plain(array, _DTYPES[option.dtype], torch_device):
            return False
        if array.numel() != 1 if option.length is None else array.shape != (lengths[option.length],):
            return False
        setattr(options, option.field, array.data_ptr())
        if option.written:
            written.append(array)
    if row_statistics is not None:
        if _plain_bytes(row_statistics, torch_device) < batch * _abi.GH_ROW_STATISTICS_BYTES:
            return False
        options.row_statistics = row_statistics.data_ptr()
        written.append(row_statistics)
    if workspace is not None:
        if not _plain_bytes(workspace, torch_device):
            return False
        options.workspace = workspace.data_ptr()
        options.workspace_size = workspace.numel() * workspace.element_size()
        written.append(workspace)
    status = _torch.functions().cross_entropy(
        logits.data_ptr(),
        None if dlogits is None else dlogits.data_ptr(),
        _torch.DTYPES[logits.dtype],
        target.data_ptr(),
        batch,
        vocab,
        ctypes.addressof(options),
        stream,
    )
    if status:
        raise_status(_library.load(), status)
    _torch.increment_version(tuple(written))
    return True


def _is_plain(array: Any, dtype: torch.dtype, device: torch.device) -> bool:
    return (
        type(array) is Tensor
        and array.dtype is dtype
        and array.device == device
        and array.layout is strided
        and array.is_contiguous()
        and not (array.requires_grad or array.is_inference())
    )


def _plain_bytes(array: Any, device: torch.device) -> int:
    """How many bytes of any dtype; 0 if it is not plain."""
    plain = type(array) is Tensor and _is_plain(array, array.dtype, device)
    size: int = array.numel() * array.element_size() if plain else 0
    return size
