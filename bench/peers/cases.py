"""The shapes and options to measure, from bench/cases.txt and bench/options.txt, which greyhound_bench reads too."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Optional

BENCH = Path(__file__).resolve().parent.parent
ELEMENT_SIZE = {"f32": 4, "f16": 2, "bf16": 2}


@dataclass(frozen=True)
class Case:
    group: str
    dtype: str
    batch: int
    vocab: int
    ignored: float = 0.0
    z: float = 0.0

    @property
    def on_host(self):
        return self.group == "host"

    @property
    def name(self):
        return f"{self.group}/{self.dtype}/{self.batch}x{self.vocab}"

    @property
    def bytes(self):
        return self.batch * self.vocab * ELEMENT_SIZE[self.dtype]


@dataclass(frozen=True)
class OptionCase:
    shape: Case  # its group is the option's name
    at_most: Optional[float]  # the target: a multiple of the plain call's time
    settings: tuple

    @property
    def on_host(self):
        return "on_host" in self.settings

    @property
    def name(self):
        """That in results."""
        return ("host_options/" if self.on_host else "options/") + self.shape.name


def parse_lines(text):
    """Each shape of each line, and the words after them."""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        group, dtypes, batches, vocabs, *words = line.split()
        for dtype, batch, vocab in product(dtypes.split(","), batches.split(","), vocabs.split(",")):
            yield (group, dtype, int(batch), int(vocab)), words


def parse_cases(text):
    return [
        Case(*shape, **{key: float(value) for key, value in (word.split("=") for word in words)})
        for shape, words in parse_lines(text)
    ]


def parse_option_cases(text):
    return [
        OptionCase(Case(*shape), None if at_most == "-" else float(at_most), tuple(settings))
        for shape, (at_most, *settings) in parse_lines(text)
    ]


def all_cases():
    return parse_cases((BENCH / "cases.txt").read_text())


def all_option_cases():
    return parse_option_cases((BENCH / "options.txt").read_text())
