"""The three sums that the short call adds to, zeroed before it needs them.

To zero three floats on a CUDA device costs the host as much as the call itself. PyTorch's allocator gives 512 bytes
for them in any case; zeroed at once, they hold the sums of 42 calls.
"""

from __future__ import annotations

import torch

_CALLS = 512 // 12

#: The address of three floats in a row, and the three as 0-d tensors.
Sums = tuple[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]

# By device and stream, as free memory is in the allocator: what a stream's work zeroes is ready for that stream's later
# work alone. Threads may share a list: pop and extend are atomic.
_ready: dict[tuple[torch.device, int], list[Sums]] = {}


def zeroed_sums(logits: torch.Tensor, stream: int) -> Sums:
    """Sums that nobody else has, 0 for work on ``stream``, on the logits' device."""
    # A graph has to zero its own sums each time that it is replayed. A subclass of Tensor, and a mode, want to see
    # and may change how tensors are made.
    if type(logits) is not torch.Tensor or torch._C._len_torch_dispatch_stack() or _is_captured(logits):
        return _make(logits, 1)[0]
    ready = _ready.setdefault((logits.device, stream), [])
    try:
        return ready.pop()
    except IndexError:
        # Made as usual tensors also in inference mode: who gets the others may be outside of it.
        with torch.inference_mode(False):
            *others, last = _make(logits, _CALLS)
        ready.extend(others)
        return last


def _is_captured(logits: torch.Tensor) -> bool:
    if not logits.is_cuda:
        return False
    if torch._C._cuda_getDevice() == logits.device.index:
        return bool(torch.cuda.is_current_stream_capturing())
    with torch.cuda.device(logits.device):
        return bool(torch.cuda.is_current_stream_capturing())


def _make(logits: torch.Tensor, calls: int) -> list[Sums]:
    block = logits.new_zeros(3 * calls, dtype=torch.float32)
    address = block.data_ptr()
    # As plain views of one tensor they would be one to autograd: an in-place operation on one would count as one on
    # all. data gives each a history of its own.
    numbers = [number.data for number in block.unbind()]
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return list(zip(range(address, address + 12 * calls, 12), triples, strict=True))
