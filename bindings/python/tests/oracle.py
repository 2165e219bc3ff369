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


# ---- Every option ----------------------------------------------------------------------------------


@dataclass
class Value:
    """An exact value, or an array of them, and how far a correct engine may be from each."""

    exact: np.ndarray
    bound: np.ndarray

    def check(self, found, what):
        found, exact = np.asarray(found, np.float64), np.asarray(self.exact)
        assert found.shape == exact.shape, what
        # Both infinite, or both NaN, is equal too.
        wrong = ~((np.abs(found - exact) <= self.bound) | (found == exact) | (np.isnan(found) & np.isnan(exact)))
        assert not wrong.any(), f"{what} off beyond its bound at {np.argwhere(wrong)[:5].tolist()}"


@dataclass
class Options:
    """A call with every option, on finite ``logits``: what it must give.

    Its rows are one matrix operation each, so that autograd in float64 can be held against it line by line.
    """

    logits: np.ndarray  # float64 [batch, vocab], exact in dtype
    target: np.ndarray
    dtype: str
    weight: np.ndarray | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0
    z_loss_multiplier: float = 0.0
    logit_scale: float = 1.0
    softcap: float = 0.0
    dloss: float | np.ndarray = 1.0  # [batch] for the reduction "none"
    dentropy: np.ndarray | float = 0.0

    def __post_init__(self):
        (
            self.label_smoothing,
            self.z_loss_multiplier,
            self.logit_scale,
            self.softcap,
        ) = (
            float(np.float32(value))
            for value in (self.label_smoothing, self.z_loss_multiplier, self.logit_scale, self.softcap)
        )
        n = self.logits.shape[1]
        s, c, e, z = self.logit_scale, self.softcap, self.label_smoothing, self.z_loss_multiplier
        w = np.ones(n) if self.weight is None else self.weight.astype(np.float64)
        valid = self.valid = self.target != self.ignore_index
        y = np.where(valid, self.target, 0)
        rows = np.arange(len(y))

        t = s * self.logits
        tanh = np.tanh(t / c) if c else np.zeros_like(t)
        x = c * tanh if c else t
        # t and t / c are rounded, tanh is good to 4 ulp (8 E), and its product with c is rounded.
        x_error = (2 * np.abs(t) + 9 * np.abs(x) if c else np.abs(t) * (s != 1)).max(1) * E
        top, low = x.max(1), x.min(1)
        delta = (top - low + n + 16) * E + 2 * x_error
        exponentials = np.exp(x - top[:, None])
        total = exponentials.sum(1)
        lse = top + np.log(total)
        lse_error = delta + x_error + 2 * E * np.abs(lse)
        log_p = x - lse[:, None]
        p = np.exp(log_p)
        others = (exponentials.sum(1) - exponentials[rows, y]) / total
        x_y, log_p_y, w_y = x[rows, y], -np.log1p(others * total / exponentials[rows, y]), w[y]

        self.lse = self._rows(lse, lse_error)
        log_prob_error = lse_error + x_error + 2 * E * (np.abs(lse) + np.abs(x_y))
        self.target_log_prob = self._rows(log_p_y, log_prob_error)
        below = top[:, None] - x
        entropy = np.log(total) + (p * below).sum(1)
        # Its terms are at least 0. A relative error of delta in each p, and one of x_error in each x.
        entropy_error = 2 * delta + 2 * x_error + (p * below).sum(1) * (2 * delta + 8 * E) + 8 * E * entropy
        self.entropy = self._rows(entropy, entropy_error)
        self.argmax = np.where(valid, x.argmax(1), -1)

        smooth = e / n * (w * -log_p).sum(1)
        smooth_error = (
            e
            / n
            * (
                (w * (lse_error + x_error)[:, None]).sum(1)
                + (w * 2 * E * (np.abs(lse)[:, None] + np.abs(x))).sum(1)
                + (n + 8) * E * (w * (np.abs(lse)[:, None] + np.abs(x))).sum(1)
            )
        )
        z_loss = z * lse**2
        z_error = abs(z) * (2 * np.abs(lse) * lse_error + lse_error**2 + 4 * E * lse**2)
        loss = (1 - e) * w_y * -log_p_y + smooth + z_loss
        loss_error = (1 - e) * w_y * log_prob_error + smooth_error + z_error
        loss_error += 16 * E * ((1 - e) * w_y * -log_p_y + smooth + np.abs(z_loss))
        self.row_loss = self._rows(loss, loss_error)

        self.n_valid = int(valid.sum())
        self.n_correct = int((self.argmax == self.target)[valid].sum())
        divisor = float((w_y * valid).sum()) if self.reduction == "mean" else 1.0
        scale = 1 / divisor if divisor else 0.0
        accumulated = (len(y) + 8) * E  # of a sum over the rows, and of the divisor

        def reduced(row_values, magnitudes):
            size = np.where(valid, magnitudes, 0).sum() * scale
            bound = row_values.bound.sum() * scale
            return Value(row_values.exact.sum() * scale, bound + 2 * accumulated * (size + bound))

        self.loss = self.row_loss if self.reduction == "none" else reduced(self.row_loss, np.abs(loss))
        self.z_loss = reduced(self._rows(z_loss, z_error), np.abs(z_loss))

        # The gradient of a row's loss.
        slope = (1 - e) * w_y + e * w.sum() / n + 2 * z * lse
        slope_size = (1 - e) * w_y + e * w.sum() / n * (1 + (n + 4) * E) + 2 * np.abs(z * lse)
        slope_error = e * w.sum() / n * (n + 4) * E + 2 * abs(z) * lse_error + 4 * E * slope_size
        gradient = p * slope[:, None] - e / n * w
        gradient[rows, y] = (slope - (1 - e) * w_y) * p[rows, y] - (1 - e) * w_y * others - e / n * w_y
        error = p * (slope_size * (2 * delta + 16 * E) + slope_error)[:, None] + 4 * E * e / n * w
        # The target's comes from the others' sum, at most 1.
        error[rows, y] += slope_size * (2 * delta + 16 * E) + slope_error
        # The gradient of a row's entropy.
        tilt = log_p + entropy[:, None]
        tilt_error = (entropy_error + lse_error + x_error)[:, None] + 2 * E * (np.abs(x) + np.abs(lse)[:, None])
        toward_entropy = -p * tilt
        entropy_gradient_error = p * (np.abs(tilt) * (2 * delta[:, None] + 16 * E) + tilt_error)

        up = np.broadcast_to(np.asarray(self.dloss, np.float64), y.shape)[:, None] * scale
        dh = np.broadcast_to(np.asarray(self.dentropy, np.float64), y.shape)[:, None]
        down = s * (1 - tanh**2)
        down_error = s * (20 + 4 * np.abs(t / c)) * E if c else 0.0
        both = up * gradient + dh * toward_entropy
        both_size = np.abs(up * gradient) + np.abs(dh * toward_entropy)
        both_error = np.abs(up) * error + np.abs(dh) * entropy_gradient_error + (16 * E + accumulated) * both_size
        exact = np.where(valid[:, None], both * down, 0)
        bound = both_error * (down + down_error) + both_size * down_error + 8 * E * both_size * down
        roundoff, step = ROUNDOFF[self.dtype]
        bound += roundoff * (np.abs(exact) + bound) + step
        self.dlogits = Value(exact, np.where(valid[:, None], bound, 0))

    def _rows(self, exact, bound):
        return Value(np.where(self.valid, exact, 0), np.where(self.valid, bound, 0))
