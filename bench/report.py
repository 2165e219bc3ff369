"""Turns the results in bench/results into docs/benchmarks.md, docs/training.md and their pictures.

    python3 bench/report.py            write them
    python3 bench/report.py --check    write nothing; fail if they are not what the results say

Every figure on the pages comes from a file in bench/results. The same files always give the same pages.
"""

import argparse
import re
import sys
from math import exp, log
from pathlib import Path

import charts
import overhead_section
import training_page
from formats import bytes_text, milliseconds, read, table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))
from cases import all_cases, all_option_cases  # noqa: E402

MIDDLE_BATCH, MIDDLE_VOCAB = 8192, 128256
PEERS = ["torch eager", "torch.compile", "Liger", "Quack"]
OURS = "Greyhound"

INTRODUCTION = """\
# Benchmarks

Made by `bench/report.py` from the files in `bench/results/`. Do not edit.

## How to run them

On a machine with a GPU, nvcc, CMake and Google Benchmark (`libbenchmark-dev`):

<!-- snippet: not run: measures for minutes; bench/run.sh --quick shows that it works -->
```sh
bench/run.sh && python3 bench/report.py
```

This builds the library, measures it, and writes the results to `bench/results/<gpu>/` and this page. For the
comparison, Python needs torch, `liger-kernel` and `quack-kernels`; what is missing is reported and left out.
`bench/run.sh --help` lists the stages, which also run alone; `--quick` shows in a minute whether everything works.
`bench/gpu.sh` builds, runs the GPU tests, runs them again under compute-sanitizer, and benchmarks, in one go.

`greyhound_bench` in the build directory is a Google Benchmark program and takes its flags, for instance
`--benchmark_filter='device/grid/bf16/8192'`. Without a GPU it measures the CPU engine.

## Method

- The shapes are those of `bench/cases.txt`. Logits are standard normal, labels uniform; the reduction is the sum. No
  z-loss, unless said otherwise. Loss *and* gradient are required of everyone.
- **Time** is GPU time between two CUDA events, the median of 31 repetitions after a warm-up. The call overwrites
  logits with gradients, whose distribution is another, so the logits are restored from a copy before each repetition;
  then 4 times the size of the L2 cache is read from other memory, so that nothing of them is still in the cache.
  Neither is timed.
- **Short calls** (logits under 128 MiB) are timed as a CUDA graph of many calls, one after the other, each on logits
  of its own, 512 MiB in all; the time is divided by the number of calls. It thus includes the gap between two kernels.
- **Effective GB/s** is 2 x batch x vocab x element size / time: each logit read once, each gradient written once.
- **The ceilings** are measured in the same repetition, on the same buffers and in the same way: `memcpy` is
  `cudaMemcpyAsync` from device to device of as many bytes as the logits have, which reads and writes the same amount
  as the call must; `in place` is a kernel that reads the logits and writes them back unchanged, with 16-byte accesses.
  *Of memcpy* is memcpy's median time / the call's median time.
- **An option's cost** is the time of a call that uses it / that of the plain call, `gh_cross_entropy_fwd_bwd`: medians
  of 51 repetitions (31 on the CPU engine). In each, both are timed as above, one right after the other, and in turns
  the one or the other first, so that both see the same clocks and temperature. The options are those of
  `bench/options.txt`.
- **Peers** take the same shapes and are timed in the same way, from Python (slow ones with fewer repetitions). Each is
  used in the way that is fastest for it: torch's `cross_entropy` and its gradient, plain and under `torch.compile`
  (compiled anew for each shape); Liger's autograd function, whose forward pass computes the gradient in place; Quack's
  single kernel for loss and gradient in place. Greyhound is called through ctypes, and zeroing its sums is part of its
  time there. Each result is first compared with a plain fp32 computation; one that is wrong is not timed.
- **Peak memory** is the most that a call held above the logits (and what was there before): from torch's allocator,
  and what left the GPU's free memory past it.
- **Start-up** is from the start of a process to its first finished loss (1024 x 32000, bf16): *cold* with empty
  compilation caches, *warm* with those that the cold run left.
- **Host time** is what the host spends in one call, which waits for nothing. It is compared with the launch of an
  empty kernel with the same grid, block, shared memory and attributes.
- **Host time from PyTorch** is that of Python calls on CUDA tensors so small that the GPU is never waited for: the mean
  of a burst of calls, and of many bursts the median. The GPU finishes between bursts.

## What these numbers do not say

- They are one machine's, on one day. Clocks and power limits are left as they were found. Differences of about 1%
  are noise.
- A memory-bound call's speed depends on whether its logits are in the L2 cache. Here they never are. In a training
  step the last rows that the projection wrote may still be: then all implementations are faster.
- GPU time leaves out what Python and autograd cost the host. It shows where a step waits for the host: Liger reads
  counts back in each call, so its time with few rows is mostly waiting. In a graph it cannot be captured.
- A run may measure some of the peers and keep the times that others had in an earlier one (`--merge`). On the H200 those of
  torch.compile and Quack are kept.
- Peers have features that Greyhound lacks, and the other way round; only what all share is compared.
- Peers compute in their own precision: torch eager, for one, rounds log-probabilities to the logits' dtype.
"""


