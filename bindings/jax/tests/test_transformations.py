"""jit and its memory, vmap, checkpoint, scan and shard_map."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from test_loss import REDUCTIONS, check_gradient, draw, expected, options_of

from greyhound_jax import cross_entropy, cross_entropy_with_outputs, log_prob_and_entropy

BATCH, VOCAB = 32, 1024


class Program:
    """A compiled function, as XLA writes it down."""

    def __init__(self, function, *arguments):
        self.compiled = jax.jit(function).lower(*arguments).compile()
        self.text = self.compiled.as_text()

    def calls(self):
        """What each custom call returns, in order, by the names of its results."""
        return re.findall(r'custom_call_target="greyhound_jax[^\n]* results = "([^"]*)"', self.text)

    def operations(self, shape=rf"\[{BATCH},{VOCAB}\]"):
        """The operations that give an array of the logits' shape, fusions by what is in them."""
        return re.findall(rf" = \w+{shape}\{{\S* ([\w-]+)\(", self.text)


def last_layer(generator, dtype="float32"):
    hidden = jnp.asarray(generator.standard_normal((BATCH, 16)), dtype)
    weight = jnp.asarray(generator.standard_normal((16, VOCAB)), dtype)
    labels = jnp.asarray(generator.integers(0, VOCAB, size=BATCH), jnp.int32)
    return hidden, weight, labels


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradient_takes_the_memory_of_logits_that_nothing_else_needs(device, generator, reduction):
    hidden, weight, labels = last_layer(generator)

    def loss(hidden):
        return cross_entropy(hidden @ weight, labels, reduction=reduction).sum()

    program = Program(jax.value_and_grad(loss), hidden)
    assert "copy" not in program.operations()
    assert "multiply" not in program.operations()
    if device == "cpu":
        # Of the logits' size, there is one array. (On CUDA, matrix products have a workspace.)
        assert program.compiled.memory_analysis().temp_size_in_bytes < 1.5 * BATCH * VOCAB * 4


def test_logits_that_are_needed_are_not_overwritten(device, generator):
    logits, labels = draw(generator, (5, 7))
    before = np.asarray(logits).copy()
    for reuse_logits in (True, False):

        def both(logits, reuse_logits=reuse_logits):
            doubled = 2 * logits
            gradient = jax.grad(lambda x: cross_entropy(x, labels, reuse_logits=reuse_logits))(doubled)
            return doubled, gradient

        doubled, gradient = jax.jit(both)(logits)
        np.testing.assert_array_equal(doubled, 2 * before)
        check_gradient(expected(doubled, labels, "mean"), gradient, rounded_twice=False)
        np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_logits_that_are_needed_are_copied_only_to_be_reused(device, generator, reduction):
    logits, labels = draw(generator, (BATCH, VOCAB))

    def gradient(logits, reuse):
        return jax.grad(lambda x: cross_entropy(x, labels, reduction=reduction, reuse_logits=reuse).sum())(logits)

    assert "copy" in Program(lambda x: gradient(x, True), logits).operations()
    assert "copy" not in Program(lambda x: gradient(x, False), logits).operations()


def test_donated_logits_become_the_gradient(device, generator):
    logits, labels = draw(generator, (BATCH, VOCAB))
    problem = expected(logits, labels, "mean")
    gradient = jax.jit(jax.grad(cross_entropy), donate_argnums=0)(logits, labels)
    assert logits.is_deleted()
    check_gradient(problem, gradient, rounded_twice=False)


def test_loss_alone_writes_no_gradient(device, generator):
    logits, labels = draw(generator, (BATCH, VOCAB))
    assert Program(cross_entropy, logits, labels).calls() == ["loss"]
    assert Program(lambda *x: log_prob_and_entropy(*x), logits, labels).calls() == ["row_target_log_prob row_entropy"]


def test_gradient_comes_with_the_loss_or_from_its_statistics(device, generator):
    for dtype, reduction, calls in [
        ("float32", "mean", ["loss dlogits"]),
        ("bfloat16", "sum", ["loss dlogits"]),
        ("float16", "mean", ["loss row_statistics", "dlogits"]),
        ("float32", "none", ["row_loss row_statistics", "dlogits"]),
    ]:
        logits, labels = draw(generator, (BATCH, VOCAB), dtype)

        def loss(logits, labels=labels, reduction=reduction):
            return cross_entropy(logits, labels, reduction=reduction).sum()

        assert Program(jax.value_and_grad(loss), logits).calls() == calls


def test_checkpoint_computes_the_loss_alone_at_first(device, generator):
    logits, labels = draw(generator, (BATCH, VOCAB))

    @jax.checkpoint
    def loss(logits):
        return cross_entropy(jnp.sin(logits), labels)

    # XLA may put them in either order.
    assert sorted(Program(jax.value_and_grad(loss), logits).calls()) == ["loss", "loss dlogits"]
    gradient = jax.jit(jax.grad(lambda x: cross_entropy(x, labels)))
    expectation = gradient(jnp.sin(logits)) * jnp.cos(logits)
    # XLA may form the sine and the product in another way: 8 roundings allow for that, of the largest element.
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(logits), expectation, rtol=0, atol=8 * 2.0**-24)


