#!/usr/bin/env bash
# Sets up what is needed, builds the library with the bigram example, and runs it. Arguments go to bigram:
#
#   docs/examples/run.sh [--device cpu|cuda] [--steps N] [TEXT]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/example
source "$root/tests/setup.sh"

need_build_tools
install_missing
use_tools

# One architecture is enough here: the device's, or PTX, the quickest to build, if there is no device.
options=()
if command -v nvcc >/dev/null; then
    if nvidia-smi -L 2>/dev/null | grep -q GPU; then
        options+=(-DCMAKE_CUDA_ARCHITECTURES=native)
    else
        options+=(-DCMAKE_CUDA_ARCHITECTURES=80-virtual)
    fi
fi

cmake -S "$root" --preset example "${options[@]}"
cmake --build "$build" -j "$jobs"
exec "$build/docs/examples/bigram" "$@"
