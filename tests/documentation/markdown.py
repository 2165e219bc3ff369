"""The Markdown pages, and the code blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("bindings/*/README.md"))]

FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,}) *(?P<language>[^\s`]*)[^`]*$")
NOTE = re.compile(r"<!--\s*snippet:\s*(.*?)\s*-->", re.DOTALL)


@dataclass
class Block:
    page: str
    line: int  # of the opening fence, counted from 1
    language: str  # as after the fence; empty if there is none
    note: str  # of the comment `<!-- snippet: NOTE -->` above the block; empty if there is none
    code: str

    @property
    def place(self):
        return f"{self.page}:{self.line}"


class PageError(Exception):
    """The page cannot be read as it was meant."""


def note_above(text):
    """The note at the very end of `text`, and the rest of the text."""
    *_, last = [None, *NOTE.finditer(text)]
    if last is None or text[last.end() :].strip():
        return "", text
    return re.sub(r"\s+", " ", last.group(1)), text[: last.start()]


def blocks(name, text):
    """The fenced code blocks of a page, from top to bottom."""
    found, prose, inside, prose_start = [], [], None, 1

    def stray_notes(rest):
        if NOTE.search(rest):
            raise PageError(f"{name}:{prose_start}: a snippet comment below this line stands above no code block")

    for number, line in enumerate(text.splitlines(), 1):
        if inside is None:
            fence = FENCE.match(line)
            if not fence:
                prose.append(line)
                continue
            note, rest = note_above("\n".join(prose))
            stray_notes(rest)
            inside = Block(name, number, fence["language"], note, "")
            closing = re.compile(rf" *{fence['marks'][0]}{{{len(fence['marks'])},}} *$")
            indent = len(fence["indent"])
        elif closing.match(line):
            found.append(inside)
            inside, prose, prose_start = None, [], number
        else:
            inside.code += line[min(indent, len(line) - len(line.lstrip(" "))) :] + "\n"
    if inside is not None:
        raise PageError(f"{inside.place}: this code block has no end")
    stray_notes("\n".join(prose))
    return found


def blocks_of_file(path):
    return blocks(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