# ---- Reading results ---------------------------------------------------------------------------


def medians(document):
    """A Google Benchmark file's medians, by benchmark name without its suffixes; and its errors."""
    found, errors = {}, {}
    for entry in (document or {}).get("benchmarks", []):
        name = re.sub(r"/(iterations|repeats|manual_time|min_time).*$", "", entry.get("run_name", entry["name"]))
        if entry.get("error_occurred"):
            errors[name] = entry.get("error_message", "failed")
        elif entry.get("aggregate_name") == "median":
            found.setdefault(name, {}).update(entry)
        elif entry.get("aggregate_name") == "cv":
            found.setdefault(name, {}).update(cv=entry["real_time"], of_plain_cv=entry.get("of_plain"))
    return found, errors


class Results:
    """One GPU's results."""

    def __init__(self, folder):
        self.slug = folder.name
        self.greyhound = read(folder / "greyhound.json")
        self.peers = read(folder / "peers.json")
        self.startup = read(folder / "startup.json")
        self.host = read(folder / "host.json")
        self.options_file = read(folder / "options.json")
        self.peers_host = read(folder / "peers_host.json")
        self.overhead = read(folder / "overhead.json")
        self.gpt = read(folder / "gpt.json")
        everything, self.errors = medians(self.greyhound)
        self.device = {name[7:]: m for name, m in everything.items() if name.startswith("device/")}
        self.issue = {name: m for name, m in everything.items() if name.startswith("issue/")}
        self.checks = {name[13:]: m for name, m in everything.items() if name.startswith("issue_checks/")}

    def microseconds(self, name):
        return self.device[name]["real_time"] if name in self.device else None

    def of_memcpy(self, name):
        m = self.device.get(name)
        return m["memcpy_us"] / m["real_time"] if m else None

    def group(self, prefix):
        """Of memcpy, for each case whose name starts so."""
        return {name: self.of_memcpy(name) for name in self.device if name.startswith(prefix)}

    def peer_cases(self):
        return (self.peers or {}).get("cases", {})


def comparable(results):
    """Each implementation's time for one case. If ours was timed in a graph, theirs is too where that is possible."""
    times = {}
    for name, result in results.items():
        time = result.get("graph_us", result.get("us"))
        if time:
            times[name] = time
    return times


# ---- Targets -----------------------------------------------------------------------------------

# Each check takes Results and gives (what was measured, whether that meets the target), or None if there is no result.


def incomplete(count, prefix=""):
    """What to say of a target over several shapes if only `count` of them were measured: "" if all were."""
    expected = sum(case.name.startswith(prefix) for case in all_cases() if not case.on_host)
    return "" if count == expected else f"; only {count} of {expected} shapes measured"


def at_least(prefix, least, mean=0.0):
    """No shape may be under `least`, nor the geometric mean of all under `mean`."""

    def check(results):
        ratios = results.group(prefix)
        if not ratios:
            return None
        average = exp(sum(log(r) for r in ratios.values()) / len(ratios))
        worst = min(ratios, key=ratios.get)
        text = f"{ratios[worst]:.3f}"
        if len(ratios) > 1:
            text = f"mean {average:.3f}, worst {text} ({shape_of(worst)})"
        gap = incomplete(len(ratios), prefix)
        return text + gap, ratios[worst] >= least and average >= mean and not gap

    return check


