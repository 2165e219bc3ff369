"""The library's calls on PyTorch tensors, by the engine of their device. Nothing here knows of autograd.

The host time of a call matters: checks read plain attributes, and text is only
made when a check fails.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, int64, strided

from greyhound import _abi, _library
from greyhound._arguments import LossOptions, check_shapes, options_struct
from greyhound._arrays import Array
from greyhound._errors import LabelError, raise_status
from greyhound._torch_device import Device, device_of, devices
from greyhound._zeroed_sums import zeroed_sums

# As objects of ctypes, which take it less time to convert than numbers.
DTYPES = {
    torch.float32: _abi.gh_dtype(_abi.GH_DTYPE_F32),
    torch.float16: _abi.gh_dtype(_abi.GH_DTYPE_F16),
    torch.bfloat16: _abi.gh_dtype(_abi.GH_DTYPE_BF16),
}
LABEL_DTYPES = {torch.int64: _abi.GH_LABEL_I64, torch.int32: _abi.GH_LABEL_I32}

# ---- The short call ------------------------------------------------------------------------------


def cross_entropy_with_grad(
    logits: torch.Tensor,
    target: torch.Tensor,
    z_loss_multiplier: float,
    ignore_index: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    device = device_if_plain(logits, target)
    if device is None or target.dtype is not int64 or logits.requires_grad or logits.is_inference():
        _check_short_call(logits, target)
        device = device_of(logits)
    stream = device.current_stream()
    # Handle 0 names no device: it is the default stream of whichever is current.
    if stream == 0 and not device.is_current():
        with torch.cuda.device(device.index):
            return cross_entropy_with_grad(logits, target, z_loss_multiplier, ignore_index)
    address, sums = zeroed_sums(logits, device.zeroed_sums, stream)
    batch, vocab = logits.shape
    status = functions().short(
        logits.data_ptr(),
        DTYPES[logits.dtype],
        target.data_ptr(),
        batch,
        vocab,
        z_loss_multiplier,
        ignore_index,
        address,
        address + 4,
        address + 8,
        stream,
    )
    if status:
        raise_status(_library.load(), status)
    # Autograd then refuses a backward that had saved these logits, as after any in-place operation.
    increment_version((logits,))
    return sums


def _check_short_call(logits: torch.Tensor, target: torch.Tensor) -> None:
    check(logits, target)
    if target.dtype is not torch.int64:
        raise TypeError(f"target: expected int64, got {target.dtype}")
    check_shapes(logits.shape, target.shape)
    if not logits.is_contiguous():
        raise ValueError(f"logits: must be contiguous, has strides {logits.stride()}; Tensor.contiguous() copies")
    if not target.is_contiguous():
        raise ValueError(f"target: must be contiguous, has strides {target.stride()}; Tensor.contiguous() copies")
    check_writable("logits", logits)


# ---- Every option --------------------------------------------------------------------------------

SUMS = ("z_loss", "n_valid", "n_correct", "n_out_of_range")
ROWS = ("lse", "target_log_prob", "entropy")


class Outputs(NamedTuple):
    """What there is besides the loss."""

    sums: torch.Tensor  # float32 [number of SUMS asked for]
    rows: torch.Tensor  # float32 [number of ROWS asked for, batch]
    argmax: torch.Tensor | None  # int64 [batch]


def forward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    loss_options: LossOptions,
    with_gradient: bool = False,
    with_statistics: bool = False,
    outputs: tuple[str, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, Outputs | None]:
    """One pass over ``logits``: the loss, the gradient, the statistics that ``backward`` wants, and the outputs.

    The arguments are as ``greyhound.nn.functional`` prepares them. The loss is float32, 0-d or for the reduction "none"
    ``[batch]``. What was not asked for is None.
    """
    device = device_of(logits)
    stream = device.current_stream()
    if stream == 0 and not device.is_current():
        with torch.cuda.device(device.index):
            return forward(logits, target, weight, loss_options, with_gradient, with_statistics, outputs)
    batch, vocab = logits.shape
    reduced = loss_options.reduction != "none"
    options = _options(logits, target, weight, loss_options)
    dlogits = statistics = others = None
    if reduced:
        loss = torch.empty_like(device.prototypes().number)
        options.loss = loss.data_ptr()
    else:
        loss = logits.new_empty(batch, dtype=torch.float32)
        options.row_loss = loss.data_ptr()
    if with_gradient:
        dlogits = _empty_gradient(logits)
    if with_statistics:
        statistics = logits.new_empty((batch, _abi.GH_ROW_STATISTICS_BYTES), dtype=torch.uint8)
        options.row_statistics = statistics.data_ptr()
    if outputs:
        others = _add_outputs(options, logits, outputs)
    # A tensor without elements has no address. For the library, which would then see a call without outputs, that is
    # a mistake; here it is a batch of no rows.
    if batch or reduced or others is not None:
        # Also for sums alone: with it they are bitwise repeatable.
        workspace = device.take_workspace(stream)
        options.workspace, options.workspace_size, _ = workspace
        status = functions().cross_entropy(
            logits.data_ptr(),
            None if dlogits is None else dlogits.data_ptr(),
            DTYPES[logits.dtype],
            target.data_ptr(),
            batch,
            vocab,
            ctypes.addressof(options),
            stream,
        )
        if status:
            raise_status(_library.load(), status)
        device.give_back_workspace(workspace, stream)
    return loss, dlogits, statistics, others


def _add_outputs(options: _abi.gh_cross_entropy_options, logits: torch.Tensor, outputs: tuple[str, ...]) -> Outputs:
    batch = logits.shape[0]
    wanted_sums = [name for name in SUMS if name in outputs]
    wanted_rows = [name for name in ROWS if name in outputs]
    sums = logits.new_empty(len(wanted_sums), dtype=torch.float32)
    rows = logits.new_empty((len(wanted_rows), batch), dtype=torch.float32)
    argmax = None
    for i, name in enumerate(wanted_sums):
        setattr(options, name, sums.data_ptr() + 4 * i)
    for i, name in enumerate(wanted_rows):
        setattr(options, f"row_{name}", rows.data_ptr() + 4 * i * batch if batch else None)
    if "argmax" in outputs:
        argmax = logits.new_empty(batch, dtype=torch.int64)
        options.row_argmax = argmax.data_ptr()
    return Outputs(sums, rows, argmax)


def backward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    statistics: torch.Tensor,
    loss_options: LossOptions,
    dloss: torch.Tensor | None,
    dentropy: torch.Tensor | None = None,
    *,
    negated: bool = False,
    in_place: bool = False,
) -> torch.Tensor:
    """The gradient of ``dloss * loss + dentropy * entropy``, into ``logits`` itself or a tensor of its own.

    ``dloss`` is of the loss's shape, ``dentropy`` is ``[batch]``; None stands for 0. With ``negated``, that of
    ``-dloss * loss + dentropy * entropy``.
    """
    batch, vocab = logits.shape
    dlogits = logits if in_place else _empty_gradient(logits)
    if not batch:
        return dlogits
    options = _options(logits, target, weight, loss_options)
    if in_place:
        options.dlogits_row_stride = options.logits_row_stride
    if dloss is None:
        options.dloss = 0.0
    else:
        dloss = dloss.contiguous()
        options.dloss = -1.0 if negated else 1.0
        if loss_options.reduction == "none":
            options.row_dloss = dloss.data_ptr()
        else:
            options.dloss_ptr = dloss.data_ptr()
    if dentropy is not None:
        dentropy = dentropy.contiguous()
        options.row_dentropy = dentropy.data_ptr()
    # For the mean's divisor, and for the weights' sum in label smoothing.
    needs_workspace = loss_options.reduction == "mean" or weight is not None
    device = device_of(logits)
    stream = device.current_stream()
    if needs_workspace:
        workspace = device.take_workspace(stream)
        options.workspace, options.workspace_size, _ = workspace
    call(
        functions().backward,
        device,
        stream,
        logits.data_ptr(),
        dlogits.data_ptr(),
        DTYPES[logits.dtype],
        target.data_ptr(),
        batch,
        vocab,
        statistics.data_ptr(),
        None,
        ctypes.addressof(options),
    )
    if needs_workspace:
        device.give_back_workspace(workspace, stream)
    if in_place:
        increment_version((logits,))
    return dlogits


def scale(dlogits: torch.Tensor, dloss: torch.Tensor) -> None:
    """Multiplies contiguous ``dlogits`` by one float32 of the same device, in place."""
    device = device_of(dlogits)
    call(
        functions().scale,
        device,
        device.current_stream(),
        dlogits.data_ptr(),
        DTYPES[dlogits.dtype],
        *dlogits.shape,
        0,
        dloss.data_ptr(),
    )


def _options(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, loss_options: LossOptions
) -> _abi.gh_cross_entropy_options:
    # For forward(); a backward pass has no sums.
    options = options_struct(loss_options, LABEL_DTYPES[target.dtype], _abi.GH_SUMS_OVERWRITE)
    # A single row's stride is any number.
    if not logits.is_contiguous() and logits.shape[0] > 1:
        options.logits_row_stride = logits.stride(0)
    if weight is not None:
        options.class_weights = weight.data_ptr()
    return options


# ---- Checks --------------------------------------------------------------------------------------


def device_if_plain(logits: torch.Tensor, target: Any) -> Device | None:
    """The device of what nearly every call is given: ``[batch, vocab]`` and ``[batch]``, contiguous, nothing wrong.

    Found out with no more than it takes, as the host time of a call matters. None for all else, which may still be
    right: the functions below find out, and say what is wrong.
    """
    shape, torch_device = logits.shape, logits.device
    if (
        type(logits) is Tensor
        and type(target) is Tensor
        and len(shape) == 2
        and target.shape == (shape[0],)
        and 0 not in shape
        and logits.dtype in DTYPES
        and target.dtype in LABEL_DTYPES
        and target.device == torch_device
        and logits.layout is strided
        and target.layout is strided
        and logits.is_contiguous()
        and target.is_contiguous()
    ):
        return devices.get(torch_device)
    return None


def check(logits: torch.Tensor, target: object) -> None:
    """Types, dtypes, layouts and devices; not shapes."""
    if not isinstance(target, torch.Tensor):
        raise TypeError(f"target: expected a torch.Tensor, as logits is one, got {type(target).__name__}")
    if logits.dtype not in DTYPES:
        raise TypeError(f"logits: expected float32, float16 or bfloat16, got {logits.dtype}")
    if target.dtype not in LABEL_DTYPES:
        hint = "; class probabilities are not supported" if target.dtype.is_floating_point else ""
        raise TypeError(f"target: expected int64 or int32, got {target.dtype}{hint}")
    if logits.layout is not torch.strided or target.layout is not torch.strided:
        raise TypeError(f"logits, target: expected dense tensors, got layouts {logits.layout} and {target.layout}")
    if not (logits.is_cuda or logits.is_cpu):
        raise ValueError(f"logits: expected a CPU or CUDA tensor, got one on {logits.device}")
    if target.device != logits.device:
        raise ValueError(f"target: on {target.device}, but logits is on {logits.device}")


def check_writable(name: str, tensor: torch.Tensor) -> None:
    """Refuses what the library may not write without autograd's knowledge."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name}: requires grad, and autograd cannot follow the kernel that overwrites it; use "
            "greyhound.nn.functional.cross_entropy, pass logits.detach(), or call under torch.no_grad()"
        )
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(f"{name}: an inference tensor may be overwritten only inside torch.inference_mode()")


