"""The C ABI of libgreyhound, as ``greyhound/greyhound.h`` declares it.

Everything that must agree with the header stands here and nowhere else: the
version, the constants, the structs, and for each function its result and its
parameters by name and in order. ctypes has no use for the type behind a
pointer, so each pointer is a ``c_void_p`` that takes an address.
"""

from __future__ import annotations

import ctypes
from typing import Any

# The header's version that these declarations were written for.
GH_VERSION_MAJOR = 0
GH_VERSION_MINOR = 1

GH_SUCCESS = 0
GH_ERROR_NULL_POINTER = 1
GH_ERROR_INVALID_SIZE = 2
GH_ERROR_INVALID_DTYPE = 3
GH_ERROR_INVALID_VALUE = 4
GH_ERROR_MISALIGNED_POINTER = 5
GH_ERROR_OVERLAP = 6
GH_ERROR_UNREACHABLE_POINTER = 7
GH_ERROR_LABEL_OUT_OF_RANGE = 8
GH_ERROR_NO_CUDA = 9
GH_ERROR_NO_DEVICE = 10
GH_ERROR_UNSUPPORTED_DEVICE = 11
GH_ERROR_CUDA = 12

GH_DTYPE_F32 = 0
GH_DTYPE_F16 = 1
GH_DTYPE_BF16 = 2

GH_LABEL_I64 = 0
GH_LABEL_I32 = 1

GH_REDUCTION_SUM = 0
GH_REDUCTION_MEAN = 1
GH_REDUCTION_NONE = 2

GH_SUMS_ADD = 0
GH_SUMS_OVERWRITE = 1

GH_ROW_STATISTICS_BYTES = 32

gh_status = ctypes.c_int32
gh_dtype = ctypes.c_int32
gh_stream = ctypes.c_void_p
gh_label_dtype = ctypes.c_int32
gh_reduction = ctypes.c_int32
gh_sums = ctypes.c_int32

# (gh_stream)(intptr_t)-1, as the unsigned number that ctypes gives for it.
GH_STREAM_HOST = 2 ** (8 * ctypes.sizeof(ctypes.c_void_p)) - 1


class gh_cross_entropy_options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("logits_row_stride", ctypes.c_int64),
        ("dlogits_row_stride", ctypes.c_int64),
        ("label_dtype", gh_label_dtype),
        ("sums", gh_sums),
        ("reduction", gh_reduction),
        ("label_smoothing", ctypes.c_float),
        ("z_loss_multiplier", ctypes.c_float),
        ("logit_scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        ("dloss", ctypes.c_float),
        ("ignore_index", ctypes.c_int64),
        ("class_weights", ctypes.c_void_p),
        ("dloss_ptr", ctypes.c_void_p),
        ("row_dloss", ctypes.c_void_p),
        ("row_dentropy", ctypes.c_void_p),
        ("row_loss", ctypes.c_void_p),
        ("row_lse", ctypes.c_void_p),
        ("row_target_log_prob", ctypes.c_void_p),
        ("row_entropy", ctypes.c_void_p),
        ("row_argmax", ctypes.c_void_p),
        ("row_statistics", ctypes.c_void_p),
        ("loss", ctypes.c_void_p),
        ("z_loss", ctypes.c_void_p),
        ("n_valid", ctypes.c_void_p),
        ("n_correct", ctypes.c_void_p),
        ("n_out_of_range", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_size_t),
    ]


# The fields that it does not set to 0.
GH_CROSS_ENTROPY_OPTIONS_INIT: dict[str, Any] = {
    "size": ctypes.sizeof(gh_cross_entropy_options),
    "logit_scale": 1.0,
    "dloss": 1.0,
    "ignore_index": -100,
}

STRUCTURES: dict[str, type[ctypes.Structure]] = {"gh_cross_entropy_options": gh_cross_entropy_options}

# Name: (result, {parameter: type}).
FUNCTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gh_version": (ctypes.c_uint32, {}),
    "gh_version_string": (ctypes.c_char_p, {}),
    "gh_status_string": (ctypes.c_char_p, {"status": gh_status}),
    "gh_last_error": (ctypes.c_char_p, {}),
    "gh_cross_entropy_fwd_bwd": (
        gh_status,
        {
            "logits": ctypes.c_void_p,
            "dtype": gh_dtype,
            "labels": ctypes.c_void_p,
            "batch": ctypes.c_int64,
            "vocab": ctypes.c_int64,
            "z_loss_multiplier": ctypes.c_float,
            "ignore_index": ctypes.c_int64,
            "ce_sum": ctypes.c_void_p,
            "z_sum": ctypes.c_void_p,
            "n_valid": ctypes.c_void_p,
            "stream": gh_stream,
        },
    ),
    "gh_cross_entropy": (
        gh_status,
        {
            "logits": ctypes.c_void_p,
            "dlogits": ctypes.c_void_p,
            "dtype": gh_dtype,
            "labels": ctypes.c_void_p,
            "batch": ctypes.c_int64,
            "vocab": ctypes.c_int64,
            "options": ctypes.c_void_p,
            "stream": gh_stream,
        },
    ),
    "gh_cross_entropy_backward": (
        gh_status,
        {
            "logits": ctypes.c_void_p,
            "dlogits": ctypes.c_void_p,
            "dtype": gh_dtype,
            "labels": ctypes.c_void_p,
            "batch": ctypes.c_int64,
            "vocab": ctypes.c_int64,
            "row_statistics": ctypes.c_void_p,
            "row_lse": ctypes.c_void_p,
            "options": ctypes.c_void_p,
            "stream": gh_stream,
        },
    ),
    "gh_scale_dlogits": (
        gh_status,
        {
            "dlogits": ctypes.c_void_p,
            "dtype": gh_dtype,
            "batch": ctypes.c_int64,
            "vocab": ctypes.c_int64,
            "dlogits_row_stride": ctypes.c_int64,
            "dloss_ptr": ctypes.c_void_p,
            "stream": gh_stream,
        },
    ),
    "gh_cross_entropy_workspace_size": (gh_status, {"stream": gh_stream, "size": ctypes.c_void_p}),
}
