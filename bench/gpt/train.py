"""Trains the same small GPT with one loss after the other, and writes curves, step times and peak memory as JSON.

    GREYHOUND_LIBRARY=build/release/libgreyhound.so python3 bench/gpt/train.py \\
        --tokens build/gpt/tokens.bin --output bench/results/<gpu>/gpt.json

prepare.py makes the tokens. Every run sees the same batches in the same order; runs with the same seed start from the
same weights. The model computes in bfloat16 (autocast) with float32 weights, and its logits are bfloat16.

In each step the loss is also computed from the same logits in float32, in one way for all runs: that is the curve. So
that this costs none of them time or memory, these are measured in further steps without it.
"""

import argparse
import gc
import hashlib
import json
import math
import statistics
import sys
import time
from pathlib import Path

import torch
from model import GPT, Size
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "peers"), str(ROOT / "bindings" / "python")]
import context  # noqa: E402

SIZES = {
    "small": Size(layers=6, width=512, heads=8, context=1024, vocab=50304, batch=16),
    "tiny": Size(layers=1, width=32, heads=2, context=16, vocab=256, batch=4),  # bytes as tokens, to see that it works
}
LEARNING_RATE, WARM_UP = 1e-3, 20
HELD_OUT = 50  # every so many-th block of text
REFERENCE = "torch fp32"

# What is missing at the end, should the time not suffice, is missed least.
RUNS = [
    (REFERENCE, 1), ("Greyhound", 1), (REFERENCE, 2), ("Greyhound, in place", 1), ("torch bf16", 1), (REFERENCE, 3),
    ("Liger", 1), (REFERENCE, 1),
]  # fmt: skip


# ---- Losses: functions of bfloat16 logits [rows, vocab] and labels [rows] ----------------------


def torch_fp32():
    return lambda logits, labels: F.cross_entropy(logits.float(), labels)


def torch_bf16():
    return F.cross_entropy


def greyhound():
    from greyhound.nn.functional import cross_entropy

    return cross_entropy


def greyhound_in_place():
    from greyhound.nn.functional import cross_entropy

    return lambda logits, labels: cross_entropy(logits, labels, inplace_backward=True)


def liger():
    from implementations import IGNORE_INDEX, Liger

    implementation = Liger()
    implementation.load()

    def loss(logits, labels):
        return implementation.function.apply(logits, labels, None, IGNORE_INDEX, 0.0, 0.0, "mean", None, False)[0]

    return loss


LOSSES = {
    REFERENCE: torch_fp32,
    "torch bf16": torch_bf16,
    "Greyhound": greyhound,
    "Greyhound, in place": greyhound_in_place,
    "Liger": liger,
}


# ---- Data --------------------------------------------------------------------------------------