def ignored_rows(results):
    half = results.microseconds(f"ignored/bf16/{MIDDLE_BATCH}x{MIDDLE_VOCAB}")
    none = results.microseconds(f"grid/bf16/{MIDDLE_BATCH}x{MIDDLE_VOCAB}")
    return (f"{half / none:.3f}", half / none <= 0.80) if half and none else None


def few_rows(limits):
    def check(results):
        times = {batch: results.microseconds(f"few_rows/bf16/{batch}x128256") for batch in limits}
        if None in times.values():
            return None
        measured = ", ".join(f"{time:.1f}" for time in times.values()) + " us"
        return measured, all(times[batch] <= limit for batch, limit in limits.items())

    return check


def host_time(results):
    ratios = {name: m["real_time"] / m["bare_us"] for name, m in results.issue.items()}
    if not ratios:
        return None
    worst = max(ratios, key=ratios.get)
    return f"worst {ratios[worst]:.2f} ({shape_of(worst)})", ratios[worst] <= 1.5


def faster_than_peers(results):
    compared, lost, closest = 0, 0, None
    for name, case in results.peer_cases().items():
        times = comparable(case["results"])
        ours = times.pop(OURS, None)
        if not ours or not times:
            continue
        best = min(times, key=times.get)
        compared += 1
        lost += times[best] <= ours
        if closest is None or times[best] / ours < closest[0]:
            closest = (times[best] / ours, best, name)
    if closest is None:
        return None
    measured = {peer for case in results.peer_cases().values() for peer in comparable(case["results"])}
    missing = [peer for peer in PEERS if peer not in measured]
    gap = incomplete(compared) + ("; not measured: " + ", ".join(missing) if missing else "")
    text = f"{compared - lost} of {compared} shapes; closest {closest[0]:.2f}x ({closest[1]}, {shape_of(closest[2])})"
    return text + gap, lost == 0 and not gap


TARGETS = [
    ("bf16, batch 2048 to 8192 x vocab 65536 to 200064 (15 shapes), of memcpy", "mean at least 0.93, none under 0.88", at_least("grid/bf16/", 0.88, mean=0.93)),
    ("bf16, 8192 x 128256, of memcpy", "at least 0.95", at_least("grid/bf16/8192x128256", 0.95)),
    ("bf16, vocab 32000, 50304, 151936, 262144, of memcpy", "at least 0.90", at_least("vocab/bf16/", 0.90)),
    ("bf16, 8192 x 50257 (rows on odd addresses), of memcpy", "at least 0.85", at_least("odd/bf16/", 0.85)),
    ("bf16, vocab 256 to 16384, 2^28 elements, of memcpy", "at least 0.90", at_least("small/bf16/", 0.90)),
    ("fp32, the 15 shapes, of memcpy", "mean at least 0.93, none under 0.88", at_least("grid/f32/", 0.88, mean=0.93)),
    ("fp32, 8192 x 128256, of memcpy", "at least 0.95", at_least("grid/f32/8192x128256", 0.95)),
    ("fp16, the 15 shapes, of memcpy", "mean at least 0.93, none under 0.88", at_least("grid/f16/", 0.88, mean=0.93)),
    ("fp16, 8192 x 128256, of memcpy", "at least 0.95", at_least("grid/f16/8192x128256", 0.95)),
    ("half of the rows ignored: time / time with none ignored", "at most 0.80", ignored_rows),
    ("batch 1, 4, 16 x 128256", "at most 10 us", few_rows({1: 10, 4: 10, 16: 10})),
    ("batch 64 x 128256", "at most 20 us", few_rows({64: 20})),
    ("host time of a call / of a bare launch", "at most 1.5", host_time),
    ("vocab 2^21, of memcpy", "at least 0.60", at_least("huge/bf16/", 0.60)),
    ("every shape: faster than torch eager, torch.compile, Liger and Quack", "all", faster_than_peers),
]  # fmt: skip


