"""The section of docs/benchmarks.md about the host time of a call from PyTorch, from overhead.json."""

from formats import table, with_reasons

# Microseconds.
TARGETS = {
    "cross_entropy_with_grad_kernel": 12,
    "cross_entropy_kernel, row losses and gradient": 12,
    "cross_entropy_kernel, loss and gradient": 12,
    "functional.cross_entropy": 25,
}


def render(document):
    batch, vocab = document["shape"]
    context = document["context"]
    text = (
        "### Host time of a call from PyTorch\n\n"
        f"Logits {batch} x {vocab}, bf16; the reduction is the mean. Microseconds. torch {context['torch']}, Python "
        f"{context['python']}; commit {context['commit'][:12]}, {context['date'][:10]}.\n\n"
    )
    if context["quick"]:
        text += "**Measured with `--quick`: too few repetitions to quote.**\n\n"
    rows = []
    for source, calls in document["calls"].items():
        for name, result in calls.items():
            target = TARGETS.get(name) if source == "Greyhound" else None
            at_most = "-" if target is None else target
            if "error" in result:
                rows.append((source, call_text(name), f"failed: `{result['error']}`", "", at_most, "-"))
                continue
            met = "-" if target is None else "yes" if result["us"] <= target else "**no**"
            rows.append((source, call_text(name), *times(result), at_most, met))
    text += table(["", "call", "median", "90th percentile", "at most", "met"], rows)
    if document["unavailable"]:
        text += f"\n\nNot measured: {with_reasons(document['unavailable'])}."
    parts = [(name, *times(result)) for name, result in document["parts"].items() if "error" not in result]
    return text + "\n\nWhat a call consists of, each by itself:\n\n" + table(["", "median", "90th percentile"], parts)


def times(result):
    return f"{result['us']:.1f}", f"{result['p90_us']:.1f}"


def call_text(name):
    """The function's name as code, what follows it as text."""
    function, comma, rest = name.partition(",")
    function, space, more = function.partition(" ")
    return f"`{function}`{space}{more}{comma}{rest}"
