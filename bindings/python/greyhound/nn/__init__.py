"""Building blocks for PyTorch models.

``greyhound.nn.CrossEntropyLoss``
    The loss as a module.
``greyhound.nn.functional``
    The same as functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from greyhound.nn.loss import CrossEntropyLoss

__all__ = ["CrossEntropyLoss"]


# Not imported before it is asked for: it needs PyTorch, and this package must be importable without.
def __getattr__(name: str) -> Any:
    if name == "CrossEntropyLoss":
        from greyhound.nn.loss import CrossEntropyLoss

        return CrossEntropyLoss
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
