"""A device of PyTorch's, and what the calls on it share.

The host time of a call matters: what can be found out once is, and what a call asks each time it asks PyTorch's C
functions for, without the Python around them.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch

from greyhound import _abi, _library
from greyhound._errors import raise_status
from greyhound._zeroed_sums import Sums

_C: Any = torch._C


#: Its address, its size in bytes, and what keeps it; nothing on the CPU, which needs none.
Workspace = tuple[int | None, int, "torch.Tensor | None"]


class Prototypes(NamedTuple):
    """Of what calls allocate: ``torch.empty_like`` takes half of ``new_empty``'s time."""

    number: torch.Tensor  # 0-d float32
    workspace: torch.Tensor | None  # uint8; None for the CPU, which needs none


class Device:
    """A CPU or a CUDA device."""

    __slots__ = ("_prototypes", "_workspaces", "device", "index", "zeroed_sums")

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.index = device.index if device.type == "cuda" else None
        #: By stream; see greyhound._zeroed_sums.
        self.zeroed_sums: dict[int, list[Sums]] = {}
        self._prototypes: Prototypes | None = None
        self._workspaces: list[Workspace] = []

    def prototypes(self) -> Prototypes:
        # The same threads may well both store the same ones.
        if self._prototypes is None:
            self._prototypes = _make_prototypes(self.device)
        return self._prototypes

    def take_workspace(self, stream: int) -> Workspace:
        """A workspace for one call on a stream."""
        # Those of the default stream, which is never captured into a graph and lives as long as the process, are used
        # again. Others come from PyTorch's allocator every time: it knows which memory belongs to which stream and
        # graph. Threads may share the list: pop and append are atomic.
        if stream == 0:
            try:
                return self._workspaces.pop()
            except IndexError:
                pass
        prototype = self.prototypes().workspace
        if prototype is None:
            return None, 0, None
        memory = torch.empty_like(prototype)
        return memory.data_ptr(), memory.numel(), memory

    def give_back_workspace(self, workspace: Workspace, stream: int) -> None:
        """To be called when the call has been made, and not before: another thread could be given its memory."""
        if stream == 0:
            self._workspaces.append(workspace)

    def current_stream(self) -> int:
        """A gh_stream: of the CPU its engine, else the current stream."""
        if self.index is None:
            host: int = _abi.GH_STREAM_HOST
            return host
        # What torch.cuda.current_stream(device).cuda_stream is, without making a Stream.
        stream: int = _C._cuda_getCurrentRawStream(self.index)
        return stream

    def is_current(self) -> bool:
        """Is this CUDA device the current one?"""
        # What torch.cuda.current_device() is, once CUDA is in use.
        return bool(_C._cuda_getDevice() == self.index)


#: Those that have been used. The same threads may well both store the same one.
devices: dict[torch.device, Device] = {}


def device_of(tensor: torch.Tensor) -> Device:
    """Of a tensor on a CPU or on a CUDA device."""
    found = devices.get(tensor.device)
    if found is None:
        found = devices[tensor.device] = Device(tensor.device)
    return found


def _make_prototypes(device: torch.device) -> Prototypes:
    number = torch.empty((), dtype=torch.float32, device=device)
    if number.is_cpu:
        return Prototypes(number, None)
    return Prototypes(number, torch.empty(_workspace_size(device), dtype=torch.uint8, device=device))


def _workspace_size(device: torch.device) -> int:
    size = ctypes.c_size_t()
    library = _library.load()
    with torch.cuda.device(device):
        status = library.gh_cross_entropy_workspace_size(None, ctypes.addressof(size))
    if status:
        raise_status(library, status)
    return size.value
