#!/bin/sh
# Runs the whole benchmark and leaves its results in bench/results/<gpu>/.
#
#   bench/run.sh [--build-dir DIR] [--results DIR] [--quick] [--filter REGEX] [STAGE...]
#
# Stages, by default all of these in this order:
#   build    a clean build of the library with 2 jobs, timed; then the benchmark program
#   device   greyhound_bench: GPU time and host time of a call           -> greyhound.json
#   options  greyhound_bench: GPU time of a call with each option        -> options.json
#   peers    other implementations on the GPU, on the same shapes        -> peers.json
#   overhead host time of a call from PyTorch, ours and the peers'       -> overhead.json
#   startup  process start to first loss, for each implementation        -> startup.json
#   host     the CPU engine, and torch on the CPU                        -> host.json, peers_host.json
# And one that is not run by default:
#   gpt      a small GPT trained with each loss                          -> gpt.json
#
# With --build-dir, that build is measured, and there is no stage "build".
# With --filter, greyhound_bench measures only what REGEX finds, and a stage's file holds only that: to look, with
# --results elsewhere.
# The peers need Python 3 with torch, liger-kernel and quack-kernels; what is missing is reported and left out.
# Environment: PYTHON (python3), GREYHOUND_COMMIT (for sources without their git history),
# PEERS_FLAGS (further flags for bench/peers/device.py, such as "--only grid/bf16 --merge"),
# GPT_TOKENS (build/gpt/tokens.bin; bench/gpt/prepare.py makes it), GPT_FLAGS (for bench/gpt/train.py: "--budget 100").
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
build_dir=
results=
quick=
filter=
stages=
while [ $# -gt 0 ]; do
    case $1 in
        --build-dir) build_dir=$2; shift ;;
        --results) results=$2; shift ;;
        --quick) quick=--quick ;;
        --filter) filter=$2; shift ;;
        build | device | options | peers | overhead | startup | host | gpt) stages="$stages $1" ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
        *) echo "run.sh: unknown argument $1 (--help lists them)" >&2; exit 2 ;;
    esac
    shift
done

all="device options peers overhead startup host"
if [ -z "$build_dir" ]; then
    build_dir=$root/build/release
    all="build $all"
fi
case $build_dir in /*) ;; *) build_dir=$PWD/$build_dir ;; esac
case $results in '' | /*) ;; *) results=$PWD/$results ;; esac
stages=${stages:-$all}
[ -n "$results" ] || results=$root/bench/results/$("$python" "$root/bench/peers/context.py")
commit=${GREYHOUND_COMMIT:-$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)}
GREYHOUND_COMMIT=$commit
GREYHOUND_LIBRARY=$build_dir/libgreyhound.so
export GREYHOUND_COMMIT GREYHOUND_LIBRARY
mkdir -p "$results"

# Runs greyhound_bench on the benchmarks that the pattern $1 finds (and the filter, in what follows), into the file $2.
# From its own folder, so that the results do not name a path of this machine.
bench() {
    (cd "$build_dir/bench" && ./greyhound_bench $quick --benchmark_filter="$1${filter:+.*($filter)}" \
        --benchmark_context=commit="$commit" --benchmark_out="$results/$2" --benchmark_out_format=json)
}

# A stage that fails does not take the others with it; the script's status tells of it in the end.
failed=
for stage in $stages; do
    echo "== $stage"
    case $stage in
        build)
            "$python" "$root/bench/build_cost.py" --build-dir "$build_dir" --output "$root/bench/results/build.json" &&
                cmake --build "$build_dir" --parallel
            ;;
        device) bench '^(device|issue)' greyhound.json ;;
        options) bench '^options/' options.json ;;
        peers)
            # PEERS_FLAGS holds several words.
            # shellcheck disable=SC2086
            "$python" "$root/bench/peers/device.py" $quick ${PEERS_FLAGS:-} --output "$results/peers.json"
            ;;
        overhead) "$python" "$root/bench/peers/overhead.py" $quick --output "$results/overhead.json" ;;
        startup)
            "$python" "$root/bench/peers/startup.py" --first-loss "$build_dir/bench/greyhound_first_loss" \
                --library "$GREYHOUND_LIBRARY" --output "$results/startup.json"
            ;;
        host)
            bench '^host(/|_call|_options/)' host.json &&
                "$python" "$root/bench/peers/host.py" $quick --output "$results/peers_host.json"
            ;;
        gpt)
            # shellcheck disable=SC2086
            "$python" "$root/bench/gpt/train.py" --tokens "${GPT_TOKENS:-$root/build/gpt/tokens.bin}" ${GPT_FLAGS:-} \
                --output "$results/gpt.json"
            ;;
    esac || failed="$failed $stage"
done
echo "Results: $results. Next: python3 bench/report.py"
[ -z "$failed" ] || { echo "run.sh: failed:$failed" >&2; exit 1; }