# ---- Tables ------------------------------------------------------------------------------------


def shape_of(name):
    """grid/bf16/8192x128256 -> bf16 8192 x 128256"""
    _, dtype, shape = name.split("/")
    return f"{dtype} {shape.replace('x', ' x ')}"


def targets_section(results):
    rows = []
    for what, target, check in TARGETS:
        measured = check(results)
        rows.append((what, target, *((measured[0], "yes" if measured[1] else "**no**") if measured else ("-", "-"))))
    return "### Targets\n\n" + table(["what", "target", "measured", "met"], rows)


def device_section(results):
    rows = [
        (
            name.split("/")[0].replace("_", " "),
            shape_of(name),
            milliseconds(m["real_time"]),
            f"{m['GB/s']:.0f}",
            f"{m['memcpy_us'] / m['real_time']:.3f}",
            f"{m['stream_us'] / m['real_time']:.3f}",
            f"{m.get('cv', 0):.1%}",
        )
        for name, m in results.device.items()
    ]
    text = "### All shapes\n\n" + table(["group", "shape", "ms", "GB/s", "of memcpy", "of in place", "std. dev."], rows)
    if results.errors:
        text += "\n\nNot measured:\n\n" + "\n".join(f"- `{name}`: {error}" for name, error in results.errors.items())
    return text


def option_rows(cases, found):
    rows = []
    for case in cases:
        m = found.get(case.name)
        if not m:
            continue
        ratio = m["real_time"] / m["plain_us"]
        met = "-" if case.at_most is None else "yes" if ratio <= case.at_most else "**no**"
        rows.append(
            (
                case.shape.group.replace("_", " "),
                " ".join(f"`{setting}`" for setting in case.settings if setting != "on_host") or "-",
                shape_of(case.shape.name),
                milliseconds(m["plain_us"]),
                milliseconds(m["real_time"]),
                f"{ratio:.3f}",
                "-" if case.at_most is None else f"{case.at_most:.2f}",
                met,
                f"{m['of_plain_cv']:.1%}",
            )
        )
    return rows


OPTION_HEADER = ["option", "set", "shape", "plain, ms", "ms", "ratio", "at most", "met", "std. dev."]


def options_section(results):
    text = "### What an option costs\n\n"
    if not results.options_file:
        return text + "Not measured."
    found, errors = medians(results.options_file)
    cases = [case for case in all_option_cases() if not case.on_host]
    context = results.options_file["context"]
    text += (
        "The time of a call with the option / that of the plain call, in the same run. What is set are fields of "
        "`gh_cross_entropy_options`, and a few things that `bench/options.txt` explains. The standard deviation is "
        "that of single pairs of calls; `no option` is `gh_cross_entropy` with the defaults, and shows how exact the "
        "ratios are. "
        f"Commit {context.get('commit', 'unknown')[:12]}, {context['date'][:10]}.\n\n"
    )
    if context.get("quick") == "true":
        text += "**Measured with `--quick`: too few repetitions to quote.**\n\n"
    text += table(OPTION_HEADER, option_rows(cases, found))
    missing = [(case.name, errors.get(case.name, "not run")) for case in cases if case.name not in found]
    if missing:
        text += "\n\nNot measured:\n\n" + "\n".join(f"- `{name}`: {reason}" for name, reason in missing)
    return text


def host_time_section(results):
    rows = []
    for name, m in results.issue.items():
        ratio = m["real_time"] / m["bare_us"]
        kernels = f"{m['kernels']:.0f}"
        rows.append((shape_of(name), f"{m['real_time']:.2f}", f"{m['bare_us']:.2f}", f"{ratio:.2f}", kernels))
    text = "### Host time of a call\n\n" + table(["shape", "call, us", "bare launch, us", "ratio", "kernels"], rows)
    if results.checks:
        text += "\n\nCalls that end at a check, before any work:\n\n" + table(
            ["call", "us"], [(name.replace("_", " "), f"{m['real_time']:.3f}") for name, m in results.checks.items()]
        )
    return text


