"""What is refused, and with which words."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_loss import draw

from greyhound_jax import cross_entropy, cross_entropy_with_outputs, log_prob_and_entropy

LOGITS = np.zeros((2, 3), np.float32)
LABELS = np.zeros(2, np.int32)


@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        (LOGITS.astype(np.int32), LABELS, TypeError, "logits: expected float32, float16 or bfloat16, got int32"),
        (LOGITS, LABELS.astype(np.uint8), TypeError, "labels: expected int32 or int64, got uint8"),
        (LOGITS, LABELS.astype(np.float32), TypeError, "got float32; class probabilities are not supported"),
        (np.float32(0), LABELS, ValueError, "logits: expected the shape [..., vocab], got []"),
        (LOGITS, LABELS[:1], ValueError, "its last dimension, the classes: [2], got [1]"),
        (LOGITS[:, :0], LABELS, ValueError, "logits: no classes, vocab = 0"),
    ],
)
@pytest.mark.parametrize("function", [cross_entropy, log_prob_and_entropy])
def test_arrays(function, logits, labels, error, message):
    with pytest.raises(error, match=re.escape(message)):
        function(logits, labels)


@pytest.mark.parametrize(
    ("class_weights", "error", "message"),
    [
        (np.ones(3, np.int32), TypeError, "class_weights: expected a floating-point array, got int32"),
        (np.ones(2, np.float32), ValueError, "class_weights: expected the shape [vocab] = [3], got [2]"),
    ],
)
def test_class_weights(class_weights, error, message):
    with pytest.raises(error, match=re.escape(message)):
        cross_entropy(LOGITS, LABELS, class_weights=class_weights)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reduction": "avg"}, ValueError, "reduction: expected 'none', 'mean' or 'sum', got 'avg'"),
        ({"reduction": ["sum"]}, ValueError, "reduction: expected 'none', 'mean' or 'sum', got ['sum']"),
        ({"label_smoothing": 1.5}, ValueError, "label_smoothing = 1.5: must be in [0, 1]"),
        ({"label_smoothing": "0.1"}, TypeError, "label_smoothing: expected a number, got str"),
        ({"z_loss_multiplier": float("nan")}, ValueError, "z_loss_multiplier = nan"),
        ({"logit_scale": 0.0}, ValueError, "logit_scale = 0"),
        ({"softcap": -1.0}, ValueError, "softcap = -1"),
        ({"ignore_index": 1.5}, TypeError, "ignore_index: expected an integer, got float"),
        ({"ignore_index": 2**63}, ValueError, "ignore_index = 9223372036854775808: does not fit in int64"),
    ],
)
def test_options(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        cross_entropy(LOGITS, LABELS, **options)


def test_options_are_numbers_and_not_traced():
    with pytest.raises(TypeError, match=r"label_smoothing: expected a number, got .*Tracer"):
        jax.jit(lambda smoothing: cross_entropy(LOGITS, LABELS, label_smoothing=smoothing))(0.1)


@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        ("lse", TypeError, "outputs: expected a sequence of names, got one string, 'lse'"),
        (["perplexity"], ValueError, "outputs: 'perplexity' is none of z_loss, n_valid, "),
        (["loss"], ValueError, "outputs: 'loss' is none of z_loss, n_valid, "),
        (["z_loss"], ValueError, "outputs: there is no z_loss with the reduction 'none'"),
    ],
)
def test_outputs(outputs, error, message):
    with pytest.raises(error, match=re.escape(message)):
        cross_entropy_with_outputs(LOGITS, LABELS, outputs=outputs, reduction="none")


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_labels_out_of_range(device, generator, reduction, jitted):
    logits, labels = draw(generator, (4, 5))
    labels = labels.at[2].set(5)

    def differentiated(logits):
        return jax.value_and_grad(lambda x: cross_entropy(x, labels, reduction=reduction).sum())(logits)

    if device == "cpu":
        # The library's own words.
        message = re.escape("labels[2] = 5: not in [0, 5) and not ignore_index (-100)")
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready((jax.jit(differentiated) if jitted else differentiated)(logits))
    else:
        loss, gradient = differentiated(logits)
        assert jnp.isnan(loss)
        # With a mean, NaN is the sum and not the divisor.
        assert jnp.isnan(gradient).all(1).tolist() == [False, False, True, False]


# ---- Derivatives that do not exist ----------------------------------------------------------------

SECOND_DERIVATIVES = {
    "one pass": lambda x: cross_entropy(x, LABELS),
    "two passes": lambda x: cross_entropy(x, LABELS, reduction="none").sum(),
    "log_prob": lambda x: log_prob_and_entropy(x, LABELS)[0].sum(),
}


@pytest.mark.parametrize("function", SECOND_DERIVATIVES.values(), ids=SECOND_DERIVATIVES)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_second_derivatives(device, function, jitted):
    gradient = jax.grad(function)
    if jitted:
        gradient = jax.jit(gradient)
    with pytest.raises(NotImplementedError, match="greyhound_jax: second derivatives are not supported"):
        jax.grad(lambda x: gradient(x).sum())(LOGITS)
    with pytest.raises(NotImplementedError, match="greyhound_jax: second derivatives are not supported"):
        jax.hessian(function)(LOGITS)


def test_derivative_of_a_gradient_in_a_factor(device, generator):
    # No second derivative: a gradient is linear in the upstream one.
    logits, labels = draw(generator, (4, 5))

    def size(factor, reduction):
        gradient = jax.grad(lambda x: (factor * cross_entropy(x, labels, reduction=reduction)).sum())(logits)
        return (gradient**2).sum()

    found = jax.grad(size)(jnp.float32(3), "mean")
    expectation = 6 * size(jnp.float32(1), "mean")
    # Sums of 20 squares, which are rounded once each, and a few products.
    np.testing.assert_allclose(found, expectation, rtol=32 * 2.0**-24)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        jax.grad(size)(jnp.float32(3), "none")


def test_forward_mode():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: cross_entropy(x, LABELS), (jnp.asarray(LOGITS),), (jnp.asarray(LOGITS),))


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_derivative_in_class_weights(jitted):
    def loss(logits, weights):
        return cross_entropy(logits, LABELS, class_weights=weights, label_smoothing=0.1)

    def gradient(function, argument):
        function = jax.grad(function, argnums=argument)
        return (jax.jit(function) if jitted else function)(jnp.asarray(LOGITS), jnp.ones(3))

    with pytest.raises(NotImplementedError, match="the loss has no derivative in class_weights"):
        gradient(loss, 1)
    assert not gradient(lambda x, w: loss(x, jax.lax.stop_gradient(w)), 1).any()
    assert gradient(loss, 0).any()
