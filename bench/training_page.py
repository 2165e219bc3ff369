"""docs/training.md and its pictures, from the gpt.json that bench/gpt/train.py wrote on each GPU."""

from itertools import combinations
from math import sqrt

import charts
from formats import table, with_reasons

REFERENCE = "torch fp32"
OURS = ("Greyhound", "Greyhound, in place")
# Of the first steps, in which all curves fall from the same value, the differences say little.
FIRST = 20
# Steps that a point of the loss curves is the mean of: the batches differ more than the losses.
SMOOTHED = 5

INTRODUCTION = """\
# Training a small GPT with it

Made by `bench/report.py` from the files in `bench/results/`. Do not edit.

Does a model learn the same with Greyhound's loss, and what does the exchange save? A small GPT is trained on real text
several times, the same in all but the loss.

## The exchange

```python
import torch
from greyhound.nn.functional import cross_entropy

hidden, head = torch.randn(8, 64, dtype=torch.bfloat16), torch.nn.Linear(64, 1000, dtype=torch.bfloat16)
labels = torch.randint(1000, (8,))
logits = head(hidden)

before = torch.nn.functional.cross_entropy(logits.float(), labels)
after = cross_entropy(logits, labels)
# Where nobody reads the logits after backward(): their memory becomes the gradient's.
after = cross_entropy(logits, labels, inplace_backward=True)
after.backward()
```

The logits stay bfloat16: the arithmetic in between is float32 in any case, and the loss is a float32 number.

## The experiment

- **Model**: a decoder with learned positions and tied embeddings, in plain PyTorch
  ([bench/gpt/model.py](../bench/gpt/model.py)). float32 weights, bfloat16 arithmetic by autocast, bfloat16 logits;
  AdamW, gradients clipped to a norm of 1.
- **Text**: the GNU Collaborative International Dictionary of English, 40 MB, in tokens of a byte-level BPE that is
  trained on it, 50304 in all. Every run sees the same blocks in the same order. Every 50th is held out, for the
  validation loss.
- **Losses**: `torch fp32` is `F.cross_entropy(logits.float(), labels)`, what one writes for accuracy; `torch bf16` is
  `F.cross_entropy(logits, labels)`; `Greyhound` is `greyhound.nn.functional.cross_entropy(logits, labels)`, and
  `Greyhound, in place` the same with `inplace_backward=True`; `Liger` is its autograd function.
- **The curve** is not what these return. In every step, the loss is also computed from the same logits by one float32
  routine, which is the same for all runs.
- **Noise**: `torch fp32` runs with three seeds, which only change the weights at the start, and once more with the
  first seed, where nothing changes but the order in which a GPU adds things up. All other runs have the first seed.
- **Step time and peak memory** are measured after the curve, in further steps without that routine: the median time
  from the end of one step to the end of the next, and the most that PyTorch's allocator had given out at once.

How far apart two curves are is the root of the mean square of their difference, over all steps but the first 20. A
curve is *the same within noise* if it is no further from `torch fp32`'s than the two closest of the three seeds are
from each other.

To run it, with the text first (this needs Debian or Ubuntu, and the packages `tokenizers` and `numpy`):

<!-- snippet: not run: fetches a package of 15 MB and tokenizes for a minute -->
```sh
mkdir -p build/gpt
(cd build/gpt && apt-get download dict-gcide && dpkg-deb -x dict-gcide_*.deb .)
python3 bench/gpt/prepare.py build/gpt/usr/share/dictd/gcide.dict.dz --output build/gpt/tokens.bin
```

<!-- snippet: not run: trains on a GPU -->
```sh
bench/run.sh gpt
python3 bench/report.py
```
"""


# ---- Numbers -----------------------------------------------------------------------------------


def distance(one, other):
    differences = [a - b for a, b in zip(one["losses"], other["losses"])][FIRST:]
    return sqrt(sum(d * d for d in differences) / len(differences))


def runs_of_seed_one(document):
    """The first run of each loss with the seed 1, by the loss's name."""
    found = {}
    for run in document["runs"]:
        if run["seed"] == 1:
            found.setdefault(run["loss"], run)
    return found


def seeds(document):
    """The reference's first run with each seed."""
    found = {}
    for run in document["runs"]:
        if run["loss"] == REFERENCE:
            found.setdefault(run["seed"], run)
    return list(found.values())


def repetition(document):
    """The reference's second run with the seed 1, or None."""
    again = [run for run in document["runs"] if run["loss"] == REFERENCE and run["seed"] == 1][1:]
    return again[0] if again else None


def noise(document):
    """The least distance between two seeds, or None if there is only one."""
    distances = [distance(one, other) for one, other in combinations(seeds(document), 2)]
    return min(distances) if distances else None


# ---- The page ----------------------------------------------------------------------------------


