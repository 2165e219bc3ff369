"""Cross-entropy in float64, with bounds on what a correct fp32 engine may differ from it by.

The bounds hold for any order of summation. E = 2^-24 is fp32's unit roundoff. An engine forms
``x - max`` (an absolute error of E * spread, so a relative one in its exponential), an exponential
and a logarithm (8 E each allows for 4 ulp), and sums of ``vocab`` terms (vocab * E at worst).
Hence ``delta = (spread + vocab + 16) * E`` for a probability, and for ``lse`` in absolute terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

E = 2.0**-24
# Unit roundoff, and the smallest step: below it results are rounded to a multiple, or flushed to zero.
ROUNDOFF = {"float32": (2.0**-24, 2.0**-126), "float16": (2.0**-11, 2.0**-24), "bfloat16": (2.0**-8, 2.0**-126)}


@dataclass
class Expected:
    ce_sum: float
    ce_bound: float
    z_sum: float
    z_bound: float
    n_valid: int
    dlogits: np.ndarray
    dlogits_bound: np.ndarray

    def check(self, ce_sum, z_sum, n_valid, dlogits):
        assert float(n_valid) == self.n_valid
        assert abs(float(ce_sum) - self.ce_sum) <= self.ce_bound
        assert abs(float(z_sum) - self.z_sum) <= self.z_bound
        excess = np.abs(np.asarray(dlogits, np.float64) - self.dlogits) - self.dlogits_bound
        assert excess.max(initial=0) <= 0, f"dlogits off beyond its bound at {np.argwhere(excess > 0)[:5].tolist()}"


def cross_entropy(logits, target, dtype, z_loss_multiplier=0.0, ignore_index=-100):
    """What a call on finite ``logits`` (float64 ``[batch, vocab]``, exact in ``dtype``) must give."""
    batch, vocab = logits.shape
    dlogits = np.zeros((batch, vocab))
    bound = np.zeros((batch, vocab))
    roundoff, step = ROUNDOFF[dtype]
    ce_terms, z_terms, ce_errors, z_errors = [0.0], [0.0], 0.0, 0.0
    for i in np.flatnonzero(target != ignore_index):
        x, y = logits[i], target[i]
        top = x.max()
        exponentials = np.exp(x - top)
        total = exponentials.sum()
        lse = top + np.log(total)
        p = exponentials / total
        delta = (top - x.min() + vocab + 16) * E
        lse_error = delta + 2 * E * abs(lse)
        others = exponentials[np.arange(vocab) != y].sum()
        ce_terms.append(np.log1p(others / exponentials[y]))
        ce_errors += lse_error + 2 * E * (abs(lse) + abs(x[y]))
        z_terms.append(lse**2)
        z_errors += 2 * abs(lse) * lse_error + lse_error**2 + 2 * E * lse**2
        scale = 1 + 2 * z_loss_multiplier * lse
        magnitude = 1 + 2 * abs(z_loss_multiplier * lse)
        dlogits[i] = p * scale
        dlogits[i, y] = p[y] * (scale - 1) - others / total
        bound[i] = p * (magnitude * (2 * delta + 8 * E) + 2 * abs(z_loss_multiplier) * lse_error)
        # The target's gradient comes from the other classes' sum, at most 1.
        bound[i, y] += 2 * delta + 8 * E
        bound[i] += roundoff * (np.abs(dlogits[i]) + bound[i]) + step
    accumulated = len(ce_terms) * E
    return Expected(
        ce_sum=sum(ce_terms),
        ce_bound=ce_errors + accumulated * (sum(ce_terms) + ce_errors),
        z_sum=sum(z_terms),
        z_bound=z_errors + accumulated * (sum(z_terms) + z_errors),
        n_valid=len(ce_terms) - 1,
        dlogits=dlogits,
        dlogits_bound=bound,
    )
