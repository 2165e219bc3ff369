"""Host time of one call from PyTorch, ours and the peers', and what ours consists of; written as JSON.

    GREYHOUND_LIBRARY=build/release/libgreyhound.so python3 bench/peers/overhead.py --output overhead.json

The tensors are so small that the GPU is never what a call waits for. Calls are timed in bursts, after each of which
the GPU may finish: its queue is never full. A call that waits for the GPU by itself shows that in its time.
"""

import argparse
import ctypes
import gc
import json
import statistics
import sys
import time
from pathlib import Path

import context
from implementations import IGNORE_INDEX, Liger, Quack

sys.path.insert(0, str(context.ROOT / "bindings" / "python"))

BATCH, VOCAB = 16, 1024
BURST = 50


class Timer:
    def __init__(self, synchronize, bursts):
        self.synchronize, self.bursts = synchronize, bursts

    def measure(self, call):
        """Microseconds of a call: the mean of each burst, and of all bursts the median and the 90th percentile."""
        for _ in range(2):  # compilation, allocation, the first launch
            self._burst(call)
        times = sorted(self._burst(call) for _ in range(self.bursts))
        return {"us": statistics.median(times), "p90_us": times[int(0.9 * (len(times) - 1))]}

    def _burst(self, call):
        self.synchronize()
        start = time.perf_counter_ns()
        for _ in range(BURST):
            call()
        return (time.perf_counter_ns() - start) / BURST / 1000


class Inputs:
    def __init__(self, torch, device):
        self.logits = torch.randn(BATCH, VOCAB, device=device).to(torch.bfloat16)
        self.leaf = self.logits.clone().requires_grad_()
        self.target = torch.randint(VOCAB, (BATCH,), device=device)


def forward_and_backward(torch, loss, inputs):
    return lambda: torch.autograd.grad(loss(inputs.leaf, inputs.target), inputs.leaf)


def greyhound_calls(torch, inputs):
    from greyhound.kernels.cross_entropy import cross_entropy_kernel, cross_entropy_with_grad_kernel
    from greyhound.nn import CrossEntropyLoss
    from greyhound.nn.functional import cross_entropy

    logits, leaf, target = inputs.logits.clone(), inputs.leaf, inputs.target
    dlogits, loss = torch.empty_like(logits), torch.empty((), device=logits.device)
    row_loss = torch.empty(BATCH, device=logits.device)
    module = CrossEntropyLoss()
    return {
        "cross_entropy_with_grad_kernel": lambda: cross_entropy_with_grad_kernel(logits, target),
        "cross_entropy_kernel, row losses and gradient": lambda: cross_entropy_kernel(
            logits, target, dlogits=dlogits, row_loss=row_loss
        ),
        "cross_entropy_kernel, loss and gradient": lambda: cross_entropy_kernel(
            logits, target, dlogits=dlogits, loss=loss
        ),
        "functional.cross_entropy": lambda: cross_entropy(leaf, target),
        "functional.cross_entropy, sum": lambda: cross_entropy(leaf, target, reduction="sum"),
        "functional.cross_entropy and backward": forward_and_backward(torch, cross_entropy, inputs),
        "nn.CrossEntropyLoss": lambda: module(leaf, target),
        "nn.CrossEntropyLoss and backward": forward_and_backward(torch, module, inputs),
    }


def torch_calls(torch, inputs):
    loss = torch.nn.functional.cross_entropy
    module = torch.nn.CrossEntropyLoss()
    leaf, target = inputs.leaf, inputs.target
    return {
        "functional.cross_entropy": lambda: loss(leaf, target),
        "functional.cross_entropy and backward": forward_and_backward(torch, loss, inputs),
        "functional.cross_entropy of logits.float()": lambda: loss(leaf.float(), target),
        "functional.cross_entropy of logits.float(), and backward": forward_and_backward(
            torch, lambda logits, target: loss(logits.float(), target), inputs
        ),
        "nn.CrossEntropyLoss": lambda: module(leaf, target),
    }


def liger_calls(torch, inputs):
    liger = Liger()
    liger.load()
    leaf, target = inputs.leaf.detach().clone().requires_grad_(), inputs.target

    def loss(logits, target):
        return liger.function.apply(logits, target, None, IGNORE_INDEX, 0.0, 0.0, "mean", None, False)[0]

    return {
        "LigerCrossEntropyFunction": lambda: loss(leaf, target),
        "LigerCrossEntropyFunction and backward": lambda: torch.autograd.grad(loss(leaf, target), leaf),
    }


