"""The raw kernel on NumPy arrays, by the host engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from greyhound import _abi, _library
from greyhound._arguments import check_shapes
from greyhound._errors import raise_status

# By name: bfloat16 belongs to ml_dtypes, which need not be installed.
_DTYPES = {"float32": _abi.GH_DTYPE_F32, "float16": _abi.GH_DTYPE_F16, "bfloat16": _abi.GH_DTYPE_BF16}


def cross_entropy_with_grad(
    logits: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    z_loss_multiplier: float,
    ignore_index: int,
) -> tuple[np.float32, np.float32, np.float32]:
    dtype = _check(logits, target)
    sums = np.zeros(3, np.float32)
    address = sums.ctypes.data
    library = _library.load()
    status = library.gh_cross_entropy_fwd_bwd(
        logits.ctypes.data,
        dtype,
        target.ctypes.data,
        logits.shape[0],
        logits.shape[1],
        z_loss_multiplier,
        ignore_index,
        address,
        address + 4,
        address + 8,
        _abi.GH_STREAM_HOST,
    )
    if status:
        raise_status(library, status)
    return sums[0], sums[1], sums[2]


def _check(logits: np.ndarray[Any, Any], target: object) -> int:
    if isinstance(logits, np.ma.MaskedArray) or isinstance(target, np.ma.MaskedArray):
        raise TypeError("logits, target: masked arrays are not supported; mark rows with ignore_index instead")
    if not isinstance(target, np.ndarray):
        raise TypeError(f"target: expected a numpy.ndarray, as logits is one, got {type(target).__name__}")
    dtype = _DTYPES.get(logits.dtype.name)
    if dtype is None or not logits.dtype.isnative:
        raise TypeError(f"logits: expected float32, float16 or bfloat16 in native byte order, got {logits.dtype!r}")
    if target.dtype != np.int64:
        raise TypeError(f"target: expected int64 in native byte order, got {target.dtype!r}")
    check_shapes(logits.shape, target.shape)
    if not logits.flags.c_contiguous:
        raise ValueError(
            f"logits: must be C-contiguous, has byte strides {logits.strides}; numpy.ascontiguousarray copies"
        )
    if not target.flags.c_contiguous:
        raise ValueError(
            f"target: must be C-contiguous, has byte strides {target.strides}; numpy.ascontiguousarray copies"
        )
    if not logits.flags.writeable:
        raise ValueError("logits: read-only, but the gradient is written into it")
    return dtype
