"""Losses, gradients and outputs against float64, with bounds from oracle.py of the other Python bindings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from greyhound_jax import cross_entropy, cross_entropy_with_outputs, log_prob_and_entropy

DTYPES = ["float32", "float16", "bfloat16"]
REDUCTIONS = ["none", "mean", "sum"]

# One option at a time, and all at once.
LOSSES = {
    "plain": {},
    "label_smoothing": {"label_smoothing": 0.1},
    "all smoothing": {"label_smoothing": 1.0},
    "class_weights": {"class_weights": True},
    "z_loss": {"z_loss_multiplier": 0.125},
    "logit_scale": {"logit_scale": 0.7},
    "softcap": {"softcap": 5.0},
    "all": {
        "class_weights": True,
        "label_smoothing": 0.1,
        "z_loss_multiplier": -0.01,
        "logit_scale": 1.7,
        "softcap": 8.0,
    },
}


def draw(generator, shape, dtype="float32", ignored=0):
    """Logits, and labels of which the first `ignored` are -100."""
    logits = jnp.asarray(4 * generator.standard_normal(shape), dtype)
    labels = generator.integers(0, shape[-1], size=shape[:-1]).astype(np.int32)
    labels.reshape(-1)[:ignored] = -100
    return logits, jnp.asarray(labels)


def options_of(loss, generator, vocab):
    """An entry of LOSSES as keywords for our function, and for the oracle."""
    ours = dict(LOSSES[loss])
    theirs = dict(ours)
    if theirs.pop("class_weights", False):
        theirs["weight"] = generator.uniform(0, 2, size=vocab).astype(np.float32)
        ours["class_weights"] = jnp.asarray(theirs["weight"])
    return ours, theirs


def expected(logits, labels, reduction, **options):
    rows = np.asarray(logits, np.float64).reshape(-1, logits.shape[-1])
    name = logits.dtype.name
    return oracle.Options(rows, np.asarray(labels).reshape(-1), name, reduction=reduction, **options)


def check_gradient(problem, gradient, rounded_twice):
    """As Value.check. A product with the upstream gradient is rounded to the dtype once more."""
    value = problem.dlogits
    if rounded_twice:
        roundoff, step = oracle.ROUNDOFF[problem.dtype]
        value = oracle.Value(value.exact, value.bound + roundoff * (np.abs(value.exact) + value.bound) + step)
    assert gradient.dtype == problem.dtype
    value.check(np.asarray(gradient, np.float64).reshape(value.exact.shape), "gradient")
    assert not np.asarray(gradient, np.float64).reshape(value.exact.shape)[~problem.valid].any()


def maybe_jit(function, jitted):
    return jax.jit(function) if jitted else function


# Each option for itself, and the others' combinations with all of them. To compile takes the most time here.
CASES = [
    *(("float32", loss, False) for loss in LOSSES),
    *((dtype, loss, True) for dtype in DTYPES for loss in ("plain", "all")),
    *((dtype, "all", False) for dtype in ("float16", "bfloat16")),
]


@pytest.mark.parametrize(("dtype", "loss", "jitted"), CASES, ids=[f"{d} {k}{' jit' * j}" for d, k, j in CASES])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_loss_and_gradient(device, generator, dtype, reduction, loss, jitted):
    shape = (2, 9, 131)
    logits, labels = draw(generator, shape, dtype, ignored=3)
    ours, theirs = options_of(loss, generator, shape[-1])
    upstream = np.float32(generator.uniform(0.5, 3, size=18 if reduction == "none" else ()))

    def scaled(logits, upstream):
        found = cross_entropy(logits, labels, reduction=reduction, **ours)
        return (found * upstream.reshape(found.shape)).sum(), found

    differentiated = maybe_jit(jax.value_and_grad(scaled, has_aux=True), jitted)
    (_, found), gradient = differentiated(logits, jnp.asarray(upstream))
    alone = maybe_jit(lambda logits: cross_entropy(logits, labels, reduction=reduction, **ours), jitted)(logits)

    problem = expected(logits, labels, reduction, dloss=upstream, **theirs)
    for value in (found, alone):
        assert value.dtype == jnp.float32 and value.shape == (labels.shape if reduction == "none" else ())
        problem.loss.check(np.asarray(value).reshape(problem.loss.exact.shape), "loss")
    check_gradient(problem, gradient, rounded_twice=reduction != "none" and dtype != "float16")


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 7), (5, 4099), (1, 1, 3, 5), (6,)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_shapes(device, generator, shape, reduction):
    logits, labels = draw(generator, shape)
    found, gradient = jax.value_and_grad(lambda x: cross_entropy(x, labels, reduction=reduction).sum())(logits)
    problem = expected(logits, labels, reduction)
    assert found.shape == ()
    if reduction != "none" or labels.size == 1:
        problem.loss.check(np.asarray(found).reshape(problem.loss.exact.shape), "loss")
    assert gradient.shape == shape
    check_gradient(problem, gradient, rounded_twice=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_one_row_with_class_weights(device, generator, reduction):
    # Of a scalar label, the mean divides by its weight.
    logits, labels = draw(generator, (17,))
    ours, theirs = options_of("class_weights", generator, 17)
    found, gradient = jax.value_and_grad(lambda x: cross_entropy(x, labels, reduction=reduction, **ours))(logits)
    problem = expected(logits, labels, reduction, **theirs)
    problem.loss.check(np.asarray(found).reshape(problem.loss.exact.shape), "loss")
    check_gradient(problem, gradient, rounded_twice=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("labels", [np.full(4, -100, np.int32), np.empty(0, np.int32)], ids=["all ignored", "no rows"])
def test_no_valid_rows(device, labels, reduction):
    logits = jnp.ones((len(labels), 5))
    found, gradient = jax.value_and_grad(lambda x: cross_entropy(x, labels, reduction=reduction).sum())(logits)
    assert found == 0
    assert gradient.shape == logits.shape and not gradient.any()


def test_ignore_index_within_the_vocabulary(device, generator):
    logits, labels = draw(generator, (9, 4))
    found = cross_entropy(logits, labels, ignore_index=2)
    expected(logits, labels, "mean", ignore_index=2).loss.check(found, "loss")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_labels_of_64_bits(device, generator, dtype):
    logits, labels = draw(generator, (9, 33))
    with x64():
        labels = jnp.asarray(np.asarray(labels), dtype)
        assert labels.dtype == dtype
        labels = labels.at[0].set(-(2**40) if dtype is np.int64 else -(2**20))
        found, gradient = jax.value_and_grad(lambda x: cross_entropy(x, labels, ignore_index=int(labels[0])))(logits)
    problem = expected(logits, labels, "mean", ignore_index=int(labels[0]))
    problem.loss.check(found, "loss")
    check_gradient(problem, gradient, rounded_twice=False)


def x64():
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


# ---- Outputs -------------------------------------------------------------------------------------

SUMS = ["z_loss", "n_valid", "n_correct"]
ROWS = ["lse", "target_log_prob", "entropy", "argmax"]


@pytest.mark.parametrize("loss", ["plain", "all"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_outputs(device, generator, dtype, reduction, loss):
    logits, labels = draw(generator, (2, 9, 131), dtype, ignored=3)
    ours, theirs = options_of(loss, generator, 131)
    names = [*SUMS, *ROWS, "n_out_of_range"]
    if reduction == "none":
        names.remove("z_loss")

    @jax.jit
    def differentiated(logits):
        def total(logits):
            found = cross_entropy_with_outputs(logits, labels, outputs=names, reduction=reduction, **ours)
            # Constants to the derivative.
            return found.loss.sum() + found.lse.sum() + found.n_valid, found

        return jax.value_and_grad(total, has_aux=True)(logits)

    problem = expected(logits, labels, reduction, **theirs)
    (_, with_gradient), gradient = differentiated(logits)
    check_gradient(problem, gradient, rounded_twice=True)
    alone = cross_entropy_with_outputs(logits, labels, outputs=names, reduction=reduction, **ours)
    for found in (with_gradient, alone):
        problem.loss.check(np.asarray(found.loss).reshape(problem.loss.exact.shape), "loss")
        assert (found.n_valid, found.n_correct, found.n_out_of_range) == (problem.n_valid, problem.n_correct, 0)
        if reduction == "none":
            assert found.z_loss is None
        else:
            problem.z_loss.check(found.z_loss, "z_loss")
        for name in ROWS:
            row = getattr(found, name)
            assert row.shape == labels.shape
            if name == "argmax":
                assert row.dtype == jnp.int32
                np.testing.assert_array_equal(np.asarray(row).reshape(-1), problem.argmax)
            else:
                assert row.dtype == jnp.float32
                getattr(problem, name).check(np.asarray(row).reshape(-1), name)


def test_outputs_not_asked_for_are_none(device, generator):
    found = cross_entropy_with_outputs(*draw(generator, (3, 5)), outputs=["lse"])
    assert [name for name, value in found._asdict().items() if value is not None] == ["loss", "lse"]


def test_out_of_range_labels_are_counted(device, generator):
    logits, labels = draw(generator, (4, 5))
    found = cross_entropy_with_outputs(logits, labels.at[2].set(5), outputs=["n_out_of_range"])
    assert found.n_out_of_range == 1 and jnp.isnan(found.loss)


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_log_prob_and_entropy(device, generator, dtype, jitted):
    logits, labels = draw(generator, (2, 9, 131), dtype, ignored=3)
    dlog_prob, dentropy = np.float32(generator.standard_normal((2, 18)))
    options = {"logit_scale": 0.7, "softcap": 9.0}

    def total(logits):
        found = log_prob_and_entropy(logits, labels, **options)
        factors = (jnp.asarray(dlog_prob).reshape(2, 9), jnp.asarray(dentropy).reshape(2, 9))
        return sum((x * factor).sum() for x, factor in zip(found, factors, strict=True)), found

    (_, found), gradient = maybe_jit(jax.value_and_grad(total, has_aux=True), jitted)(logits)
    problem = expected(logits, labels, "none", dloss=-dlog_prob, dentropy=dentropy, **options)
    check_gradient(problem, gradient, rounded_twice=False)
    for log_prob, entropy in (found, log_prob_and_entropy(logits, labels, **options)):
        assert log_prob.shape == entropy.shape == labels.shape
        problem.target_log_prob.check(np.asarray(log_prob).reshape(-1), "log_prob")
        problem.entropy.check(np.asarray(entropy).reshape(-1), "entropy")
