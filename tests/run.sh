#!/usr/bin/env bash
# Sets up what is needed, builds everything with warnings as errors, and runs all tests: those of the ordinary
# build, those of the CPU engine under AddressSanitizer and UBSan, and its concurrent calls under ThreadSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/setup.sh

# The caller's python3 if it can run the tests (it may have PyTorch), and the system's otherwise.
can_test() { "$1" -c 'import numpy, pytest' 2>/dev/null; }
python=python3
can_test "$python" || python=/usr/bin/python3

# Where Rust's own installer puts Cargo, CMake finds it without the PATH.
has_cargo() { command -v cargo || [[ -x ${HOME:-}/.cargo/bin/cargo ]]; }

need_build_tools
need binutils command -v readelf
need cargo has_cargo
need dpkg-dev command -v dpkg-shlibdeps
need doxygen command -v doxygen
need file command -v file
need libbenchmark-dev test -e /usr/include/benchmark/benchmark.h
need libgtest-dev test -e /usr/include/gtest/gtest.h
need pkg-config command -v pkg-config
need python3 test -x "$(command -v "$python")"
need python3-numpy "$python" -c 'import numpy'
need python3-pytest "$python" -c 'import pytest'
need python3-venv "$python" -c 'import ensurepip'
install_missing
use_tools

results=$PWD/build/test-results
rm -rf "$results"
mkdir -p "$results"

# With address randomisation as wide as some kernels have it, the sanitizers of older compilers find no room.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
    fixed_addresses=(setarch "$(uname -m)" -R)
fi

# stage PRESET TARGET [CTEST OPTION...] configures PRESET, builds TARGET and tests. summary.py tells what failed, so that
# the next stage runs all the same.
stage() {
    local preset=$1 target=$2
    shift 2
    printf '\n==== %s ====\n' "$preset"
    cmake --preset "$preset" --no-warn-unused-cli -DPython3_EXECUTABLE="$(command -v "$python")" &&
        cmake --build --preset "$preset" --target "$target" -j "$jobs" &&
        "${fixed_addresses[@]}" ctest --test-dir "build/$preset" --output-on-failure \
            --output-junit "$results/$preset.xml" "$@" ||
        echo "$preset: failed"
}

stage ci all
stage asan all
stage tsan concurrency_test -R 'library\.concurrency'

"$python" tests/summary.py "$results" ci asan tsan
