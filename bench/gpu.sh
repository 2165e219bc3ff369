#!/bin/sh
# Builds, tests and benchmarks on a machine with a GPU, in one go. Each stage's time is printed.
#
#   bench/gpu.sh [--build-dir DIR] [--quick] [STAGE...]
#
# Stages, all by default, in this order:
#   build     configure and build (preset "hopper", unless --build-dir names a directory)
#   test      ctest, the tests with the label gpu
#   sanitize  compute-sanitizer's four tools over the GPU tests that the variable SANITIZE_FILTER finds
#   bench     bench/run.sh on this build; --quick goes on to it
#
# Environment:
#   SANITIZE_FILTER  a GoogleTest filter (default: tests with Sanitize in their name or, if a program has none,
#                    all of it)
#   SANITIZE_TOOLS   default: memcheck racecheck initcheck synccheck
#   BENCH_STAGES     stages for bench/run.sh (default: all that a given build allows)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build_dir=
quick=
stages=
while [ $# -gt 0 ]; do
    case $1 in
        --build-dir) build_dir=$2; shift ;;
        --quick) quick=--quick ;;
        build | test | sanitize | bench) stages="$stages $1" ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
        *) echo "gpu.sh: unknown argument $1 (--help lists them)" >&2; exit 2 ;;
    esac
    shift
done
stages=${stages:-build test sanitize bench}

build() {
    if [ -n "$build_dir" ]; then
        cmake -S "$root" -B "$build_dir" -DGREYHOUND_CUDA=ON &&
            cmake --build "$build_dir" --parallel
    else
        (cd "$root" && cmake --preset hopper && cmake --build --preset hopper --parallel)
    fi
}

# The GPU tests' programs, as ctest knows them.
gpu_test_programs() {
    ctest --test-dir "$directory" -L gpu -N -V | sed -n 's/^.*Test command: "\{0,1\}\([^" ]*_test\)"\{0,1\}.*$/\1/p' |
        sort -u
}

sanitize() {
    programs=$(gpu_test_programs)
    [ -n "$programs" ] || { echo "gpu.sh: no GPU test programs in $directory" >&2; return 1; }
    status=0
    for program in $programs; do
        filter=${SANITIZE_FILTER:-*Sanitize*}
        if [ -z "${SANITIZE_FILTER:-}" ] && ! "$program" --gtest_filter="$filter" --gtest_list_tests | grep -q '^  '; then
            filter='*'
        fi
        for tool in ${SANITIZE_TOOLS:-memcheck racecheck initcheck synccheck}; do
            echo "-- $tool: $(basename "$program") --gtest_filter=$filter"
            # CUDA's errors that a test provokes on purpose are the test's business, hence --report-api-errors no.
            compute-sanitizer --tool "$tool" --error-exitcode 9 --report-api-errors no \
                "$program" --gtest_filter="$filter" --gtest_brief=1 || status=1
        done
    done
    return $status
}

bench() {
    # BENCH_STAGES holds several words.
    # shellcheck disable=SC2086
    "$root/bench/run.sh" --build-dir "$directory" $quick ${BENCH_STAGES:-}
}

directory=${build_dir:-$root/build/hopper}
failed=
for stage in $stages; do
    echo "== $stage"
    start=$(date +%s)
    case $stage in
        build) build ;;
        test) ctest --test-dir "$directory" -L gpu --output-on-failure --no-tests=error ;;
        sanitize) sanitize ;;
        bench) bench ;;
    esac || failed="$failed $stage"
    echo "== $stage: $(($(date +%s) - start)) s"
done
[ -z "$failed" ] || { echo "gpu.sh: failed:$failed" >&2; exit 1; }
