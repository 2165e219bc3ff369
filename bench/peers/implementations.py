"""The implementations that are compared: each turns (logits, labels) into the summed loss and its gradient.

An implementation is a class with a `name`; `load()` imports what it needs, and raises if that is not there; and
`prepare(case)` returns a function `step(logits, labels) -> (loss, gradient)` for one shape. A step may overwrite
the logits, and the gradient may then be the logits.

The reduction is "sum", and rows labelled IGNORE_INDEX do not count. Each is called in the way that is fastest for
it while still leaving a gradient behind.
"""

IGNORE_INDEX = -100


class Unsupported(Exception):
    """The implementation does not offer what the case asks for."""


class Greyhound:
    """libgreyhound through ctypes. Zeroing the sums, which is the caller's job, is part of the step."""

    name = "Greyhound"
    uncapturable = None  # why its steps cannot be captured into a CUDA graph

    def load(self):
        import torch

        import greyhound_c

        greyhound_c.library()
        self.torch, self.c = torch, greyhound_c

    def version(self):
        return self.c.version()

    def prepare(self, case):
        torch, c = self.torch, self.c
        sums = torch.zeros(3, dtype=torch.float32, device="cuda")

        def step(logits, labels):
            sums.zero_()
            c.cross_entropy(
                logits.data_ptr(), case.dtype, labels.data_ptr(), case.batch, case.vocab, case.z, IGNORE_INDEX,
                sums.data_ptr(), torch.cuda.current_stream().cuda_stream,
            )  # fmt: skip
            return sums[0] + case.z * sums[1] if case.z else sums[0], logits

        return step


def torch_loss(torch, z):
    """What a user of torch alone writes."""

    def loss(logits, labels):
        total = torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORE_INDEX)
        if z:
            lse = torch.logsumexp(logits.float(), dim=-1)
            total = total + z * torch.where(labels == IGNORE_INDEX, 0.0, lse * lse).sum()
        return total

    return loss


def forward_and_backward(torch, loss):
    def step(logits, labels):
        leaf = logits.detach().requires_grad_(True)  # the same memory
        value = loss(leaf, labels)
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), gradient

    return step


class Eager:
    name = "torch eager"
    uncapturable = None

    def load(self):
        import torch

        self.torch = torch

    def version(self):
        return self.torch.__version__

    def prepare(self, case):
        return forward_and_backward(self.torch, torch_loss(self.torch, case.z))


class Compiled(Eager):
    """Compiled anew for each shape, as a training run with fixed shapes would have it."""

    name = "torch.compile"

    def prepare(self, case):
        self.torch._dynamo.reset()
        loss = self.torch.compile(torch_loss(self.torch, case.z), dynamic=False, fullgraph=True)
        return forward_and_backward(self.torch, loss)


class Liger:
    """Computes the gradient in place during its forward pass; its backward pass hands it out."""

    name = "Liger"
    uncapturable = "reads counts back to the host in each call"

    def load(self):
        import torch
        from liger_kernel.ops import LigerCrossEntropyFunction

        self.torch, self.function = torch, LigerCrossEntropyFunction

    def version(self):
        from importlib.metadata import version

        return version("liger-kernel")

    def prepare(self, case):
        def loss(logits, labels):
            value, *_ = self.function.apply(logits, labels, None, IGNORE_INDEX, case.z, 0.0, "sum", None, False)
            return value

        return forward_and_backward(self.torch, loss)


class Quack:
    """Its single kernel for loss and gradient in place: faster than its autograd function, which needs two."""

    name = "Quack"
    uncapturable = None

    def load(self):
        import torch
        from quack.cross_entropy import cross_entropy_fwd

        self.torch, self.function = torch, cross_entropy_fwd

    def version(self):
        from importlib.metadata import version

        return version("quack-kernels")

    def prepare(self, case):
        if case.z:
            raise Unsupported("no z-loss")

        def step(logits, labels):
            losses, gradient = self.function(
                logits, labels, ignore_index=IGNORE_INDEX, return_dx=True, inplace_backward=True
            )
            return losses.sum(), gradient

        return step


ALL = [Greyhound, Eager, Compiled, Liger, Quack]
