"""Checks of arguments that do not depend on whose array it is."""

from __future__ import annotations

import math
import numbers


def as_multiplier(value: object) -> float:
    """``value`` as a Python float. Whether it is finite is the library's to check, in the precision that it uses."""
    if type(value) is float:
        return value
    if not isinstance(value, numbers.Real):
        raise TypeError(f"z_loss_multiplier: expected a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


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
