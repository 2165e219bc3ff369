"""The three sums that the short call adds to, zeroed before it needs them.

To zero three floats on a CUDA device costs the host as much as the call itself. PyTorch's allocator gives 512 bytes
for them in any case; zeroed at once, they hold the sums of 42 calls.
"""

from __future__ import annotations

from typing import Any

import torch

_C: Any = torch._C

_CALLS = 512 // 12

#: The address of three floats in a row, and the three as 0-d tensors.
Sums = tuple[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def zeroed_sums(logits: torch.Tensor, ready: dict[int, list[Sums]], stream: int) -> Sums:
    """Sums that nobody else has, 0 for work on ``stream``, on the logits' device.

    ``ready`` is that device's store, by stream as free memory is in the allocator: what a stream's work zeroes is ready
    for that stream's later work alone. Threads may share it: pop and extend are atomic.
    """
    # A graph has to zero its own sums each time that it is replayed; CUDA captures no default stream, 0. A subclass of
    # Tensor, and a mode, want to see and may change how tensors are made.
    if type(logits) is not torch.Tensor or _C._len_torch_dispatch_stack() or (stream and _is_captured(logits)):
        return _make(logits, 1)[0]
    try:
        return ready[stream].pop()
    except (KeyError, IndexError):
        # Made as usual tensors also in inference mode: who gets the others may be outside of it.
        with torch.inference_mode(False):
            *others, last = _make(logits, _CALLS)
        ready.setdefault(stream, []).extend(others)
        return last


def _is_captured(logits: torch.Tensor) -> bool:
    if not logits.is_cuda:
        return False
    if _C._cuda_getDevice() == logits.device.index:
        return bool(torch.cuda.is_current_stream_capturing())
    with torch.cuda.device(logits.device):
        return bool(torch.cuda.is_current_stream_capturing())


def _make(logits: torch.Tensor, calls: int) -> list[Sums]:
    block = logits.new_zeros(3 * calls, dtype=torch.float32)
    address = block.data_ptr()
    numbers = _apart(block)
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return list(zip(range(address, address + 12 * calls, 12), triples, strict=True))


# Not public: another torch may be without it.
_without_views: Any = getattr(_C, "_AutoDispatchBelowADInplaceOrView", None)


def _apart(block: torch.Tensor) -> list[torch.Tensor]:
    """The block's numbers as tensors of their own.

    As plain views of one tensor they would be one to autograd: an in-place operation on one would count as one on
    all. Made below the part of PyTorch that knows about views, each has a history of its own; so has what ``data``
    gives, but that is one more tensor to make for each.
    """
    if _without_views is None:
        return [number.data for number in block.unbind()]
    with _without_views():
        return list(block.unbind())
