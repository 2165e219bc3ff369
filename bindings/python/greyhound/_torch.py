"""The raw kernel on PyTorch tensors, by the engine of their device.

The host time of a call matters here: checks read plain attributes, and text is
only made when a check fails.
"""

from __future__ import annotations

import torch

from greyhound import _abi, _library
from greyhound._arguments import check_shapes
from greyhound._errors import raise_status

_DTYPES = {
    torch.float32: _abi.GH_DTYPE_F32,
    torch.float16: _abi.GH_DTYPE_F16,
    torch.bfloat16: _abi.GH_DTYPE_BF16,
}


def cross_entropy_with_grad(
    logits: torch.Tensor,
    target: torch.Tensor,
    z_loss_multiplier: float,
    ignore_index: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    check(logits, target)
    if not logits.is_contiguous():
        raise ValueError(f"logits: must be contiguous, has strides {logits.stride()}; Tensor.contiguous() copies")
    if not target.is_contiguous():
        raise ValueError(f"target: must be contiguous, has strides {target.stride()}; Tensor.contiguous() copies")
    if logits.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "logits: requires grad, and autograd cannot follow the kernel that overwrites it; use "
            "greyhound.nn.functional.cross_entropy, pass logits.detach(), or call under torch.no_grad()"
        )
    if logits.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError("logits: an inference tensor may be overwritten only inside torch.inference_mode()")
    sums = launch(logits, target, z_loss_multiplier, ignore_index)
    # Autograd then refuses a backward that had saved these logits, as after any in-place operation.
    torch.autograd.graph.increment_version(logits)
    # As plain views of one tensor the three would be one to autograd: an in-place operation on one would count
    # as one on all. data gives each a history of its own.
    return sums[0].data, sums[1].data, sums[2].data


def check(logits: torch.Tensor, target: object) -> None:
    """Everything but contiguity: the functional API takes strided tensors too."""
    if not isinstance(target, torch.Tensor):
        raise TypeError(f"target: expected a torch.Tensor, as logits is one, got {type(target).__name__}")
    if logits.dtype not in _DTYPES:
        raise TypeError(f"logits: expected float32, float16 or bfloat16, got {logits.dtype}")
    if target.dtype is not torch.int64:
        raise TypeError(f"target: expected int64, got {target.dtype}")
    if logits.layout is not torch.strided or target.layout is not torch.strided:
        raise TypeError(f"logits, target: expected dense tensors, got layouts {logits.layout} and {target.layout}")
    if not (logits.is_cuda or logits.is_cpu):
        raise ValueError(f"logits: expected a CPU or CUDA tensor, got one on {logits.device}")
    if target.device != logits.device:
        raise ValueError(f"target: on {target.device}, but logits is on {logits.device}")
    check_shapes(logits.shape, target.shape)


def launch(logits: torch.Tensor, target: torch.Tensor, z_loss_multiplier: float, ignore_index: int) -> torch.Tensor:
    """Overwrites ``logits`` with its gradient and returns float32 ``[3]``: ce_sum, z_sum, n_valid.

    Both tensors have passed ``check`` and are contiguous. On CUDA the work is put on the current
    stream of the logits' device, and nothing waits for it.
    """
    device = logits.device
    batch, vocab = logits.shape
    sums = torch.zeros(3, dtype=torch.float32, device=device)
    address = sums.data_ptr()
    library = _library.load()
    arguments = (
        logits.data_ptr(),
        _DTYPES[logits.dtype],
        target.data_ptr(),
        batch,
        vocab,
        z_loss_multiplier,
        ignore_index,
        address,
        address + 4,
        address + 8,
    )
    if not logits.is_cuda:
        status = library.gh_cross_entropy_fwd_bwd(*arguments, _abi.GH_STREAM_HOST)
    else:
        stream = torch.cuda.current_stream(device).cuda_stream
        if stream == 0 and torch.cuda.current_device() != device.index:
            # Handle 0 names no device: it is the default stream of whichever is current.
            with torch.cuda.device(device):
                status = library.gh_cross_entropy_fwd_bwd(*arguments, stream)
        else:
            status = library.gh_cross_entropy_fwd_bwd(*arguments, stream)
    if status:
        raise_status(library, status)
    return sums
