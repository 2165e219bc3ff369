"""Times each implementation from the start of a process to its first finished loss, and writes JSON.

    python3 bench/peers/startup.py --first-loss build/release/bench/greyhound_first_loss \\
        --library build/release/libgreyhound.so --output startup.json

Each runs in a fresh process: once with empty compilation caches ("cold"), then again with what that left ("warm").
Before all of them, torch is imported once without being timed, so that no one pays for reading it from disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import context
from cases import Case
from implementations import ALL

# The same shape as in first_loss.cpp.
CASE = Case("startup", "bf16", 1024, 32000)
CACHES = ["TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "QUACK_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "CUDA_CACHE_PATH"]


def child(name):
    """One implementation's first loss, in this process."""
    marks = {"started": time.time()}
    (implementation,) = [i() for i in ALL if i.name == name]
    implementation.load()
    import torch

    marks["imported"] = time.time()
    logits = torch.randn(CASE.batch, CASE.vocab, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(CASE.vocab, (CASE.batch,), device="cuda")
    torch.cuda.synchronize()
    marks["ready"] = time.time()
    loss, _ = implementation.prepare(CASE)(logits, labels)
    marks["loss"] = loss.item() / CASE.batch
    torch.cuda.synchronize()
    marks["first_loss"] = time.time()
    print(json.dumps(marks))


def run(command, environment):
    """Seconds from the start of the process to each of its marks; or its error."""
    launched = time.time()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)[:300]}
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:300]}
    marks = json.loads(done.stdout.splitlines()[-1])
    return {mark: round(at - launched, 4) for mark, at in marks.items() if mark != "loss"}


def measure(command, environment):
    with tempfile.TemporaryDirectory() as caches:
        environment = {**environment, **{name: os.path.join(caches, name.lower()) for name in CACHES}}
        return {"cold": run(command, environment), "warm": run(command, environment)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--first-loss", help="the program greyhound_first_loss")
    parser.add_argument("--library", help="libgreyhound.so, for its use from Python")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments.child)
    if not arguments.output:
        parser.error("--output is required")

    environment = dict(os.environ)
    if arguments.library:
        environment["GREYHOUND_LIBRARY"] = os.path.abspath(arguments.library)
    subprocess.run([sys.executable, "-c", "import torch"], check=False, capture_output=True)
    results = {}
    if arguments.first_loss:
        label = "Greyhound, from C"
        results[label] = measure([os.path.abspath(arguments.first_loss), "cuda"], environment)
        print(f"{label:24} {results[label]}", flush=True)
    for implementation in ALL:
        command = [sys.executable, os.path.abspath(__file__), "--child", implementation.name]
        label = "Greyhound, beside torch" if implementation.name == "Greyhound" else implementation.name
        results[label] = measure(command, environment)
        print(f"{label:24} {results[label]}", flush=True)
    document = {
        "context": {
            **context.common(),
            "gpu": context.nvidia_smi("name"),
            "driver": context.nvidia_smi("driver_version"),
        },
        "results": results,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
