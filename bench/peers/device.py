"""Times every implementation on the GPU, on the shapes of bench/cases.txt, and writes JSON.

    GREYHOUND_LIBRARY=build/release/libgreyhound.so python3 bench/peers/device.py --output peers.json

An implementation that is missing, fails, or is wrong has its error in the JSON instead of a time. The file is
written after each shape, and --merge keeps the results that it already holds and that this run does not repeat.
"""

import argparse
import gc
import json
import re
import sys
import time
from pathlib import Path

import context
from cases import all_cases
from implementations import ALL, IGNORE_INDEX, Unsupported
from reference import Reference
from timing import LONG_ENOUGH, Timing, extra_bytes


def load(implementations):
    """Those that can be used, and for all of them their version or the error."""
    usable, versions = [], {}
    for implementation in implementations:
        try:
            implementation.load()
            versions[implementation.name] = implementation.version()
            usable.append(implementation)
        except Exception as error:  # whatever an import may raise is a result here
            versions[implementation.name] = context.one_line(error)
            print(f"{implementation.name}: {context.one_line(error)}", file=sys.stderr)
    return usable, versions


def make_inputs(torch, case):
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[case.dtype]
    logits = torch.randn(case.batch, case.vocab, device="cuda", dtype=dtype)
    labels = torch.randint(case.vocab, (case.batch,), device="cuda")
    ignored = torch.randperm(case.batch, device="cuda")[: round(case.ignored * case.batch)]
    labels[ignored] = IGNORE_INDEX
    return logits, labels


def measure(torch, timing, implementation, case, pristine, logits, labels, reference):
    step = implementation.prepare(case)
    logits.copy_(pristine)
    complaint = reference.complaint(*step(logits, labels))
    if complaint:
        raise ArithmeticError("wrong result: " + complaint)
    result = {
        "us": timing.microseconds(lambda: logits.copy_(pristine), lambda: step(logits, labels)),
        "extra_bytes": extra_bytes(torch, lambda: step(logits, labels)),
    }
    if case.bytes < LONG_ENOUGH:
        if implementation.uncapturable:
            result["graph_error"] = implementation.uncapturable
        else:
            try:
                result["graph_us"] = timing.graph_microseconds(case, step)
            except Exception as error:
                result["graph_error"] = context.one_line(error)
    return result


def measure_case(torch, timing, implementations, case):
    pristine, labels = make_inputs(torch, case)
    logits = torch.empty_like(pristine)
    reference = Reference(torch, case, pristine, labels)
    results = {}
    for implementation in implementations:
        try:
            result = measure(torch, timing, implementation, case, pristine, logits, labels, reference)
        except Unsupported as error:
            result = {"unsupported": str(error)}
        except Exception as error:
            result = {"error": context.one_line(error)}
        results[implementation.name] = result
        gc.collect()
        torch.cuda.empty_cache()
        told = f"{result['us']:12.1f} us" if "us" in result else f"  {result}"
        print(f"{case.name:32} {implementation.name:14} {told}", flush=True)
    nothing = lambda: None  # noqa: E731
    copy = timing.microseconds(nothing, lambda: logits.copy_(pristine))
    return {"bytes": case.bytes, "memcpy_us": copy, "results": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name this finds, such as 'grid/bf16'")
    parser.add_argument("--peers", default="", help="names, separated by commas; all by default")
    parser.add_argument("--merge", action="store_true", help="keep what is in the output and not measured again")
    parser.add_argument("--quick", action="store_true", help="five repetitions, to see that it works")
    parser.add_argument("--budget", type=float, default=0, help="start no further case after this many seconds")
    arguments = parser.parse_args()
    started = time.monotonic()

    import torch

    if not torch.cuda.is_available():
        sys.exit("no CUDA device that torch can use")
    torch.manual_seed(1)
    wanted = [name for name in arguments.peers.split(",") if name]
    implementations, versions = load([i() for i in ALL if not wanted or i.name in wanted])
    timing = Timing(torch, budget=0.1, most=5 if arguments.quick else 31)

    document = {"context": {}, "cases": {}}
    if arguments.merge and arguments.output.exists():
        document = json.loads(arguments.output.read_text())
    versions = {**document["context"].get("versions", {}), **versions}
    document["context"] = {**context.device(torch), "versions": versions, "quick": arguments.quick}
    for case in all_cases():
        if case.on_host or not re.search(arguments.only, case.name):
            continue
        if arguments.budget and time.monotonic() - started > arguments.budget:
            print(f"stopped before {case.name}: {arguments.budget:.0f} seconds are over", file=sys.stderr)
            break
        try:
            measured = measure_case(torch, timing, implementations, case)
        except Exception as error:
            print(f"{case.name}: {context.one_line(error)}", file=sys.stderr)
            continue
        old = document["cases"].get(case.name, {}).get("results", {})
        measured["results"] = {**old, **measured["results"]}
        document["cases"][case.name] = measured
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