def peers_section(results):
    versions = results.peers["context"]["versions"]
    rows, failures = [], []
    for name, case in results.peer_cases().items():
        times = comparable(case["results"])
        ours = times.get(OURS)
        others = {peer: time for peer, time in times.items() if peer != OURS}
        faster = f"{min(others.values()) / ours:.2f}x" if ours and others else "-"
        cells = []
        for peer in [OURS, *PEERS]:
            mark = "*" if "graph_error" in case["results"].get(peer, {}) else ""
            cells.append(milliseconds(times[peer]) + mark if peer in times else "-")
        rows.append((name.split("/")[0].replace("_", " "), shape_of(name), *cells, faster))
        for peer, result in case["results"].items():
            if "error" in result:
                failures.append((peer, result["error"], shape_of(name)))
    text = "### Against the peers\n\nMilliseconds; the last column is the fastest peer's time / Greyhound's.\n\n"
    text += table(["group", "shape", OURS, *PEERS, "faster by"], rows)
    if any("*" in cell for row in rows for cell in row):
        text += "\n\n\\* A single call: this implementation cannot be captured into a graph."
    text += "\n\nVersions: " + "; ".join(f"{name}: {version}" for name, version in versions.items()) + "."
    if failures:
        by_error = {}
        for peer, error, shape in failures:
            by_error.setdefault((peer, error), []).append(shape)
        text += "\n\nFailed:\n\n" + "\n".join(
            f"- {peer} at {', '.join(shapes)}: `{error}`" for (peer, error), shapes in by_error.items()
        )
    return text


def memory_section(results):
    rows = []
    for name, case in results.peer_cases().items():
        if not name.startswith(("grid/bf16/8192", "odd/")):
            continue
        cells = [case["results"].get(peer, {}).get("extra_bytes") for peer in [OURS, *PEERS]]
        rows.append((shape_of(name), bytes_text(case["bytes"]), *("-" if c is None else bytes_text(c) for c in cells)))
    if not rows:
        return ""
    note = "\n\nThe three sums that Greyhound adds to are the caller's, made before the call, and not counted."
    return "### Peak memory above the logits\n\n" + table(["shape", "logits", OURS, *PEERS], rows) + note


def startup_section(results):
    rows = []
    for name, runs in results.startup["results"].items():
        cells = [f"{run['first_loss']:.2f}" if "first_loss" in run else "-" for run in (runs["cold"], runs["warm"])]
        imported = runs["warm"].get("imported")
        rows.append((name, *cells, f"{imported:.2f}" if imported else "-"))
    return "### Process start to first loss\n\n" + table(
        ["implementation", "cold, s", "warm, s", "of that imports, s"], rows
    )


def pictures_section(results):
    names = pictures(results)
    return "\n\n".join(f"![{alt}](images/{name})" for name, (alt, _) in names.items())


def host_section(results):
    context = (results.peers_host or results.host)["context"]
    text = f"### CPU engine\n\n{context.get('processor', 'unknown processor')}, {context.get('threads', '?')} threads."
    own, _ = medians(results.host)
    if results.peers_host:
        rows = []
        for name, case in results.peers_host["cases"].items():
            ours, torch = (case["results"].get(peer, {}).get("us") for peer in (OURS, "torch eager"))
            rows.append(
                (
                    shape_of(name),
                    milliseconds(ours) if ours else "-",
                    milliseconds(torch) if torch else "-",
                    f"{torch / ours:.2f}x" if ours and torch else "-",
                    f"{2e-3 * case['bytes'] / ours:.1f}" if ours else "-",
                )
            )
        text += f" torch {context.get('torch', '?')}, forward and backward.\n\n"
        text += table(["shape", OURS + ", ms", "torch, ms", "faster by", "GB/s"], rows)
    else:
        rows = [
            (shape_of(name), milliseconds(m["real_time"]), f"{m['GB/s']:.1f}")
            for name, m in own.items()
            if name.startswith("host/")
        ]
        text += "\n\n" + table(["shape", "ms", "GB/s"], rows)
    options = option_rows([case for case in all_option_cases() if case.on_host], own)
    if options:
        text += "\n\nWhat an option costs:\n\n"
        # There are no targets.
        text += table(OPTION_HEADER[:6] + OPTION_HEADER[8:], [row[:6] + row[8:] for row in options])
    if "host_call/1x1" in own:
        text += f"\n\nA call with one row of one column takes {own['host_call/1x1']['real_time']:.2f} us."
    return text