class Data:
    """Blocks of one more token than the context, in one order for all runs."""

    def __init__(self, path, size, device):
        raw = path.read_bytes()
        self.digest = hashlib.sha256(raw).hexdigest()
        tokens = torch.frombuffer(bytearray(raw), dtype=torch.uint16).to(torch.int64)
        self.count = len(tokens)
        if int(tokens.max()) >= size.vocab:
            raise SystemExit(f"{path}: token {int(tokens.max())}, but the model's vocabulary is {size.vocab}")
        length = size.context + 1
        blocks = tokens[: self.count // length * length].view(-1, length).to(device)
        held_out = torch.arange(len(blocks), device=device) % HELD_OUT == 0
        self.validation = blocks[held_out].split(size.batch)
        shuffled = torch.randperm(int((~held_out).sum()), generator=torch.Generator().manual_seed(0))
        self.training = blocks[~held_out][shuffled.to(device)]
        self.batch = size.batch

    def batch_of(self, step):
        rows = torch.arange(step * self.batch, (step + 1) * self.batch, device=self.training.device)
        return self.training[rows % len(self.training)]


# ---- One run -----------------------------------------------------------------------------------


def fp32_loss(logits, labels):
    """The mean loss, in the same way whatever the run trains with; a few rows at a time, to take little memory."""
    sums = [
        F.cross_entropy(x.float(), y, reduction="sum").double()
        for x, y in zip(logits.detach().split(1024), labels.split(1024))
    ]
    return torch.stack(sums).sum() / len(labels)


class Run:
    def __init__(self, data, size, device, loss, seed, steps):
        self.data, self.device, self.loss, self.steps = data, device, loss, steps
        torch.manual_seed(seed)
        self.model = GPT(size).to(device)
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        others = [p for p in self.model.parameters() if p.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            betas=(0.9, 0.95),
            fused=device == "cuda",
        )

    def logits_and_labels(self, block):
        with torch.autocast(self.device, dtype=torch.bfloat16):
            logits = self.model(block[:, :-1])
        return logits.flatten(0, 1), block[:, 1:].flatten()

    def step(self, number, curve=None):
        logits, labels = self.logits_and_labels(self.data.batch_of(number))
        if curve is not None:  # first: some losses overwrite the logits
            curve.append(fp32_loss(logits, labels))
        loss = self.loss(logits, labels)
        # The graph alone decides how long the logits live, as in a loop whose model and loss are one expression.
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        progress = min(1.0, number / self.steps)
        rate = LEARNING_RATE * min(1.0, (number + 1) / WARM_UP) * (0.55 + 0.45 * math.cos(math.pi * progress))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def curve(self):
        losses = []
        for number in range(self.steps):
            self.step(number, losses)
        return torch.stack(losses).tolist()

    @torch.no_grad()
    def validation_loss(self):
        losses = [fp32_loss(*self.logits_and_labels(block)) * len(block) for block in self.data.validation]
        return (torch.stack(losses).sum() / sum(map(len, self.data.validation))).item()

    def cost(self, repetitions):
        """Milliseconds of a step, the median; the peak of memory in a step, and what is in use between steps."""
        for i in range(3):
            self.step(self.steps + i)
        if self.device == "cpu":
            return {}
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        at_rest = torch.cuda.memory_allocated()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(repetitions + 1)]
        marks[0].record()
        for i, mark in enumerate(marks[1:]):
            self.step(self.steps + 3 + i)
            mark.record()
        torch.cuda.synchronize()
        times = [start.elapsed_time(stop) for start, stop in zip(marks, marks[1:])]
        return {
            "step_ms": statistics.median(times),
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "at_rest_bytes": at_rest,
        }


def measure(data, size, device, loss, seed, steps, repetitions):
    run = Run(data, size, device, loss, seed, steps)
    return {"losses": run.curve(), "validation_loss": run.validation_loss(), **run.cost(repetitions)}


# ---- All runs ----------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--budget", type=float, default=0, help="start no run that would end after this many seconds")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    arguments = parser.parse_args()
    started = time.monotonic()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device that torch can use")

    size = SIZES[arguments.size]
    data = Data(arguments.tokens, size, arguments.device)
    document = {
        "context": context.of_torch(torch, arguments.device),
        "size": {**vars(size), "parameters": sum(p.numel() for p in GPT(size).parameters())},
        "steps": arguments.steps,
        "tokens": data.count,
        "tokens_sha256": data.digest,
        "runs": [],
        "unavailable": {},
    }
    longest = 0.0
    for name, seed in RUNS:
        begun = time.monotonic()
        if arguments.budget and begun - started + longest > arguments.budget:
            document["unavailable"].setdefault(f"{name}, seed {seed}", "no time was left")
            print(f"{name}, seed {seed}: left out, {arguments.budget:.0f} seconds would not suffice", file=sys.stderr)
            continue
        try:
            loss = LOSSES[name]()
            result = measure(data, size, arguments.device, loss, seed, arguments.steps, repetitions=20)
        except Exception as error:  # whatever a peer may raise is a result here
            document["unavailable"][name] = context.one_line(error)
            print(f"{name}: {context.one_line(error)}", file=sys.stderr)
            if not name.startswith("Liger"):
                raise
            continue
        finally:
            gc.collect()
            if arguments.device == "cuda":
                torch.cuda.empty_cache()
        longest = max(longest, time.monotonic() - begun)
        document["runs"].append({"loss": name, "seed": seed, **result})
        cost = f"{result['step_ms']:.1f} ms, {result['peak_bytes'] / 1e9:.2f} GB, " if "step_ms" in result else ""
        print(
            f"{name:20} seed {seed}: {cost}last loss {result['losses'][-1]:.4f}, validation "
            f"{result['validation_loss']:.4f}; {time.monotonic() - begun:.1f} s",
            flush=True,
        )
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
