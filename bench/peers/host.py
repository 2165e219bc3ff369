"""Times the library's CPU engine beside torch on the same cores, and writes JSON.

    GREYHOUND_LIBRARY=build/release/libgreyhound.so python3 bench/peers/host.py --output peers_host.json

Both use as many threads as torch.get_num_threads() says (OMP_NUM_THREADS sets it). They take turns, so that a change
of the machine's load meets both.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import context
from cases import all_cases
from implementations import IGNORE_INDEX, forward_and_backward, torch_loss
from reference import Reference


def steps_of(torch, case):
    """Each implementation's name and step; a step gives the loss and the gradient."""
    import greyhound_c

    def greyhound(logits, labels):
        sums = torch.zeros(3)
        greyhound_c.cross_entropy(
            logits.data_ptr(), case.dtype, labels.data_ptr(), case.batch, case.vocab, case.z, IGNORE_INDEX,
            sums.data_ptr(), greyhound_c.STREAM_HOST,
        )  # fmt: skip
        return sums[0], logits

    return {"Greyhound": greyhound, "torch eager": forward_and_backward(torch, torch_loss(torch, case.z))}


def measure_case(torch, case, repetitions):
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[case.dtype]
    pristine = torch.randn(case.batch, case.vocab).to(dtype)
    labels = torch.randint(case.vocab, (case.batch,))
    reference = Reference(torch, case, pristine, labels)
    logits = torch.empty_like(pristine)
    steps, times, results = steps_of(torch, case), {}, {}
    for name, step in steps.items():
        try:
            complaint = reference.complaint(*step(logits.copy_(pristine), labels))
            results[name] = {"error": "wrong result: " + complaint} if complaint else {}
        except Exception as error:
            results[name] = {"error": str(error)}
        times[name] = []
    for _ in range(repetitions):
        for name, step in steps.items():
            if "error" in results[name]:
                continue
            logits.copy_(pristine)
            start = time.perf_counter()
            step(logits, labels)
            times[name].append(time.perf_counter() - start)
    for name in steps:
        if times[name]:
            results[name]["us"] = statistics.median(times[name]) * 1e6
        print(f"{case.name:32} {name:14} {results[name]}", flush=True)
    return {"bytes": case.bytes, "results": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="three repetitions, to see that it works")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"torch is needed for a comparison with it: {error}")
    import greyhound_c

    # The library's OpenMP runtime may be another copy than torch's, so it is told by the environment.
    os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    torch.manual_seed(1)
    document = {
        "context": {
            **context.common(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "versions": {"Greyhound": greyhound_c.version(), "torch eager": torch.__version__},
            "quick": arguments.quick,
        },
        "cases": {},
    }
    for case in all_cases():
        if case.on_host:
            document["cases"][case.name] = measure_case(torch, case, 3 if arguments.quick else 11)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