def environment(results):
    context = {}
    for document in (results.options_file, results.startup, results.peers, results.greyhound):
        context.update((document or {}).get("context", {}))
    keys = [
        ("gpu", "GPU"), ("driver", "driver"), ("driver_cuda", "CUDA, driver"), ("runtime_cuda", "CUDA, runtime"),
        ("multiprocessors", "multiprocessors"), ("l2_bytes", "L2 cache, bytes"),
        ("clocks_sm_mem_maxsm_maxmem", "clocks under load: SM, memory; their maxima"),
        ("library_version", "Greyhound"), ("commit", "commit"), ("date", "date"),
    ]  # fmt: skip
    quick = context.get("quick") in (True, "true")
    text = table(["", ""], [(label, context[key]) for key, label in keys if key in context])
    return text + ("\n\n**Measured with `--quick`: too few repetitions to quote.**" if quick else "")


def build_section(build):
    engines = f"CPU and CUDA engines (nvcc {build['nvcc']})" if build["nvcc"] else "CPU engine only"
    return (
        "## Size and build time\n\n"
        f"libgreyhound.so with {engines}: {bytes_text(build['library_bytes'])} ({build['library_bytes']} bytes). "
        f"A build from nothing with {build['jobs']} jobs takes {build['build_seconds']:.0f} s, after "
        f"{build['configure_seconds']:.0f} s of configuring ({build['compiler']}; {build['context']['processor']}; "
        f"commit {build['context']['commit'][:12]}, {build['context']['date'][:10]})."
    )


# ---- Pictures ----------------------------------------------------------------------------------


def peer_time(results, name, peer):
    case = results.peer_cases().get(name)
    return comparable(case["results"]).get(peer) if case else None


def heat_maps(results):
    names = [name for name in results.peer_cases() if name.startswith("grid/bf16/")]
    if not names:
        return {}
    shapes = {name: tuple(int(n) for n in name.split("/")[2].split("x")) for name in names}
    batches = sorted({batch for batch, _ in shapes.values()})
    vocabs = sorted({vocab for _, vocab in shapes.values()}, reverse=True)
    speed = {vocab: {} for vocab in vocabs}
    memory = {vocab: {} for vocab in vocabs}
    for name, (batch, vocab) in shapes.items():
        case = results.peer_cases()[name]["results"]
        times = comparable(case)
        ours = times.pop(OURS, None)
        if ours and times:
            best = min(times, key=times.get)
            speed[vocab][batch] = (times[best] / ours, [f"{times[best] / ours:.2f}x", f"{ours / 1000:.3f} ms"])
        held, eager = (case.get(peer, {}).get("extra_bytes") for peer in (OURS, "torch eager"))
        if held is not None and eager is not None:
            memory[vocab][batch] = (eager, [bytes_text(held), f"torch: {bytes_text(eager)}"])
    made = {}
    for kind, cells, alt in (
        ("speed", speed, "Speed-up over the fastest peer (bf16)"),
        ("memory", memory, "Peak memory above the logits, beside torch eager's (bf16)"),
    ):
        grid = [[cells[vocab].get(batch) for batch in batches] for vocab in vocabs]
        if any(cell for row in grid for cell in row):
            svg = charts.heat_map(alt, batches, vocabs, grid, "batch", "vocabulary")
            made[f"{results.slug}-{kind}.svg"] = (alt, svg)
    return made


