"""The shapes to measure, from bench/cases.txt, which greyhound_bench reads too."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

CASES_FILE = Path(__file__).resolve().parent.parent / "cases.txt"
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


def parse_cases(text):
    cases = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        group, dtypes, batches, vocabs, *options = line.split()
        options = {key: float(value) for key, value in (option.split("=") for option in options)}
        for dtype, batch, vocab in product(dtypes.split(","), batches.split(","), vocabs.split(",")):
            cases.append(Case(group, dtype, int(batch), int(vocab), **options))
    return cases


def all_cases():
    return parse_cases(CASES_FILE.read_text())
