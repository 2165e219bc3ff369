"""The library's C interface through ctypes, with nothing between it and the benchmark.

The library is the one named by the environment variable GREYHOUND_LIBRARY, or else the loader's libgreyhound.so.
"""

import ctypes
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"))
from greyhound import _abi  # noqa: E402  (the structures of greyhound.h)

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
        lib.gh_cross_entropy.restype = ctypes.c_int32
        lib.gh_cross_entropy.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
            ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        _library = lib
    return _library


def version():
    return library().gh_version_string().decode()


def overwriting_options(z, ignore_index, loss, z_loss):
    """Options of a call that overwrites the sums of the rows' losses and z-losses, whose addresses are given."""
    fields = _abi.GH_CROSS_ENTROPY_OPTIONS_INIT | {
        "sums": _abi.GH_SUMS_OVERWRITE,
        "reduction": _abi.GH_REDUCTION_SUM,
        "z_loss_multiplier": z,
        "ignore_index": ignore_index,
        "loss": loss,
        "z_loss": z_loss,
    }
    return _abi.gh_cross_entropy_options(**fields)


def cross_entropy_with_options(logits, dtype, labels, batch, vocab, options, stream):
    """In place. `options` is the address of a gh_cross_entropy_options."""
    status = library().gh_cross_entropy(logits, logits, DTYPES[dtype], labels, batch, vocab, options, stream)
    if status != 0:
        raise RuntimeError(library().gh_last_error().decode())


def cross_entropy(logits, dtype, labels, batch, vocab, z, ignore_index, sums, stream):
    """All but dtype (its name), sizes and z are addresses; sums is that of three floats."""
    status = library().gh_cross_entropy_fwd_bwd(
        logits, DTYPES[dtype], labels, batch, vocab, z, ignore_index, sums, sums + 4, sums + 8, stream
    )
    if status != 0:
        raise RuntimeError(library().gh_last_error().decode())
