"""Exceptions, and the one that each failing status becomes."""

from __future__ import annotations

import ctypes
from typing import NoReturn

from greyhound import _abi


class LibraryNotFoundError(RuntimeError):
    """No usable libgreyhound was found. The message lists the places tried, and why each was refused."""


class LabelError(ValueError, IndexError):
    """A label is neither in ``[0, vocab)`` nor ``ignore_index``. The message names its row and value."""


_EXCEPTIONS: dict[int, type[Exception]] = {
    _abi.GH_ERROR_NULL_POINTER: ValueError,
    _abi.GH_ERROR_INVALID_SIZE: ValueError,
    _abi.GH_ERROR_INVALID_DTYPE: ValueError,
    _abi.GH_ERROR_INVALID_VALUE: ValueError,
    _abi.GH_ERROR_MISALIGNED_POINTER: ValueError,
    _abi.GH_ERROR_OVERLAP: ValueError,
    _abi.GH_ERROR_UNREACHABLE_POINTER: ValueError,
    _abi.GH_ERROR_LABEL_OUT_OF_RANGE: LabelError,
    _abi.GH_ERROR_NO_CUDA: RuntimeError,
    _abi.GH_ERROR_NO_DEVICE: RuntimeError,
    _abi.GH_ERROR_UNSUPPORTED_DEVICE: RuntimeError,
    _abi.GH_ERROR_CUDA: RuntimeError,
}


def raise_status(library: ctypes.CDLL, status: int) -> NoReturn:
    """Raises what ``status`` stands for, with the library's own message.

    Must run on the thread whose call failed: the library keeps one message per thread.
    """
    message: str = library.gh_last_error().decode()
    # A status that a later patch release added is an environment problem as far as these bindings can tell.
    raise _EXCEPTIONS.get(status, RuntimeError)(message)
