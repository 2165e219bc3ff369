"""Greyhound for JAX: cross-entropy for training, loss and gradient in one pass.

``cross_entropy``
    The loss, differentiable in the logits.
``cross_entropy_with_outputs``
    The same, and what else the pass over the logits can tell: accuracy, lse, entropy, ...
``log_prob_and_entropy``
    For policy gradients: both differentiable.

They run as custom calls inside XLA's program, on CPU and on CUDA, under ``jax.jit``,
``jax.grad``, ``jax.vmap``, ``jax.checkpoint`` and ``jax.shard_map``. The work is done by
libgreyhound, as the package ``greyhound`` finds it, at the first call.
"""

from greyhound_jax._functions import (
    CrossEntropyOutputs,
    cross_entropy,
    cross_entropy_with_outputs,
    log_prob_and_entropy,
)

__all__ = [
    "CrossEntropyOutputs",
    "__version__",
    "cross_entropy",
    "cross_entropy_with_outputs",
    "log_prob_and_entropy",
]

__version__ = "0.1.0"