def prepare_weight(weight: object, logits: torch.Tensor) -> torch.Tensor | None:
    """Class weights as the library takes them: contiguous float32."""
    if weight is None:
        return None
    vocab = logits.shape[-1]
    if not isinstance(weight, torch.Tensor):
        raise TypeError(f"weight: expected a torch.Tensor, got {type(weight).__name__}")
    if not weight.dtype.is_floating_point or weight.layout is not torch.strided:
        raise TypeError(f"weight: expected a dense floating-point tensor, got {weight.dtype}, {weight.layout}")
    if weight.requires_grad:
        raise ValueError("weight: requires grad, but the loss has no derivative for it")
    if weight.device != logits.device:
        raise ValueError(f"weight: on {weight.device}, but logits is on {logits.device}")
    if tuple(weight.shape) != (vocab,):
        raise ValueError(f"weight: expected the shape [vocab] = [{vocab}], got {list(weight.shape)}")
    return weight.to(torch.float32).contiguous()


def rows_of(logits: torch.Tensor) -> torch.Tensor:
    """``logits`` ``[..., vocab]`` as ``[batch, vocab]`` with contiguous rows apart from each other: a view if it can
    be one, else a copy."""
    if logits.dim() == 2 and logits.is_contiguous():
        return logits
    rows = logits if logits.dim() == 2 else logits.reshape(-1, logits.shape[-1])
    batch, vocab = rows.shape
    if (rows.stride(1) == 1 or vocab == 1) and (batch <= 1 or rows.stride(0) >= vocab):
        return rows
    return rows.contiguous()