def comparison_charts(results):
    made = {}
    cases = {}
    for name in results.peer_cases():
        group, dtype, shape = name.split("/")
        if dtype == "bf16" and group in ("grid", "vocab", "odd", "few_rows"):
            cases[tuple(int(n) for n in shape.split("x"))] = name
    by_vocab = {vocab: name for (batch, vocab), name in sorted(cases.items()) if batch == MIDDLE_BATCH}
    by_batch = {batch: name for (batch, vocab), name in sorted(cases.items()) if vocab == MIDDLE_VOCAB}
    grid = {vocab: name for vocab, name in by_vocab.items() if name.startswith("grid/")}

    bars = {peer: [peer_time(results, name, peer) for name in grid.values()] for peer in [OURS, *PEERS]}
    bars = {peer: [t and t / 1000 for t in times] for peer, times in bars.items() if any(times)}
    if bars:
        alt = f"Time by vocabulary at batch {MIDDLE_BATCH} (bf16)"
        svg = charts.bar_chart(alt, list(grid), bars, "vocabulary", "milliseconds")
        made[f"{results.slug}-peers.svg"] = (alt, svg)
    for kind, points, fixed in (
        ("batch", by_batch, f"vocabulary {MIDDLE_VOCAB}"),
        ("vocabulary", by_vocab, f"batch {MIDDLE_BATCH}"),
    ):
        lines = {}
        for peer in [OURS, *PEERS]:
            times = [(x, peer_time(results, name, peer)) for x, name in points.items()]
            lines[peer] = [(x, t / 1000) for x, t in times if t]
        # A copy of a few rows, alone, is mostly launch time and no ceiling, so it starts where a call fills the GPU.
        copies = [
            (x, results.peer_cases()[name]["memcpy_us"] / 1000)
            for x, name in points.items()
            if not name.startswith("few_rows")
        ]
        lines = {peer: values for peer, values in {**lines, "memcpy": copies}.items() if len(values) > 1}
        if OURS in lines:
            alt = f"Time against {kind} at {fixed} (bf16, both axes logarithmic)"
            svg = charts.line_chart(alt, lines, kind, "milliseconds")
            made[f"{results.slug}-{kind}.svg"] = (alt, svg)
    return made


def pictures(results):
    """File name -> (description, SVG)."""
    return {**heat_maps(results), **comparison_charts(results)} if results.peers else {}


# ---- The page ----------------------------------------------------------------------------------


def gpu_sections(results):
    title = next(
        (
            d["context"]["gpu"]
            for d in (results.greyhound, results.peers, results.startup, results.options_file, results.overhead)
            if d and d["context"].get("gpu")
        ),
        "No GPU" if results.slug == "no-gpu" else results.slug,
    )
    sections = [f"## {title}"]
    if results.greyhound or results.peers or results.startup or results.options_file:
        sections.append(environment(results))
    if results.device or results.peers:
        sections.append(targets_section(results))
    if results.peers:
        sections += [pictures_section(results), peers_section(results), memory_section(results)]
    if results.device or results.options_file:
        sections.append(options_section(results))
    if results.device:
        sections.append(device_section(results))
    if results.issue:
        sections.append(host_time_section(results))
    if results.overhead:
        sections.append(overhead_section.render(results.overhead))
    if results.startup:
        sections.append(startup_section(results))
    if results.host or results.peers_host:
        sections.append(host_section(results))
    return [section for section in sections if section]


def render(results_dir):
    """Every file that belongs to the report, by its path below docs/."""
    sections, files, trainings = [INTRODUCTION.rstrip()], {}, {}
    folders = sorted(p for p in results_dir.glob("*/") if any(p.glob("*.json"))) if results_dir.exists() else []
    for folder in folders:
        results = Results(folder)
        sections += gpu_sections(results)
        files.update({f"images/{name}": svg for name, (_, svg) in pictures(results).items()})
        if results.gpt:
            trainings[results.slug] = results.gpt
    if not folders:
        sections.append("## Results\n\nNo results committed yet.")
    build = read(results_dir / "build.json")
    if build:
        sections.append(build_section(build))
    files["benchmarks.md"] = "\n\n".join(sections) + "\n"
    files.update(training_page.render(trainings))
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the committed page is not what the results give")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    arguments = parser.parse_args()
    files = render(arguments.results)
    if arguments.check:
        stale = [n for n, text in files.items() if not (p := arguments.docs / n).exists() or p.read_text() != text]
        if stale:
            sys.exit("not what bench/results says (run python3 bench/report.py): " + ", ".join(sorted(stale)))
        return
    for name, text in files.items():
        path = arguments.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
