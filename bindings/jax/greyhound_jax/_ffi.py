"""The two custom calls, and how XLA comes to know them.

Their handlers are in a shared object of this package. They call libgreyhound through the addresses that the package
``greyhound`` found it at: nothing is linked, and neither file depends on the version of Python.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import greyhound
import jax
import jax.numpy as jnp
import numpy as np

#: Bytes of a row in "row_statistics".
ROW_STATISTICS_BYTES = 32

_REDUCTIONS = {"sum": 0, "mean": 1, "none": 2}

_HANDLERS = "libgreyhound_jax.so"
_CALLS = ("greyhound_jax_cross_entropy", "greyhound_jax_cross_entropy_backward")
# As JAX calls them, and as the handlers' names end.
_PLATFORMS = (("cpu", "cpu"), ("CUDA", "cuda"))

_lock = threading.Lock()
_registered = False


class LossOptions(NamedTuple):
    """What the loss is; the class weights, an array, are passed beside it."""

    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0
    z_loss_multiplier: float = 0.0
    logit_scale: float = 1.0
    softcap: float = 0.0


def register() -> None:
    """Loads libgreyhound and makes the handlers known to XLA, unless an earlier call has.

    Raises:
        LibraryNotFoundError: libgreyhound could not be loaded. Not remembered: a later call tries again.
    """
    global _registered
    with _lock:
        if _registered:
            return
        library = greyhound.load_library()
        handlers = ctypes.CDLL(_handlers_file())
        handlers.greyhound_jax_use_library(
            library.gh_cross_entropy,
            library.gh_cross_entropy_backward,
            library.gh_cross_entropy_workspace_size,
            library.gh_last_error,
        )
        for call in _CALLS:
            for platform, suffix in _PLATFORMS:
                handler = jax.ffi.pycapsule(getattr(handlers, f"{call}_{suffix}"))
                jax.ffi.register_ffi_target(call, handler, platform=platform)
        _registered = True


def _handlers_file() -> str:
    # Of an editable install, the sources are in one folder of the package and what was built in another.
    folders = sys.modules[__package__].__path__
    for folder in folders:
        file = Path(folder) / _HANDLERS
        if file.is_file():
            return str(file)
    raise ImportError(f"greyhound_jax is not installed: there is no {_HANDLERS} in {', '.join(folders)}")


def cross_entropy(
    logits: jax.Array,
    labels: jax.Array,
    class_weights: jax.Array | None,
    options: LossOptions,
    results: tuple[str, ...],
    *,
    in_place: bool = False,
) -> dict[str, jax.Array]:
    """One pass over ``logits`` ``[batch, vocab]``: the fields of gh_cross_entropy_options that ``results`` names,
    and ``"dlogits"``. With ``in_place``, that has the memory of the logits, which XLA copies if they are still needed.
    """
    operands = {} if class_weights is None else {"class_weights": class_weights}
    return _call(_CALLS[0], logits, labels, operands, options, results, in_place)


def cross_entropy_backward(
    logits: jax.Array,
    labels: jax.Array,
    class_weights: jax.Array | None,
    options: LossOptions,
    row_statistics: jax.Array,
    *,
    in_place: bool,
    **upstream: jax.Array,
) -> jax.Array:
    """``dlogits``, from ``row_statistics`` of the call above, and from ``dloss_ptr``, ``row_dloss`` or
    ``row_dentropy``."""
    operands = {"row_statistics": row_statistics, **upstream}
    if class_weights is not None:
        operands["class_weights"] = class_weights
    return _call(_CALLS[1], logits, labels, operands, options, ("dlogits",), in_place)["dlogits"]


def _call(
    target: str,
    logits: jax.Array,
    labels: jax.Array,
    operands: dict[str, jax.Array],
    options: LossOptions,
    results: tuple[str, ...],
    in_place: bool,
) -> dict[str, jax.Array]:
    arguments, varying = _varying_alike(logits, labels, *operands.values())
    found = jax.ffi.ffi_call(
        target,
        tuple(_shape_of(name, logits, varying) for name in results),
        vmap_method="broadcast_all",
        input_output_aliases={0: results.index("dlogits")} if in_place else None,
    )(
        *arguments,
        operands=" ".join(operands),
        results=" ".join(results),
        ignore_index=np.int64(options.ignore_index),
        reduction=np.int32(_REDUCTIONS[options.reduction]),
        label_smoothing=np.float32(options.label_smoothing),
        z_loss_multiplier=np.float32(options.z_loss_multiplier),
        logit_scale=np.float32(options.logit_scale),
        softcap=np.float32(options.softcap),
    )
    return dict(zip(results, found, strict=True))


def _shape_of(name: str, logits: jax.Array, varying: dict[str, Any]) -> jax.ShapeDtypeStruct:
    batch = logits.shape[0]
    if name == "dlogits":
        return jax.ShapeDtypeStruct(logits.shape, logits.dtype, **varying)
    if name == "row_statistics":
        return jax.ShapeDtypeStruct((batch, ROW_STATISTICS_BYTES), jnp.uint8, **varying)
    if name == "row_argmax":
        # Also where JAX has no 64-bit types: this is the handler's.
        return jax.ShapeDtypeStruct((batch,), np.dtype(np.int64), **varying)
    return jax.ShapeDtypeStruct((batch,) if name.startswith("row_") else (), jnp.float32, **varying)


# ---- shard_map -----------------------------------------------------------------------------------


def _varying_alike(*arguments: jax.Array) -> tuple[tuple[jax.Array, ...], dict[str, Any]]:
    """Inside shard_map, an array's type says over which axes of the mesh it varies. The operands of one call must
    agree in that, and its results vary as they do. Returns the operands, and what to tell of the results."""
    axes = [_axes_of(argument) for argument in arguments]
    union = frozenset[Any]().union(*axes)
    if not union:
        return arguments, {}
    alike = tuple(_vary(argument, union - own) for argument, own in zip(arguments, axes, strict=True))
    # From JAX 0.10 on, axes have more to say of them, and belong to a mesh.
    if hasattr(jax.sharding, "ManualAxisType"):
        mesh = jax.typeof(alike[0]).sharding.mesh
        return alike, {
            "manual_axis_type": jax.sharding.ManualAxisType(varying=union),
            "sharding": jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()),
        }
    return alike, {"vma": union}


def _axes_of(argument: jax.Array) -> frozenset[Any]:
    kind: Any = jax.typeof(argument)
    if hasattr(kind, "manual_axis_type"):
        return frozenset(kind.manual_axis_type.varying)
    return frozenset(kind.vma)


def _vary(argument: jax.Array, axes: frozenset[Any]) -> jax.Array:
    if not axes:
        return argument
    lax: Any = jax.lax  # one name or the other, by the version of JAX
    varying: jax.Array
    if hasattr(lax, "pcast"):
        varying = lax.pcast(argument, tuple(axes), to="varying")
    else:
        varying = lax.pvary(argument, tuple(axes))
    return varying
