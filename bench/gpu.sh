#!/bin/sh
# Builds, tests and benchmarks on a machine with a GPU, in one go. Each stage's time is printed.
#
#   bench/gpu.sh [--build-dir DIR] [--quick] [STAGE...]
#
# Stages, all by default, in this order:
#   build     configure and build (preset "hopper", unless --build-dir names a directory)
#   test      ctest, the tests with the label gpu
#   sanitize  compute-sanitizer's four tools over those GPU tests that are quick enough under it
#   bench     bench/run.sh on this build; --quick goes on to it
#
# Environment:
#   SANITIZE_TESTS   a regular expression that finds the names of the tests to sanitize
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

# The commands of the GPU tests that are to be sanitized, one a line, quoted as for a shell.
sanitized_commands() {
    ctest --test-dir "$directory" -L gpu -R "$sanitize_tests" -N -V | sed -n 's/^[0-9]*: Test command: //p'
}

sanitize() {
    commands=$(sanitized_commands)
    [ -n "$commands" ] || { echo "gpu.sh: no GPU test matches $sanitize_tests in $directory" >&2; return 1; }
    for tool in ${SANITIZE_TOOLS:-memcheck racecheck initcheck synccheck}; do
        echo "$commands" | while read -r command; do
            echo "-- $tool: $command"
            # CUDA's errors that a test provokes on purpose are the test's business, hence --report-api-errors no.
            eval "compute-sanitizer --tool $tool --error-exitcode 9 --report-api-errors no $command" </dev/null ||
                echo failed >>"$sanitize_failures"
        done
    done
    [ ! -s "$sanitize_failures" ]
}

bench() {
    # BENCH_STAGES holds several words.
    # shellcheck disable=SC2086
    "$root/bench/run.sh" --build-dir "$directory" $quick ${BENCH_STAGES:-}
}

directory=${build_dir:-$root/build/hopper}
sanitize_tests=${SANITIZE_TESTS:-values|ignored_rows|special_values|labels|bounds|streams|graph_capture}
sanitize_failures=$(mktemp)
trap 'rm -f "$sanitize_failures"' EXIT
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
