"""Losses as functions of JAX arrays, with their derivatives.

How the gradient comes about, in one of two ways.

In the forward pass already: "mean" and "sum" of float32 and bfloat16. One read of the logits and one write of the
gradient, which is all that is kept for the backward pass. That multiplies it by the upstream gradient, as an
operation of XLA's own and not of this library's: the 1 of ``jax.grad`` is a constant of the program, and XLA drops the
product; another factor it can fuse into what comes next, in the gradient's memory. A custom call could do neither. The
product is rounded a second time; but these two dtypes have float32's range, so nothing was rounded to 0 before.

In the backward pass: all else. The forward pass keeps the logits and saves 32 bytes per row, and the backward pass
turns the logits into the gradient with one more read of them. All factors are multiplied in float32, and the result is
rounded once. float16 needs that: a gradient divided by the number of rows would be rounded to 0 before a loss scale
could save it. "none" needs it, since its upstream gradients differ from row to row.

Either way there is one array of the logits' size between the passes, and the gradient takes the logits' memory if they
are not needed any more. Under ``jax.checkpoint`` the forward pass computes the loss alone (``optimize_remat``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from greyhound.kernels.cross_entropy import cross_entropy_kernel

from greyhound_jax import _ffi
from greyhound_jax._ffi import LossOptions

Reduction = Literal["none", "mean", "sum"]


def cross_entropy(
    logits: jax.typing.ArrayLike,
    labels: jax.typing.ArrayLike,
    *,
    class_weights: jax.typing.ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    z_loss_multiplier: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    reuse_logits: bool = True,
) -> jax.Array:
    """Cross-entropy of ``logits`` with integer labels, differentiable in the logits.

    With ``x_j = logit_scale * logits[i, j]``, capped to ``softcap * tanh(x_j / softcap)`` if softcap is
    positive, ``lse_i = log(sum_j exp(x_j))``, ``e = label_smoothing`` and ``w = class_weights`` or 1, the
    loss of a row whose label ``y`` is not ``ignore_index`` is::

        loss_i = (1 - e) * w[y] * (lse_i - x_y)
               + e / vocab * sum_j(w[j] * (lse_i - x_j))
               + z_loss_multiplier * lse_i ** 2

    and 0 for the others. ``"sum"`` adds them up; ``"mean"`` divides the sum by the number of rows that are
    not ignored, or with ``class_weights`` by the sum of their ``w[y]``. The mean over no rows is 0, with
    gradient 0.

    Without differentiation only the loss is computed, and nothing of the logits' size is written. Everything
    but the arrays is static: a Python number, not a traced value.

    Args:
        logits: ``[..., vocab]``, float32, float16 or bfloat16.
        labels: ``[...]``, int32 or int64: the class of each row, in ``[0, vocab)`` or ``ignore_index``.
        class_weights: ``[vocab]``, floating point: a factor for each class; or None. A constant: to differentiate in it
            is an error.
        ignore_index: any int64, also one inside ``[0, vocab)``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: in ``[0, 1]``.
        z_loss_multiplier: finite; 0 turns the z-loss off.
        logit_scale: finite and positive; an inverse temperature.
        softcap: finite and positive, or 0: off.
        reuse_logits: under ``jax.jit``, let the gradient take the memory of the logits. Logits that the program
            still needs are copied first, by XLA: then, and for logits that are arguments of the jitted function and
            not donated, False saves that copy. It changes no result.

    Returns:
        float32, whatever the logits' dtype: ``[]``, or the labels' shape for ``"none"``.

    Raises:
        TypeError: an argument's type or dtype is not supported; or forward-mode differentiation.
        ValueError: a shape or value is not as said above.
        NotImplementedError: a second derivative, or one in ``class_weights``.
        LibraryNotFoundError: a ``RuntimeError``; libgreyhound could not be loaded.
        jax.errors.JaxRuntimeError: when the result is used, as JAX reports errors: on the CPU, a label out of range
            (on CUDA, where nobody may wait for the answer, the loss and that row's gradient become NaN instead); on
            CUDA, the library has no CUDA engine, the device is older than compute capability 8.0, or CUDA failed.
    """
    options = _check_options(ignore_index, reduction, label_smoothing, z_loss_multiplier, logit_scale, softcap)
    return _loss(logits, labels, class_weights, options, (), reuse_logits)["loss"]


class CrossEntropyOutputs(NamedTuple):
    """The loss, and what else was asked for; None for what was not.

    Only the loss is differentiable: the others are constants to ``jax.grad``. Rows whose label is ``ignore_index``
    have 0 in their outputs, and an argmax of -1.
    """

    #: As ``cross_entropy`` returns it.
    loss: jax.Array
    #: ``[]`` float32: the part of the loss that is ``z_loss_multiplier * lse ** 2``. Not for the reduction "none".
    z_loss: jax.Array | None = None
    #: ``[]`` float32: rows that are not ignored.
    n_valid: jax.Array | None = None
    #: ``[]`` float32: rows whose argmax is the label.
    n_correct: jax.Array | None = None
    #: ``[]`` float32: rows whose label is out of range. If asked for, such a label makes the loss NaN on the CPU too.
    n_out_of_range: jax.Array | None = None
    #: ``[...]`` float32: the log-sum-exp of each row.
    lse: jax.Array | None = None
    #: ``[...]`` float32: the label's log-probability, without smoothing or weight.
    target_log_prob: jax.Array | None = None
    #: ``[...]`` float32: the entropy of each row's softmax, in nats.
    entropy: jax.Array | None = None
    #: ``[...]`` int32: the first index of the largest logit; -1 also if the row's loss is NaN.
    argmax: jax.Array | None = None


def cross_entropy_with_outputs(
    logits: jax.typing.ArrayLike,
    labels: jax.typing.ArrayLike,
    *,
    outputs: Sequence[str],
    class_weights: jax.typing.ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    z_loss_multiplier: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    reuse_logits: bool = True,
) -> CrossEntropyOutputs:
    """``cross_entropy``, and what the same pass over the logits can tell besides: accuracy, lse, entropy, ...

    Args:
        outputs: names of fields of ``CrossEntropyOutputs``. What is not named is not computed.
        others: as for ``cross_entropy``.

    Returns:
        A ``CrossEntropyOutputs``: a named tuple, and so a pytree.

    Raises:
        ValueError: ``outputs`` holds another name, or ``"z_loss"`` with the reduction ``"none"``.
        others: as for ``cross_entropy``.
    """
    options = _check_options(ignore_index, reduction, label_smoothing, z_loss_multiplier, logit_scale, softcap)
    wanted = _check_outputs(outputs, options.reduction)
    return CrossEntropyOutputs(**_loss(logits, labels, class_weights, options, wanted, reuse_logits))


def log_prob_and_entropy(
    logits: jax.typing.ArrayLike,
    labels: jax.typing.ArrayLike,
    *,
    ignore_index: int = -100,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    reuse_logits: bool = True,
) -> tuple[jax.Array, jax.Array]:
    """The label's log-probability and the entropy of each row, both differentiable in the logits.

    What policy-gradient methods want of a language model's logits, in one pass over them, and one more for
    the gradient. ``logit_scale`` is the inverse of the sampling temperature.

    Args:
        All as for ``cross_entropy``.

    Returns:
        ``(log_prob, entropy)``, float32 of the labels' shape, in nats. Rows whose label is ``ignore_index``
        have 0 in both, and a gradient of 0.

    Raises:
        As ``cross_entropy`` does.
    """
    options = _check_options(ignore_index, "none", 0.0, 0.0, logit_scale, softcap)
    logits, labels, _ = _check_arrays(logits, labels, None)
    static = _Static(options, (), bool(reuse_logits))
    log_prob, entropy = _log_prob_and_entropy(static, *_rows_of(logits, labels))
    return log_prob.reshape(labels.shape), entropy.reshape(labels.shape)


# ---- Arguments -----------------------------------------------------------------------------------


class _Static(NamedTuple):
    """What is not an array."""

    options: LossOptions
    results: tuple[str, ...]  # besides the loss, by the names of the library's fields
    reuse_logits: bool


# Of CrossEntropyOutputs, the field of the library that it is.
_FIELDS = {
    **{name: name for name in ("z_loss", "n_valid", "n_correct", "n_out_of_range")},
    **{name: f"row_{name}" for name in ("lse", "target_log_prob", "entropy", "argmax")},
}


def _check_options(*values: Any) -> LossOptions:
    try:
        hash(values)
    except TypeError:
        # Arrays and traced values. The message of the check names the argument.
        return _check_hashable_options.__wrapped__(*values)
    return _check_hashable_options(*values)


@lru_cache(maxsize=256, typed=True)
def _check_hashable_options(*values: Any) -> LossOptions:
    """The options, if the library takes them: it is called with them, for no rows."""
    _ffi.register()
    options = LossOptions(*values)
    no_logits, no_labels = np.empty((0, 1), np.float32), np.empty(0, np.int32)
    cross_entropy_kernel(no_logits, no_labels, n_valid=np.empty(1, np.float32), **options._asdict())
    return LossOptions(int(options.ignore_index), options.reduction, *map(float, options[2:]))


def _check_outputs(outputs: Sequence[str], reduction: str) -> tuple[str, ...]:
    if isinstance(outputs, str):
        raise TypeError(f"outputs: expected a sequence of names, got one string, {outputs!r}")
    for name in outputs:
        if name not in _FIELDS:
            raise ValueError(f"outputs: {name!r} is none of {', '.join(_FIELDS)}")
    if "z_loss" in outputs and reduction == "none":
        raise ValueError("outputs: there is no z_loss with the reduction 'none'")
    return tuple(dict.fromkeys(outputs))


def _check_arrays(logits: Any, labels: Any, class_weights: Any) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    if logits.dtype not in (jnp.float32, jnp.float16, jnp.bfloat16):
        raise TypeError(f"logits: expected float32, float16 or bfloat16, got {logits.dtype}")
    if labels.dtype not in (jnp.int32, jnp.int64):
        hint = "; class probabilities are not supported" if jnp.issubdtype(labels.dtype, jnp.floating) else ""
        raise TypeError(f"labels: expected int32 or int64, got {labels.dtype}{hint}")
    if not logits.ndim:
        raise ValueError("logits: expected the shape [..., vocab], got []")
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"labels: expected the shape of logits without its last dimension, the classes: {list(logits.shape[:-1])}, "
            f"got {list(labels.shape)}"
        )
    vocab = logits.shape[-1]
    if vocab == 0:
        raise ValueError("logits: no classes, vocab = 0")
    if class_weights is None:
        return logits, labels, None
    class_weights = jnp.asarray(class_weights)
    if not jnp.issubdtype(class_weights.dtype, jnp.floating):
        raise TypeError(f"class_weights: expected a floating-point array, got {class_weights.dtype}")
    if class_weights.shape != (vocab,):
        raise ValueError(f"class_weights: expected the shape [vocab] = [{vocab}], got {list(class_weights.shape)}")
    return logits, labels, _constant(class_weights).astype(jnp.float32)


def _rows_of(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    return logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)


def _may_overwrite(logits: jax.Array, static: _Static) -> bool:
    # Outside of jit the logits are the caller's, and in_place would only make XLA copy them.
    return static.reuse_logits and isinstance(logits, jax.core.Tracer)


# ---- Derivatives that do not exist ----------------------------------------------------------------


@jax.custom_jvp
def _constant(class_weights: jax.Array) -> jax.Array:
    return class_weights


@partial(_constant.defjvp, symbolic_zeros=True)
def _(primals: Any, tangents: Any) -> Any:
    if type(tangents[0]) is not jax.custom_derivatives.SymbolicZero:
        raise NotImplementedError(
            "greyhound_jax: the loss has no derivative in class_weights; jax.lax.stop_gradient makes them constants"
        )
    return primals[0], tangents[0]


@jax.custom_jvp
def _differentiated_once(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Its arguments, in a derivative that has no derivative itself."""
    return arrays


@_differentiated_once.defjvp
def _(primals: Any, tangents: Any) -> Any:
    raise NotImplementedError("greyhound_jax: second derivatives are not supported")


# ---- The loss ------------------------------------------------------------------------------------


def _loss(
    logits: Any, labels: Any, class_weights: Any, options: LossOptions, outputs: tuple[str, ...], reuse_logits: bool
) -> dict[str, jax.Array]:
    logits, labels, class_weights = _check_arrays(logits, labels, class_weights)
    reduction = options.reduction
    if not labels.ndim and (class_weights is None or reduction == "sum") and "z_loss" not in outputs:
        # The same number for a single row, and under vmap all rows in one call.
        options = options._replace(reduction="none")
    static = _Static(options, tuple(_FIELDS[name] for name in outputs), bool(reuse_logits))
    loss, others = _cross_entropy(static, *_rows_of(logits, labels), class_weights)
    found = {name: jax.lax.stop_gradient(others[_FIELDS[name]]) for name in outputs}
    if "argmax" in found:
        found["argmax"] = found["argmax"].astype(jnp.int32)
    shaped = {name: array.reshape(labels.shape) for name, array in found.items() if _FIELDS[name].startswith("row_")}
    return {"loss": loss.reshape(labels.shape if reduction == "none" else ()), **found, **shaped}


_Outputs = tuple[jax.Array, dict[str, jax.Array]]


def _loss_field(options: LossOptions) -> str:
    return "row_loss" if options.reduction == "none" else "loss"


def _forward(
    static: _Static, logits: Any, labels: Any, class_weights: Any, *more: str, in_place: bool = False
) -> _Outputs:
    field = _loss_field(static.options)
    found = _ffi.cross_entropy(
        logits, labels, class_weights, static.options, (field, *static.results, *more), in_place=in_place
    )
    return found.pop(field), found


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _cross_entropy(static: _Static, logits: jax.Array, labels: jax.Array, class_weights: jax.Array | None) -> _Outputs:
    """The loss, and ``static.results``, of ``logits`` ``[batch, vocab]``."""
    return _forward(static, logits, labels, class_weights)


def _gradient_comes_first(static: _Static, logits: jax.Array) -> bool:
    return static.options.reduction != "none" and logits.dtype != jnp.float16


def _cross_entropy_forward(static: _Static, logits: Any, labels: Any, class_weights: Any) -> tuple[_Outputs, Any]:
    (logits,) = _differentiated_once(logits)
    if _gradient_comes_first(static, logits):
        in_place = _may_overwrite(logits, static)
        loss, others = _forward(static, logits, labels, class_weights, "dlogits", in_place=in_place)
        return (loss, others), (others.pop("dlogits"),)
    loss, others = _forward(static, logits, labels, class_weights, "row_statistics")
    return (loss, others), (logits, labels, class_weights, others.pop("row_statistics"))


def _cross_entropy_backward(static: _Static, saved: Any, cotangents: Any) -> tuple[jax.Array, None, None]:
    dloss, _ = cotangents
    if len(saved) == 1:
        (dlogits,) = saved
        return (dlogits.astype(jnp.float32) * dloss).astype(dlogits.dtype), None, None
    logits, labels, class_weights, row_statistics = saved
    (dloss,) = _differentiated_once(dloss)
    upstream = {"row_dloss" if static.options.reduction == "none" else "dloss_ptr": dloss}
    in_place = _may_overwrite(logits, static)
    dlogits = _ffi.cross_entropy_backward(
        logits, labels, class_weights, static.options, row_statistics, in_place=in_place, **upstream
    )
    return dlogits, None, None


_cross_entropy.defvjp(_cross_entropy_forward, _cross_entropy_backward, optimize_remat=True)


# ---- Log-probability and entropy -------------------------------------------------------------------

_LOG_PROB_AND_ENTROPY = ("row_target_log_prob", "row_entropy")


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _log_prob_and_entropy(static: _Static, logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    found = _ffi.cross_entropy(logits, labels, None, static.options, _LOG_PROB_AND_ENTROPY)
    return found["row_target_log_prob"], found["row_entropy"]


def _log_prob_and_entropy_forward(static: _Static, logits: Any, labels: Any) -> tuple[tuple[jax.Array, jax.Array], Any]:
    (logits,) = _differentiated_once(logits)
    results = (*_LOG_PROB_AND_ENTROPY, "row_statistics")
    found = _ffi.cross_entropy(logits, labels, None, static.options, results)
    return (found["row_target_log_prob"], found["row_entropy"]), (logits, labels, found["row_statistics"])


def _log_prob_and_entropy_backward(static: _Static, saved: Any, cotangents: Any) -> tuple[jax.Array, None]:
    logits, labels, row_statistics = saved
    dlog_prob, dentropy = _differentiated_once(*cotangents)
    in_place = _may_overwrite(logits, static)
    # The loss is the negative log-probability.
    dlogits = _ffi.cross_entropy_backward(
        logits,
        labels,
        None,
        static.options,
        row_statistics,
        in_place=in_place,
        row_dloss=-dlog_prob,
        row_dentropy=dentropy,
    )
    return dlogits, None


_log_prob_and_entropy.defvjp(_log_prob_and_entropy_forward, _log_prob_and_entropy_backward, optimize_remat=True)
