"""The library's calls on arrays of any kind, with every option: checks, addresses, and the call."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any

from greyhound import _abi, _arrays, _library
from greyhound._arguments import ArrayOption, LossOptions, as_number, check_shapes, options_struct
from greyhound._arrays import Array
from greyhound._errors import raise_status

_DTYPES = {"float32": _abi.GH_DTYPE_F32, "float16": _abi.GH_DTYPE_F16, "bfloat16": _abi.GH_DTYPE_BF16}
_LABEL_DTYPES = {"int64": _abi.GH_LABEL_I64, "int32": _abi.GH_LABEL_I32}

#: The outputs that there are without rows too.
SUMS = ("loss", "z_loss", "n_valid", "n_correct", "n_out_of_range")


class Call:
    """The arguments of one call, as they are checked one by one."""

    def __init__(self, logits: Any, target: Any, loss_options: LossOptions, sums: int) -> None:
        self._arrays: dict[str, Array] = {}
        self._written: list[Any] = []
        self._logits = described = self._add("logits", logits)
        labels = self._add("target", target)
        if described.dtype not in _DTYPES:
            raise TypeError(f"logits: expected float32, float16 or bfloat16, got {described.dtype}")
        if labels.dtype not in _LABEL_DTYPES:
            raise TypeError(f"target: expected int64 or int32, got {labels.dtype}")
        check_shapes(described.shape, labels.shape)
        self.batch, self.vocab = described.shape
        self._require_contiguous("target", labels)
        self._labels = labels
        self._dlogits: Array | None = None
        self._loss_options = loss_options
        self._options = options = options_struct(loss_options, _LABEL_DTYPES[labels.dtype], sums)
        options.logits_row_stride = _row_stride("logits", described)

    def add_dlogits(self, dlogits: Any) -> None:
        self._dlogits = array = self._add("dlogits", dlogits, written=True)
        if (array.dtype, array.shape) != (self._logits.dtype, self._logits.shape):
            raise ValueError(
                f"dlogits: expected {self._logits.dtype} {list(self._logits.shape)} as logits is, "
                f"got {array.dtype} {list(array.shape)}"
            )
        self._options.dlogits_row_stride = _row_stride("dlogits", array)

    def add_dloss(self, dloss: Any) -> None:
        if hasattr(dloss, "__float__") and not hasattr(dloss, "shape"):
            self._options.dloss = as_number("dloss", dloss)
        else:
            self._options.dloss_ptr = self.add("dloss", dloss, (), "float32").address

    def add_options(self, arrays: list[tuple[ArrayOption, Any]]) -> None:
        shapes = {"batch": (self.batch,), "vocab": (self.vocab,), None: ()}
        for option, array in arrays:
            found = self.add(option.name, array, shapes[option.length], option.dtype, written=option.written)
            setattr(self._options, option.field, found.address)

    def add(self, name: str, array: Any, shape: tuple[int, ...], dtype: str, *, written: bool = False) -> Array:
        found = self._add(name, array, written=written)
        if found.dtype != dtype:
            raise TypeError(f"{name}: expected {dtype}, got {found.dtype}")
        # Of one number, any shape.
        if found.size != 1 if shape == () else found.shape != shape:
            raise ValueError(f"{name}: expected the shape {list(shape)}, got {list(found.shape)}")
        self._require_contiguous(name, found)
        return found

    def save_statistics(self, array: Any) -> None:
        self._options.row_statistics = self.add_statistics(array, written=True)

    def add_statistics(self, array: Any, *, written: bool) -> int | None:
        return self._add_bytes("row_statistics", array, self.batch * _abi.GH_ROW_STATISTICS_BYTES, written)

    def add_workspace(self, array: Any) -> None:
        if array is not None:
            self._options.workspace = self._add_bytes("workspace", array, 0, True)
            found = self._arrays["workspace"]
            self._options.workspace_size = found.size * found.itemsize

    def _add_bytes(self, name: str, array: Any, size: int, written: bool) -> int | None:
        found = self._add(name, array, written=written)
        self._require_contiguous(name, found)
        if found.size * found.itemsize < size:
            raise ValueError(f"{name}: expected {size} bytes, got {found.size * found.itemsize}")
        return found.address

    def _add(self, name: str, array: Any, *, written: bool = False) -> Array:
        self._arrays[name] = found = _arrays.describe(name, array, written=written)
        if written:
            self._written.append(array)
        return found

    @staticmethod
    def _require_contiguous(name: str, array: Array) -> None:
        if not array.is_contiguous:
            raise ValueError(f"{name}: must be contiguous, has strides of {list(array.strides)} elements")

    def run_short(self, logits: Any, sums: Any) -> None:
        """Calls gh_cross_entropy_fwd_bwd, which overwrites the logits and adds to three sums."""
        self._require_contiguous("logits", self._add("logits", logits, written=True))
        if self._labels.dtype != "int64":
            raise TypeError(f"target: expected int64, got {self._labels.dtype}")
        address = self.add("sums", sums, (3,), "float32", written=True).address
        assert address is not None
        handle = _arrays.stream_of(self._arrays, None)
        library = _library.load()
        status = library.gh_cross_entropy_fwd_bwd(
            self._logits.address,
            _DTYPES[self._logits.dtype],
            self._labels.address,
            self.batch,
            self.vocab,
            self._loss_options.z_loss_multiplier,
            self._loss_options.ignore_index,
            address,
            address + 4,
            address + 8,
            handle,
        )
        if status:
            raise_status(library, status)

    def run(self, stream: int | None, *saved: int | None) -> None:
        """Calls the library: with ``saved``, the statistics and lse, for the gradient alone."""
        handle = _arrays.stream_of(self._arrays, stream)
        library = _library.load()
        function = library.gh_cross_entropy_backward if saved else library.gh_cross_entropy
        arguments = (
            self._logits.address,
            None if self._dlogits is None else self._dlogits.address,
            _DTYPES[self._logits.dtype],
            self._labels.address,
            self.batch,
            self.vocab,
            *saved,
            ctypes.addressof(self._options),
            handle,
        )
        # A batch without rows has no addresses, which the library would take for arguments that are missing.
        if self.batch or any(getattr(self._options, name) for name in SUMS):
            elsewhere = _device_to_enter(self._logits, handle)
            if elsewhere is None:
                status = function(*arguments)
            else:
                with elsewhere:
                    status = function(*arguments)
            if status:
                raise_status(library, status)
        _arrays.were_written(self._written)


def _row_stride(name: str, array: Array) -> int:
    (batch, vocab), (row, column) = array.shape, array.strides
    if batch and vocab > 1 and column != 1:
        raise ValueError(f"{name}: its rows must be contiguous, has strides of {list(array.strides)} elements")
    # A single row's stride may be any number.
    return row if batch > 1 else 0


def _device_to_enter(logits: Array, handle: int) -> Any:
    """Handle 0 names no device: it is the default stream of whichever is current. PyTorch can change that."""
    if handle == 0:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(logits.keep, torch.Tensor):
            from greyhound._torch_device import device_of

            if not device_of(logits.keep).is_current():
                return torch.cuda.device(logits.keep.device)
    return None


def cross_entropy_with_grad(
    logits: Any, target: Any, z_loss_multiplier: float, ignore_index: int
) -> tuple[Any, Any, Any]:
    """The short call, on arrays that can make others of their kind."""
    namespace = logits.__array_namespace__()
    sums = namespace.zeros(3, dtype=namespace.float32, device=logits.device)
    return _with_sums(logits, target, z_loss_multiplier, ignore_index, sums)


def cross_entropy_with_grad_of_cupy(
    logits: Any, target: Any, z_loss_multiplier: float, ignore_index: int
) -> tuple[Any, Any, Any]:
    """The same for CuPy, whose arrays know no namespace and are made on the device that is current."""
    cupy = sys.modules["cupy"]
    with logits.device:
        sums = cupy.zeros(3, dtype="float32")
    return _with_sums(logits, target, z_loss_multiplier, ignore_index, sums)


def _with_sums(
    logits: Any, target: Any, z_loss_multiplier: float, ignore_index: int, sums: Any
) -> tuple[Any, Any, Any]:
    call = Call(
        logits, target, LossOptions(ignore_index=ignore_index, z_loss_multiplier=z_loss_multiplier), _abi.GH_SUMS_ADD
    )
    call.run_short(logits, sums)
    return sums[0], sums[1], sums[2]


def scale_dlogits(dlogits: Any, dloss: Any, stream: int | None) -> None:
    gradient = _arrays.describe("dlogits", dlogits, written=True)
    factor = _arrays.describe("dloss", dloss)
    if gradient.dtype not in _DTYPES:
        raise TypeError(f"dlogits: expected float32, float16 or bfloat16, got {gradient.dtype}")
    if factor.dtype != "float32":
        raise TypeError(f"dloss: expected float32, got {factor.dtype}")
    if len(gradient.shape) != 2:
        raise ValueError(f"dlogits: expected the shape [batch, vocab], got {list(gradient.shape)}")
    if factor.size != 1:
        raise ValueError(f"dloss: expected one number, got the shape {list(factor.shape)}")
    handle = _arrays.stream_of({"dlogits": gradient, "dloss": factor}, stream)
    library = _library.load()
    with _device_to_enter(gradient, handle) or contextlib.nullcontext():
        status = library.gh_scale_dlogits(
            gradient.address,
            _DTYPES[gradient.dtype],
            *gradient.shape,
            _row_stride("dlogits", gradient),
            factor.address,
            handle,
        )
    if status:
        raise_status(library, status)
    _arrays.were_written([dlogits])


def workspace_size(stream: int | None) -> int:
    size = ctypes.c_size_t()
    library = _library.load()
    handle = _abi.GH_STREAM_HOST if stream is None else stream
    status = library.gh_cross_entropy_workspace_size(handle, ctypes.addressof(size))
    if status:
        raise_status(library, status)
    return size.value
