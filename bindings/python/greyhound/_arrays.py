"""Where an array of any library lies in memory.

Understood, in this order: ``torch.Tensor``; ``numpy.ndarray``; what has
``__cuda_array_interface__`` (CuPy, Numba, ...); what has ``__dlpack__``. Nothing is
imported for it: an array of a package's type proves that the package is there.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from greyhound import _abi

#: CUDA's handles for its two default streams, as both protocols write them.
_LEGACY_DEFAULT_STREAM = 1


@dataclass(slots=True)
class Array:
    """Memory, and who may use it when."""

    address: int | None  # None if it holds nothing
    dtype: str  # NumPy's name, "bfloat16" included
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    is_contiguous: bool
    device: str  # "cpu"; "cuda:1"; "cuda" where the array does not say which
    #: The stream that the array's library works on now; None if it does not say.
    stream: int | None
    read_only: bool
    keep: Any  # what must outlive the call

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"


def describe(name: str, array: Any, *, written: bool = False) -> Array:
    """What the argument ``name`` is. It must stay alive until the call has returned.

    Raises:
        TypeError: ``array`` is of none of the kinds above, or neither dense nor in native byte order.
        ValueError: ``written``, but it is read-only or autograd could not know that it changes.
    """
    reader = _readers.get(type(array)) or _reader(name, array)
    found = reader(name, array, written)
    if written and found.read_only:
        raise ValueError(f"{name}: read-only, but the call writes into it")
    return found


def were_written(arrays: list[Any]) -> None:
    """Tells the arrays' libraries, if they want to know."""
    torch = sys.modules.get("torch")
    if torch is not None:
        for array in arrays:
            if isinstance(array, torch.Tensor):
                torch.autograd.graph.increment_version(array)


# By exact type, of those types that settle the question. Filled as they are met.
_readers: dict[type, Callable[[str, Any, bool], Array]] = {}


def _reader(name: str, array: Any) -> Callable[[str, Any, bool], Array]:
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        from greyhound._torch import describe

        return _readers.setdefault(type(array), describe)
    if numpy is not None and isinstance(array, numpy.ndarray):
        return _readers.setdefault(type(array), _numpy_array)
    # A property that raises AttributeError where it does not apply, as JAX's does on the CPU.
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda_array
    if hasattr(array, "__dlpack__"):
        return _dlpack_array
    raise TypeError(
        f"{name}: expected a torch.Tensor or a numpy.ndarray, or an array with DLPack or "
        f"__cuda_array_interface__, got {type(array).__name__}"
    )


# ---- NumPy ---------------------------------------------------------------------------------------


def _numpy_array(name: str, array: Any, written: bool) -> Array:
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not supported; mark rows with ignore_index instead")
    if not array.dtype.isnative:
        raise TypeError(f"{name}: expected native byte order, got {array.dtype!r}")
    return Array(
        address=array.ctypes.data if array.size else None,
        dtype=array.dtype.name,
        itemsize=array.dtype.itemsize,
        shape=array.shape,
        strides=_in_elements(name, array.strides, array.dtype.itemsize),
        is_contiguous=array.flags.c_contiguous,
        device="cpu",
        stream=None,
        read_only=not array.flags.writeable,
        keep=array,
    )


# ---- __cuda_array_interface__ --------------------------------------------------------------------


def _cuda_array(name: str, array: Any, written: bool) -> Array:
    interface = array.__cuda_array_interface__
    shape = tuple(interface["shape"])
    typestr = interface["typestr"]
    itemsize = int(typestr[2:])
    kind = {"f": "float", "i": "int", "u": "uint"}.get(typestr[1])
    if typestr[0] == (">" if sys.byteorder == "little" else "<"):
        raise TypeError(f"{name}: expected native byte order, got {typestr!r}")
    # bfloat16 has no letter of its own there.
    dtype = f"{kind}{8 * itemsize}" if kind else str(getattr(getattr(array, "dtype", None), "name", typestr))
    if interface.get("mask") is not None:
        raise TypeError(f"{name}: masked arrays are not supported; mark rows with ignore_index instead")
    address, read_only = interface["data"]
    strides = interface.get("strides")
    strides = _row_major(shape) if strides is None else _in_elements(name, strides, itemsize)
    stream = interface.get("stream")
    return Array(
        address=address or None,
        dtype=dtype,
        itemsize=itemsize,
        shape=shape,
        strides=strides,
        is_contiguous=_is_contiguous(shape, strides),
        device="cuda",
        # The library's own handle for the legacy default stream is 0, CUDA's NULL.
        stream=0 if stream == _LEGACY_DEFAULT_STREAM else stream,
        read_only=read_only or _is_jax_array(array),
        keep=(array, interface),
    )


