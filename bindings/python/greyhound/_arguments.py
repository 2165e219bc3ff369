"""Checks of arguments that do not depend on whose array it is."""

from __future__ import annotations

import functools
import math
import numbers
from typing import NamedTuple

from greyhound import _abi

REDUCTIONS = {
    "none": _abi.GH_REDUCTION_NONE,
    "mean": _abi.GH_REDUCTION_MEAN,
    "sum": _abi.GH_REDUCTION_SUM,
}


class LossOptions(NamedTuple):
    """What the loss is; the class weights, an array, are passed beside it."""

    ignore_index: int = -100
    reduction: str = "sum"
    label_smoothing: float = 0.0
    z_loss_multiplier: float = 0.0
    logit_scale: float = 1.0
    softcap: float = 0.0


class ArrayOption(NamedTuple):
    """An option that is an array: a field of the library's options, and what it holds."""

    field: str
    name: str  # the caller's
    length: str | None  # "batch" or "vocab"; None: one number, in any shape
    dtype: str
    written: bool


def loss_options(
    ignore_index: object,
    reduction: object,
    label_smoothing: object,
    z_loss_multiplier: object,
    logit_scale: object,
    softcap: object,
) -> LossOptions:
    """The options with their types checked. Domains are the library's to check, in the precision that it uses."""
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        raise ValueError(f"reduction: expected 'none', 'mean' or 'sum', got {reduction!r}")
    return LossOptions(
        as_index(ignore_index),
        reduction,
        as_number("label_smoothing", label_smoothing),
        as_number("z_loss_multiplier", z_loss_multiplier),
        as_number("logit_scale", logit_scale),
        as_number("softcap", softcap),
    )


def options_struct(options: LossOptions, label_dtype: int, sums: int) -> _abi.gh_cross_entropy_options:
    """The library's options with these set, and all memory still to come."""
    return _copy(_template(options, label_dtype, sums))


_copy = _abi.gh_cross_entropy_options.from_buffer_copy


@functools.lru_cache(maxsize=64)
def _template(options: LossOptions, label_dtype: int, sums: int) -> _abi.gh_cross_entropy_options:
    """What is the same in each step of a training. Copied, and never written, since threads share it."""
    struct = _abi.gh_cross_entropy_options(**_abi.GH_CROSS_ENTROPY_OPTIONS_INIT)
    struct.label_dtype = label_dtype
    struct.sums = sums
    struct.reduction = REDUCTIONS[options.reduction]
    struct.ignore_index = options.ignore_index
    struct.label_smoothing = options.label_smoothing
    struct.z_loss_multiplier = options.z_loss_multiplier
    struct.logit_scale = options.logit_scale
    struct.softcap = options.softcap
    return struct


def as_number(name: str, value: object) -> float:
    """``value`` as a Python float. Whether it is finite is the library's to check, in the precision that it uses."""
    if type(value) is float:
        return value
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


def as_index(value: object) -> int:
    """``value`` as a Python int that fits in 64 bits: ctypes would silently cut a larger one."""
    if type(value) is int:
        index = value
    elif isinstance(value, numbers.Integral):
        index = int(value)
    else:
        raise TypeError(f"ignore_index: expected an integer, got {type(value).__name__}")
    if not -(2**63) <= index < 2**63:
        raise ValueError(f"ignore_index = {index}: does not fit in int64")
    return index


def check_shapes(logits: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Holds the two shapes to ``[batch, vocab]`` and ``[batch]``."""
    if len(logits) != 2:
        raise ValueError(f"logits: expected the shape [batch, vocab], got {list(logits)}")
    if len(target) != 1 or target[0] != logits[0]:
        raise ValueError(f"target: expected the shape [batch] = [{logits[0]}], got {list(target)}")


def check_leading_shapes(logits: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Holds the two shapes to ``[..., vocab]`` and ``[...]``."""
    if not logits:
        raise ValueError("logits: expected the shape [..., vocab], got []")
    if target != logits[:-1]:
        raise ValueError(
            f"target: expected the shape of logits without its last dimension, the classes: {list(logits[:-1])}, "
            f"got {list(target)}"
        )
