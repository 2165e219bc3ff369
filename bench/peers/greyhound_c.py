"""The library's C interface through ctypes, with nothing between it and the benchmark.

The library is the one named by the environment variable GREYHOUND_LIBRARY, or else the loader's libgreyhound.so.
"""

import ctypes
import os

STREAM_HOST = ctypes.c_void_p(-1)
DTYPES = {"f32": 0, "f16": 1, "bf16": 2}

_library = None


def library():
    global _library
    if _library is None:
        lib = ctypes.CDLL(os.environ.get("GREYHOUND_LIBRARY", "libgreyhound.so"))
        lib.gh_last_error.restype = ctypes.c_char_p
        lib.gh_version_string.restype = ctypes.c_char_p
        lib.gh_cross_entropy_fwd_bwd.restype = ctypes.c_int32
        lib.gh_cross_entropy_fwd_bwd.argtypes = [
            ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
            ctypes.c_float, ctypes.c_int64,
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        _library = lib
    return _library


def version():
    return library().gh_version_string().decode()


def cross_entropy(logits, dtype, labels, batch, vocab, z, ignore_index, sums, stream):
    """All but dtype (its name), sizes and z are addresses; sums is that of three floats."""
    status = library().gh_cross_entropy_fwd_bwd(
        logits, DTYPES[dtype], labels, batch, vocab, z, ignore_index, sums, sums + 4, sums + 8, stream
    )
    if status != 0:
        raise RuntimeError(library().gh_last_error().decode())