# ---- vmap ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["plain", "all"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_vmap_over_sequences(device, generator, reduction, loss):
    logits, labels = draw(generator, (3, 5, 33), ignored=2)
    ours, theirs = options_of(loss, generator, 33)

    def total(logits, labels):
        found = cross_entropy(logits, labels, reduction=reduction, **ours)
        return found.sum(), found

    (_, found), gradients = jax.jit(jax.vmap(jax.value_and_grad(total, has_aux=True)))(logits, labels)
    assert found.shape == ((3, 5) if reduction == "none" else (3,))
    for i in range(3):
        problem = expected(logits[i], labels[i], reduction, **theirs)
        problem.loss.check(found[i], "loss")
        check_gradient(problem, gradients[i], rounded_twice=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_vmap_over_rows_is_one_call(device, generator, reduction):
    logits, labels = draw(generator, (3, 5, 33), ignored=2)
    function = jax.vmap(jax.vmap(jax.value_and_grad(lambda *x: cross_entropy(*x, reduction=reduction))))
    found, gradients = jax.jit(function)(logits, labels)
    problem = expected(logits, labels, "none")
    problem.loss.check(np.asarray(found).reshape(-1), "loss")
    check_gradient(problem, gradients, rounded_twice=False)
    program = Program(function, logits, labels)
    assert program.calls() == ["row_loss row_statistics", "dlogits"]
    assert " while(" not in program.text
    if device == "cpu":
        # The library counts rows from the first: it has been given all of them at once.
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"labels\[7\] = 33: not in"):
            jax.block_until_ready(function(logits, labels.at[1, 2].set(33)))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_vmap_over_some_arguments(device, generator, reduction):
    logits, _ = draw(generator, (5, 33))
    labels = jnp.asarray(generator.integers(0, 33, size=(3, 5)), jnp.int32)
    weights = jnp.asarray(generator.uniform(0, 2, size=(3, 33)), jnp.float32)
    found = jax.vmap(lambda y, w: cross_entropy(logits, y, class_weights=w, reduction=reduction))(labels, weights)
    for i in range(3):
        problem = expected(logits, labels[i], reduction, weight=np.asarray(weights[i]))
        problem.loss.check(found[i], "loss")


def test_vmap_counts_each_part(device, generator):
    logits, labels = draw(generator, (3, 5, 33), ignored=7)

    def count(logits, labels):
        return cross_entropy_with_outputs(logits, labels, outputs=["n_valid"], reduction="none").n_valid

    assert jax.vmap(count)(logits, labels).tolist() == [0, 3, 5]


# ---- Control flow and several devices --------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scan(device, generator, reduction):
    logits, labels = draw(generator, (3, 5, 33))

    def total(logits):
        def step(sum_so_far, part):
            return sum_so_far + cross_entropy(*part, reduction=reduction).sum(), None

        return jax.lax.scan(step, jnp.float32(0), (logits, labels))[0]

    gradients = jax.jit(jax.grad(total))(logits)
    for i in range(3):
        check_gradient(expected(logits[i], labels[i], reduction), gradients[i], rounded_twice=True)


@pytest.mark.parametrize("loss", ["plain", "class_weights"])
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_shard_map(device, generator, reduction, loss):
    devices = jax.devices(device)[:2]
    mesh = Mesh(np.asarray(devices), ("batch",), axis_types=(AxisType.Auto,))
    logits, labels = draw(generator, (4, 5, 33), ignored=2)
    ours, theirs = options_of(loss, generator, 33)

    def local(logits, labels):
        return jax.lax.psum(cross_entropy(logits, labels, reduction=reduction, **ours).sum(), "batch")

    split = PartitionSpec("batch")
    total = jax.shard_map(local, mesh=mesh, in_specs=(split, split), out_specs=PartitionSpec())
    found, gradient = jax.jit(jax.value_and_grad(total))(logits, labels)
    problem = expected(logits, labels, "sum", **theirs)
    problem.loss.check(found, "loss")
    check_gradient(problem, gradient, rounded_twice=True)


def test_sharded_logits_without_shard_map(device, generator):
    mesh = Mesh(np.asarray(jax.devices(device)[:2]), ("batch",), axis_types=(AxisType.Auto,))
    logits, labels = draw(generator, (4, 33), ignored=1)
    sharded = jax.device_put(logits, NamedSharding(mesh, PartitionSpec("batch")))
    found, gradient = jax.jit(jax.value_and_grad(lambda x: cross_entropy(x, labels)))(sharded)
    problem = expected(logits, labels, "mean")
    problem.loss.check(found, "loss")
    check_gradient(problem, gradient, rounded_twice=False)