# ---- DLPack --------------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_READ_ONLY = 1
_DEVICES = {1: "cpu", 2: "cuda", 3: "cuda_host", 13: "cuda_managed"}
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.restype = ctypes.c_int
_capsule_is.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _is_jax_array(array: Any) -> bool:
    """JAX relies on nobody writing into its arrays, and does not always mark them."""
    return type(array).__module__.partition(".")[0] in ("jax", "jaxlib")


def _dlpack_array(name: str, array: Any, written: bool) -> Array:
    kind = _DEVICES.get(int(array.__dlpack_device__()[0]))
    if kind is None:
        raise ValueError(f"{name}: expected an array on a CPU or a CUDA device, got {array.__dlpack_device__()}")
    # The producer makes this stream wait for the array. Which stream it works on, the protocol cannot say.
    arguments = {"stream": _LEGACY_DEFAULT_STREAM} if kind in ("cuda", "cuda_managed") else {}
    try:
        try:
            capsule = array.__dlpack__(max_version=(1, 0), **arguments)
        except TypeError:  # an exporter of before version 1
            capsule = array.__dlpack__(**arguments)
    except BufferError as error:  # such as a read-only array, of which version 1 is the first to know
        raise ValueError(f"{name}: not given out by DLPack: {error}") from error
    # The capsule keeps its name: it is not taken over, and gives the array back when it goes.
    read_only = False
    if _capsule_is(capsule, b"dltensor_versioned"):
        managed = _DLManagedTensorVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise TypeError(f"{name}: expected DLPack version 1 or older, got {managed.major}.{managed.minor}")
        tensor = managed.tensor
        read_only = bool(managed.flags & _READ_ONLY)
    else:
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if tensor.lanes != 1 or tensor.code not in _KINDS:
        raise TypeError(f"{name}: expected numbers, got DLPack's type ({tensor.code}, {tensor.bits}, {tensor.lanes})")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _row_major(shape)
    return Array(
        address=tensor.data + tensor.byte_offset if tensor.data else None,
        dtype=f"{_KINDS[tensor.code]}{tensor.bits}",
        itemsize=tensor.bits // 8,
        shape=shape,
        strides=strides,
        is_contiguous=_is_contiguous(shape, strides),
        device="cpu" if kind == "cpu" else f"cuda:{tensor.device_id}" if kind == "cuda" else "cuda",
        stream=None if kind == "cpu" else 0,
        read_only=read_only or _is_jax_array(array),
        keep=capsule,
    )


# ---- Strides -------------------------------------------------------------------------------------


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    stride = 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _in_elements(name: str, strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    if any(stride % itemsize for stride in strides):
        raise ValueError(f"{name}: its byte strides {strides} are no multiples of its element's size, {itemsize}")
    return tuple(stride // itemsize for stride in strides)


def stream_of(arrays: dict[str, Array], stream: int | None) -> int:
    """The stream of a call on these arrays, of which the first decides; a gh_stream."""
    first_name, first = next(iter(arrays.items()))
    for name, array in arrays.items():
        # Where one does not say which device, only its kind can be compared.
        if array.device != first.device and (
            array.on_cpu != first.on_cpu or (":" in array.device and ":" in first.device)
        ):
            raise ValueError(f"{name}: on {array.device}, but {first_name} is on {first.device}")
    if first.on_cpu:
        if stream is not None:
            raise ValueError(f"stream: given, but {first_name} is on the CPU")
        host: int = _abi.GH_STREAM_HOST
        return host
    if stream is not None:
        return stream
    for name, array in arrays.items():
        if array.stream != first.stream and array.stream is not None and first.stream is not None:
            raise ValueError(
                f"{name}: used on CUDA stream {array.stream:#x}, but {first_name} on {first.stream:#x}; "
                "make one of them wait, and pass the stream to use"
            )
    for array in arrays.values():
        if array.stream is not None:
            return array.stream
    return 0