def check_labels(target: torch.Tensor, vocab: int, ignore_index: int) -> None:
    """Raises for the first label out of range. Waits for the device."""
    wrong = (target != ignore_index) & ((target < 0) | (target >= vocab))
    if bool(wrong.any()):
        index = wrong.nonzero()[0].tolist()
        raise LabelError(
            f"target[{', '.join(map(str, index))}] = {target[tuple(index)].item()}: not in [0, {vocab}) and not "
            f"ignore_index ({ignore_index})"
        )


# ---- As arrays of any library --------------------------------------------------------------------


def describe(name: str, tensor: torch.Tensor, written: bool) -> Array:
    """For ``greyhound._arrays``."""
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got layout {tensor.layout}")
    if not (tensor.is_cuda or tensor.is_cpu):
        raise ValueError(f"{name}: expected a CPU or CUDA tensor, got one on {tensor.device}")
    if written:
        check_writable(name, tensor)
    on_cuda = tensor.is_cuda
    device = device_of(tensor)
    return Array(
        tensor.data_ptr() or None,
        _dtype_name(tensor.dtype),
        tensor.element_size(),
        tensor.shape,
        tensor.stride(),
        tensor.is_contiguous(),
        _device_name(tensor.device) if on_cuda else "cpu",
        device.current_stream() if on_cuda else None,
        False,
        tensor,
    )


