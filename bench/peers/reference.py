"""A plain fp32 reference, and whether an implementation's result is close enough to it to be worth timing.

The tests prove the library right. This only keeps wrong results, of anyone, out of the tables, so its tolerances
allow what the least exact implementation does by design: torch keeps log-probabilities in the logits' dtype, and a
bfloat16 near -12 is off by up to 2^-5, which exp hands on as a relative error of the gradient; rounding the gradient
adds 2^-9. A bfloat16 loss has rounded its rows (2^-9 each, most of which cancels) and their sum (2^-9).
"""

import random

from implementations import IGNORE_INDEX

GRADIENT_TOLERANCE = {"f32": 1e-4, "f16": 2**-5 + 2**-8, "bf16": 2**-5 + 2**-8}
LOSS_TOLERANCE = {"f32": 1e-4, "f16": 2**-7, "bf16": 2**-7}
FLOAT16_MAX = 65504
SAMPLED_ROWS = 24


class Reference:
    def __init__(self, torch, case, logits, labels):
        self.torch, self.case = torch, case
        self.loss = 0.0
        step = max(1, (64 << 20) // case.vocab)  # rows at a time: fp32 copies of them stay at 256 MB
        for first in range(0, case.batch, step):
            x, y = logits[first : first + step].float(), labels[first : first + step]
            valid = y != IGNORE_INDEX
            lse = torch.logsumexp(x, dim=-1)
            loss = lse - x.gather(1, torch.where(valid, y, 0)[:, None])[:, 0] + case.z * lse * lse
            self.loss += loss[valid].double().sum().item()
        sample = {0, case.batch - 1, *(random.randrange(case.batch) for _ in range(SAMPLED_ROWS))}
        self.rows = torch.tensor(sorted(sample), device=logits.device)
        x, self.labels = logits[self.rows].float(), labels[self.rows]
        lse = torch.logsumexp(x, dim=-1, keepdim=True)
        self.softmax = torch.exp(x - lse) * (1 + 2 * case.z * lse)
        self.softmax[self.labels == IGNORE_INDEX] = 0

    def complaint(self, loss, gradient):
        """None if the result is right, or else what is wrong with it."""
        torch, case = self.torch, self.case
        if gradient.shape != (case.batch, case.vocab):
            return f"the gradient's shape is {tuple(gradient.shape)}"
        overflows = loss.dtype == torch.float16 and abs(self.loss) > FLOAT16_MAX
        error = abs(loss.item() - self.loss) / abs(self.loss)
        if not overflows and not error <= LOSS_TOLERANCE[case.dtype]:
            return f"loss {loss.item():.6g}, not {self.loss:.6g}"
        # The label's column is large and would hide the others in a norm, so it is undone first.
        g = gradient[self.rows].float()
        valid = (self.labels != IGNORE_INDEX).nonzero()[:, 0]
        g[valid, self.labels[valid]] += 1
        target_error = (g - self.softmax)[valid, self.labels[valid]].abs().max().item() if len(valid) else 0.0
        g[valid, self.labels[valid]] = self.softmax[valid, self.labels[valid]]
        tolerance = GRADIENT_TOLERANCE[case.dtype]
        error = ((g - self.softmax).norm() / self.softmax.norm()).item() if len(valid) else g.abs().max().item()
        if not (error <= tolerance and target_error <= tolerance):
            return f"gradient off by {error:.2g} (relative), at the labels by {target_error:.2g}"
        return None
