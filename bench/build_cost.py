"""Builds the library from nothing, and writes what that cost and how large the result is.

    python3 bench/build_cost.py --build-dir build/release --output bench/results/build.json

The build directory is emptied first, if it holds a CMake build. Only the library is built, with --jobs jobs.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))
import context  # noqa: E402


def run(*command):
    start = time.monotonic()
    subprocess.run([str(part) for part in command], check=True)
    return round(time.monotonic() - start, 1)


def cached(build_dir, name):
    match = re.search(rf"^{name}:\w+=(.*)$", (build_dir / "CMakeCache.txt").read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("cmake_flags", nargs="*", help="such as -DGREYHOUND_CUDA=OFF, after --")
    arguments = parser.parse_args()

    if (arguments.build_dir / "CMakeCache.txt").exists():
        shutil.rmtree(arguments.build_dir)
    configure = run(
        "cmake", "-S", ROOT, "-B", arguments.build_dir, "-DCMAKE_BUILD_TYPE=Release", *arguments.cmake_flags
    )
    build = run("cmake", "--build", arguments.build_dir, "--target", "greyhound", "--parallel", arguments.jobs)
    library = (arguments.build_dir / "libgreyhound.so").resolve()
    nvcc = cached(arguments.build_dir, "CMAKE_CUDA_COMPILER")
    nvcc_release = re.search(r"release ([\d.]+)", context.output_of(nvcc, "--version")) if nvcc else None
    document = {
        "context": context.common(),
        "jobs": arguments.jobs,
        "configure_seconds": configure,
        "build_seconds": build,
        "library_bytes": library.stat().st_size,
        "compiler": context.output_of(cached(arguments.build_dir, "CMAKE_CXX_COMPILER") or "c++", "--version").split(
            "\n"
        )[0],
        "nvcc": nvcc_release.group(1) if nvcc_release else None,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