def quack_calls(torch, inputs):
    quack = Quack()
    quack.load()
    from quack.cross_entropy import cross_entropy

    logits, target = inputs.logits.clone(), inputs.target
    return {
        "cross_entropy_fwd, in place": lambda: quack.function(
            logits, target, ignore_index=IGNORE_INDEX, return_dx=True, inplace_backward=True
        ),
        "cross_entropy": lambda: cross_entropy(inputs.leaf, target),
        "cross_entropy and backward": forward_and_backward(torch, cross_entropy, inputs),
    }


SOURCES = {"Greyhound": greyhound_calls, "torch": torch_calls, "Liger": liger_calls, "Quack": quack_calls}


def parts(torch, inputs):
    """What our calls consist of, each by itself."""
    from greyhound import _abi, _library, _torch
    from greyhound._arguments import LossOptions

    library = _library.load()
    logits, target = inputs.logits.clone(), inputs.target
    dlogits, sums = torch.empty_like(logits), torch.zeros(3, device=logits.device)
    keep = logits, target, dlogits, sums  # for as long as there are calls with their addresses
    stream = _torch.device_of(logits).current_stream()
    short = (
        logits.data_ptr(), _abi.GH_DTYPE_BF16, target.data_ptr(), BATCH, VOCAB, 0.0, IGNORE_INDEX,
        sums.data_ptr(), sums.data_ptr() + 4, sums.data_ptr() + 8, stream,
    )  # fmt: skip

    def long_call(reduction):
        options = _torch._options(logits, target, None, LossOptions(reduction=reduction))
        options.loss = sums.data_ptr()
        workspace = _torch.device_of(logits).take_workspace(stream)
        options.workspace, options.workspace_size, _ = workspace
        arguments = (
            logits.data_ptr(), dlogits.data_ptr(), _abi.GH_DTYPE_BF16, target.data_ptr(), BATCH, VOCAB,
            ctypes.addressof(options), stream,
        )  # fmt: skip
        return lambda keep=(keep, options, workspace): library.gh_cross_entropy(*arguments)

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            return sums[0]

        @staticmethod
        def backward(ctx, dloss):
            return None

    return {
        "gh_cross_entropy_fwd_bwd, its arguments ready": lambda keep=keep: library.gh_cross_entropy_fwd_bwd(*short),
        "gh_cross_entropy, sum, its arguments ready": long_call("sum"),
        "gh_cross_entropy, mean, its arguments ready": long_call("mean"),
        "gh_version: ctypes alone": library.gh_version,
        "torch: an empty tensor like the logits": lambda: torch.empty_like(logits),
        "torch: three zeros": lambda: logits.new_zeros(3, dtype=torch.float32),
        "torch: an autograd.Function that selects one number": lambda: Nothing.apply(inputs.leaf),
    }


def measure_all(timer, calls, results):
    for name, call in calls.items():
        try:
            results[name] = timer.measure(call)
        except Exception as error:  # whatever a peer may raise is a result here
            results[name] = {"error": context.one_line(error)}
        print(f"{name:60} {results[name]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: our CPU engine and torch, to see that it works"
    )
    parser.add_argument("--quick", action="store_true", help="five bursts, to see that it works")
    arguments = parser.parse_args()

    import torch

    on_cuda = arguments.device == "cuda"
    if on_cuda and not torch.cuda.is_available():
        sys.exit("no CUDA device that torch can use")
    torch.manual_seed(1)
    inputs = Inputs(torch, arguments.device)
    timer = Timer(torch.cuda.synchronize if on_cuda else lambda: None, 5 if arguments.quick else 200)
    document = {
        "context": {**context.of_torch(torch, arguments.device), "quick": arguments.quick},
        "shape": [BATCH, VOCAB],
        "calls": {},
        "parts": {},
        "unavailable": {},
    }
    gc.disable()  # as timeit does: what others left to collect is not the call's
    for source, calls_of in SOURCES.items():
        try:
            calls = calls_of(torch, inputs)
        except Exception as error:
            document["unavailable"][source] = context.one_line(error)
            print(f"{source}: {document['unavailable'][source]}", file=sys.stderr)
            continue
        print(f"-- {source}")
        measure_all(timer, calls, document["calls"].setdefault(source, {}))
    print("-- parts")
    measure_all(timer, parts(torch, inputs), document["parts"])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(document, indent=1) + "\n")
    if any("error" in result for result in document["calls"].get("Greyhound", {"": {"error": ""}}).values()):
        sys.exit("a call of Greyhound's failed")


if __name__ == "__main__":
    main()
