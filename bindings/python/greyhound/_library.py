"""Finds libgreyhound, checks its version, and declares its functions to ctypes.

The places, in order:

1. the environment variable ``GREYHOUND_LIBRARY``: a path, or a bare name for
   the loader. If it is set, nothing else is tried;
2. beside the package: ``greyhound/libgreyhound.so``, ``greyhound/lib/libgreyhound.so``;
3. in a source checkout, the build trees that the presets make: the newest
   ``build/{release,ci,hopper,cpu}/libgreyhound.so``;
4. the loader's own path: the name with the ABI's version, then the plain one.

The library is loaded at the first call that needs it, not at import: tools
that only read the package (documentation, type checkers, test collection) then
work without it, and the error appears where the call is.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from greyhound import _abi
from greyhound._errors import LibraryNotFoundError

ENVIRONMENT_VARIABLE = "GREYHOUND_LIBRARY"

# The sanitizer presets are left out: such a library cannot be loaded into an ordinary Python.
_BUILD_PRESETS = ("release", "ci", "hopper", "cpu")

_PACKAGE = Path(__file__).resolve().parent

_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


def load() -> ctypes.CDLL:
    """The library with all its functions declared; loaded once, by the first caller.

    Raises:
        LibraryNotFoundError: no place holds a usable library. Not remembered: a later call tries again.
    """
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _search()
    return _loaded


def load_fast(name: str) -> Callable[..., int]:
    """A function of the library, declared such that calling it takes least time.

    ctypes converts a pointer in less than half the time of an int64, which is passed in the same way.
    """
    function = load()[name]  # an object of its own
    function.restype, parameters = _abi.FUNCTIONS[name]
    as_wide = ctypes.sizeof(ctypes.c_void_p) == ctypes.sizeof(ctypes.c_int64)
    function.argtypes = [ctypes.c_void_p if as_wide and t is ctypes.c_int64 else t for t in parameters.values()]
    return function


def _search() -> ctypes.CDLL:
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    refused = []
    for place in [chosen] if chosen else _places():
        try:
            return _open(place)
        except _RefusedError as reason:
            refused.append(f"  {place}: {reason}")
    if chosen:
        advice = f"{ENVIRONMENT_VARIABLE} is set, so no other place was tried."
    else:
        advice = f"Build the library, or name it in the environment variable {ENVIRONMENT_VARIABLE}."
    raise LibraryNotFoundError("\n".join(["no usable libgreyhound was found. Tried:", *refused, advice]))


def _places() -> Iterator[str]:
    yield str(_PACKAGE / "libgreyhound.so")
    yield str(_PACKAGE / "lib" / "libgreyhound.so")
    checkout = _PACKAGE.parents[2]
    if (checkout / "include" / "greyhound" / "greyhound.h").is_file():
        trees = [checkout / "build" / preset / "libgreyhound.so" for preset in _BUILD_PRESETS]
        built = [library for library in trees if library.is_file()]
        yield from map(str, sorted(built, key=_modified, reverse=True) or trees)
    yield f"libgreyhound.so.{_abi.GH_VERSION_MAJOR}.{_abi.GH_VERSION_MINOR}"
    yield "libgreyhound.so"


def _modified(path: Path) -> float:
    return path.stat().st_mtime


class _RefusedError(Exception):
    """Why a place does not serve."""


def _open(place: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(place)
    except OSError as error:
        raise _RefusedError(str(error).removeprefix(f"{place}: ")) from None
    # The version comes before all else, so that another version's missing function is reported as what it is.
    _declare(library, "gh_version")
    version = library.gh_version()
    major, minor, patch = version >> 16, version >> 8 & 0xFF, version & 0xFF
    # Before 1.0 each minor version is an ABI of its own.
    if (major, minor) != (_abi.GH_VERSION_MAJOR, _abi.GH_VERSION_MINOR):
        wanted = f"{_abi.GH_VERSION_MAJOR}.{_abi.GH_VERSION_MINOR}"
        raise _RefusedError(f"is version {major}.{minor}.{patch}, but this package needs {wanted}.x")
    for name in _abi.FUNCTIONS:
        _declare(library, name)
    return library


def _declare(library: ctypes.CDLL, name: str) -> None:
    try:
        function = getattr(library, name)
    except AttributeError:
        raise _RefusedError(f"has no function {name}") from None
    result, parameters = _abi.FUNCTIONS[name]
    function.restype = result
    function.argtypes = list(parameters.values())