def statement(document):
    runs, limit, again = runs_of_seed_one(document), noise(document), repetition(document)
    reference = runs[REFERENCE]
    lines = []
    if limit is not None:
        lines.append(f"- The two closest of {len(seeds(document))} seeds of `{REFERENCE}` are {limit:.2g} apart.")
    if again:
        lines.append(f"- `{REFERENCE}` run again with the same seed is {distance(again, reference):.2g} from itself.")
    for name, run in runs.items():
        if name == REFERENCE or limit is None:
            continue
        apart = distance(run, reference)
        verdict = "the same within noise" if apart <= limit else "**not the same within noise**"
        lines.append(f"- `{name}` is {apart:.2g} from `{REFERENCE}`: {verdict}.")
    return "\n".join(lines)


HEADER = [
    "loss",
    "step, ms",
    f"of {REFERENCE}",
    "peak, GB",
    "above what stays, GB",
    "validation loss",
    "difference",
]


def costs(document):
    """The table of all runs."""
    reference = runs_of_seed_one(document)[REFERENCE]
    rows = []
    for run in document["runs"]:
        difference = run["validation_loss"] - reference["validation_loss"]
        cells = ("-",) * 4
        if "step_ms" in run:
            cells = (
                f"{run['step_ms']:.1f}",
                f"{run['step_ms'] / reference['step_ms']:.2f}",
                f"{run['peak_bytes'] / 1e9:.2f}",
                f"{(run['peak_bytes'] - run['at_rest_bytes']) / 1e9:.2f}",
            )
        title = run["loss"]
        if run["seed"] != 1:
            title += f", seed {run['seed']}"
        elif run is repetition(document):
            title += ", again"
        rows.append((title, *cells, f"{run['validation_loss']:.4f}", f"{difference:+.4f}"))
    return table(HEADER, rows)


def smoothed(losses):
    windows = [losses[max(0, i - SMOOTHED + 1) : i + 1] for i in range(len(losses))]
    return [sum(window) / len(window) for window in windows]


def pictures(slug, document):
    """File name -> (description, SVG)."""
    runs = runs_of_seed_one(document)
    reference = runs[REFERENCE]["losses"]

    def difference(run):
        return smoothed([a - b for a, b in zip(run["losses"], reference)])[FIRST:]

    alt = f"Loss by step (mean of {SMOOTHED} steps)"
    svg = charts.curves(alt, {name: smoothed(run["losses"]) for name, run in runs.items()}, "step", "loss")
    made = {f"{slug}-training.svg": (alt, svg)}
    others = {name: difference(run) for name, run in runs.items() if name != REFERENCE}
    if others:
        of_seeds = [difference(run) for run in seeds(document)]
        band = ("seeds", [min(values) for values in zip(*of_seeds)], [max(values) for values in zip(*of_seeds)])
        alt = f"Difference from {REFERENCE}, and that of its other seeds (mean of {SMOOTHED} steps)"
        svg = charts.curves(alt, others, "step", "difference of the loss", FIRST, band if len(of_seeds) > 1 else None)
        made[f"{slug}-training-difference.svg"] = (alt, svg)
    return made


def section(slug, document):
    context, size = document["context"], document["size"]
    text = (
        f"## {context.get('gpu', slug)}\n\n"
        f"{size['layers']} layers, width {size['width']}, {size['heads']} heads: {size['parameters'] / 1e6:.1f} "
        f"million parameters. {size['batch']} x {size['context']} tokens a step, so logits of "
        f"{size['batch'] * size['context']} x {size['vocab']}; {document['steps']} steps. torch {context['torch']}, "
        f"driver {context.get('driver', '-')}; commit {context['commit'][:12]}, {context['date'][:10]}.\n\n"
    )
    text += "\n\n".join(f"![{alt}](images/{name})" for name, (alt, _) in pictures(slug, document).items())
    text += f"\n\n{statement(document)}\n\n{costs(document)}"
    text += "\n\nWhat stays from step to step: the weights, AdamW's two moments, and the tokens."
    if document["unavailable"]:
        text += f"\n\nNot run: {with_reasons(document['unavailable'])}."
    return text


def render(documents):
    """Every file of the page, by its path below docs/. documents: the folder's name -> what gpt.json there holds."""
    usable = {slug: document for slug, document in documents.items() if REFERENCE in runs_of_seed_one(document)}
    sections = [section(slug, document) for slug, document in usable.items()]
    files = {
        f"images/{name}": svg
        for slug, document in usable.items()
        for name, (_, svg) in pictures(slug, document).items()
    }
    page = [INTRODUCTION.rstrip(), *(sections or ["## Results\n\nNo results committed yet."])]
    return {"training.md": "\n\n".join(page) + "\n", **files}
