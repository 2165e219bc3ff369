"""Greyhound: cross-entropy for training, loss and gradient in one pass.

``greyhound.nn.functional``, ``greyhound.nn.CrossEntropyLoss``
    For PyTorch, with autograd.
``greyhound.kernels.cross_entropy``
    The raw kernels, for PyTorch, NumPy, and arrays of other libraries.

Importing this package needs neither PyTorch nor NumPy, and does not load
libgreyhound: the first call does. See ``greyhound._library`` for where it looks.
"""

from __future__ import annotations

import ctypes

from greyhound import _library
from greyhound._errors import LabelError, LibraryNotFoundError

__all__ = ["LabelError", "LibraryNotFoundError", "__version__", "library_version", "load_library"]

__version__ = "0.1.0"


def library_version() -> str:
    """The version of the loaded library, such as ``"0.1.0"``.

    Raises:
        LibraryNotFoundError: the library could not be loaded.
    """
    version: bytes = _library.load().gh_version_string()
    return version.decode()


def load_library() -> ctypes.CDLL:
    """The library, loaded by the first caller, with all functions of its header declared to ctypes.

    For packages that are built on this one.

    Raises:
        LibraryNotFoundError: the library could not be loaded.
    """
    return _library.load()