@functools.cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@functools.cache
def _device_name(device: torch.device) -> str:
    return str(device)


# ---- The library's functions ---------------------------------------------------------------------


class _Functions(NamedTuple):
    short: Callable[..., int]
    cross_entropy: Callable[..., int]
    backward: Callable[..., int]
    scale: Callable[..., int]


@functools.cache
def functions() -> _Functions:
    return _Functions(
        *map(
            _library.load_fast,
            ("gh_cross_entropy_fwd_bwd", "gh_cross_entropy", "gh_cross_entropy_backward", "gh_scale_dlogits"),
        )
    )


def call(function: Callable[..., int], device: Device, stream: int, *arguments: Any) -> None:
    """Calls the library on a stream of a device, and raises what it reports."""
    # Handle 0 names no device: it is the default stream of whichever is current.
    if stream == 0 and not device.is_current():
        with torch.cuda.device(device.index):
            status = function(*arguments, stream)
    else:
        status = function(*arguments, stream)
    if status:
        raise_status(_library.load(), status)


def _find_increment_version() -> Callable[[tuple[torch.Tensor, ...]], None]:
    """torch.autograd.graph.increment_version without its check of types, which takes more time than all else in it."""
    found: Callable[[tuple[torch.Tensor, ...]], None] = torch._C._increment_version
    try:
        found((torch.empty(0),))
    except TypeError:  # not public: older ones take one tensor
        return _increment_version_of_each
    return found


def _increment_version_of_each(tensors: tuple[torch.Tensor, ...]) -> None:
    for tensor in tensors:
        torch.autograd.graph.increment_version(tensor)


#: Tells autograd that tensors have changed.
increment_version = _find_increment_version()


# ---- Memory of a call ----------------------------------------------------------------------------


def _empty_gradient(logits: torch.Tensor) -> torch.Tensor:
    """``[batch, vocab]``, contiguous. ``empty_like`` would keep other strides."""
    return torch.empty_like(logits) if logits.is_contiguous() else logits.new_empty(logits.shape)
