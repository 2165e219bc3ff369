"""Runs every code block of the documentation, and fails if one does not work or nobody decided about it.

What a block in README.md, docs/ or bindings/*/README.md needs:

  - a language after its opening fence. c, cpp, python, rust, cmake and sh are run, as languages.py says; text is not
    code (a diagram, a formula, a program's output), and what is in braces is a directive of the site;
  - in any other language, or where running it would be wrong, a reason, which readers do not see, on the line above:

        <!-- snippet: not run: it installs packages -->

Other comments of that kind:

  <!-- snippet: continues -->   the block goes on where the block of that language above it ended
  <!-- snippet: file -->        C or C++: a whole file without a main; by default such a block is statements
  <!-- snippet: example -->     C or C++: statements in the last program above, in the place of what stands there between
                                the lines `/* The example. */` and `/* End of the example. */`
  <!-- snippet: build.rs -->    Rust: a build script

What this machine cannot run (no cargo, no PyTorch) is skipped, with the reason.
"""

import argparse
import shutil
import sys
import tempfile
import textwrap
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import languages
from markdown import PAGES, Block, PageError, blocks_of_file

GUIDE = textwrap.dedent(__doc__).partition("\n\n")[2]


def decide(block, runners):
    """Why the block is not run; or None if it is to be."""
    if block.note.startswith("not run:"):
        reason = block.note.removeprefix("not run:").strip()
        if not reason:
            raise languages.Failed("`not run:` without a reason")
        return reason
    if block.language == "text":
        return "not code"
    if block.language.startswith("{"):
        return "a directive of the site; documentation.site runs it"
    if not block.language:
        raise languages.Failed("no language after the opening fence (`text` if it is not code)")
    if block.language not in runners:
        raise languages.Failed(f"`{block.language}` is not run, and no reason is given")
    if block.note not in {"", "continues", *languages.NOTES.get(block.language, ())}:
        raise languages.Failed(f"unknown comment `snippet: {block.note}`")
    return None


@dataclass
class Step:
    """What is to be done about a block, and what came of it."""

    block: Block
    code: str  # with what it continues, or stands in
    reason: Optional[str] = None  # why it is not run
    mistake: Optional[str] = None
    continued_by: Optional["Step"] = None
    outcome: str = ""  # ran, not run, skipped or FAILED
    detail: str = ""


def steps_of(blocks, runners):
    steps, last, programs = [], {}, {}
    for block in blocks:
        step = Step(block, block.code)
        steps.append(step)
        try:
            step.reason = decide(block, runners)
            if step.reason is not None:
                continue
            if block.note == "continues":
                if block.language not in last:
                    raise languages.Failed(f"there is no {block.language} block above to continue")
                step.code = last[block.language].code + block.code
                last[block.language].continued_by = step
            elif block.note == "example":
                step.code = languages.with_example(programs.get(block.language, ""), block.code)
            elif languages.has_main(block.code):
                programs[block.language] = block.code
            last[block.language] = step
        except languages.Failed as failed:
            step.mistake = str(failed)
    return steps


def run(step, setting, runners):
    """Returns (outcome, detail)."""
    if step.mistake is not None:
        return "FAILED", step.mistake
    if step.reason is not None:
        return "not run", step.reason
    start = time.monotonic()
    try:
        detail = runners[step.block.language](setting, step.code, step.block.note)
        return "ran", f"{detail} ({time.monotonic() - start:.1f} s)"
    except languages.Skipped as skipped:
        return "skipped", str(skipped)
    except languages.Failed as failed:
        return "FAILED", str(failed)
    except SyntaxError as error:
        return "FAILED", f"{type(error).__name__}: {error}"


def check_page(blocks, setting, runners=languages.RUNNERS):
    """(block, outcome, detail) for every block. One that another continues is run as its beginning, and by itself only
    if that did not work."""
    steps = steps_of(blocks, runners)
    for step in reversed(steps):
        if step.continued_by is not None and step.continued_by.outcome == "ran":
            step.outcome, step.detail = "ran", f"with {step.continued_by.block.place}"
        else:
            step.outcome, step.detail = run(step, setting, runners)
    return [(step.block, step.outcome, step.detail) for step in steps]


def table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths)), row[3]])


def a_program(blocks):
    """The documentation's own first C program, for the blocks about building one."""
    for block in blocks:
        if block.language == "c" and languages.has_main(block.code):
            return block.code
    raise PageError("README.md has no C program")


def make_setting(arguments):
    arguments.work.mkdir(parents=True, exist_ok=True)
    return languages.Setting(
        prefix=arguments.prefix,
        libdir=arguments.prefix / arguments.libdir,
        build=arguments.build,
        work=Path(tempfile.mkdtemp(dir=arguments.work)),
        cc=arguments.cc,
        cxx=arguments.cxx,
        cmake=arguments.cmake,
        cargo=arguments.cargo,
        cuda_include=arguments.cuda_include,
    )


def arguments_of(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, required=True, help="where Greyhound is installed")
    parser.add_argument("--libdir", default="lib", help="the library's directory in the prefix")
    parser.add_argument("--build", type=Path, required=True, help="the build folder")
    parser.add_argument("--work", type=Path, required=True, help="a folder for what the blocks write")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--cargo", default="", help="leave out what is Rust if empty")
    parser.add_argument("--cuda-include", default="", help="CUDA's header directories, separated by colons")
    return parser.parse_args(argv)


def main(argv):
    setting = make_setting(arguments_of(argv))
    try:
        pages = [blocks_of_file(page) for page in PAGES]
        setting.program = a_program(pages[0])
        results = [result for page in pages for result in check_page(page, setting)]
    except PageError as error:
        print(f"{error}\n\n{GUIDE}")
        return 1
    finally:
        shutil.rmtree(setting.work, ignore_errors=True)

    rows = [
        (block.place, block.language, outcome, "see below" if outcome == "FAILED" else detail)
        for block, outcome, detail in results
    ]
    print("\n".join(table(rows)))
    failures = [(block, detail) for block, outcome, detail in results if outcome == "FAILED"]
    for block, detail in failures:
        print(f"\n{block.place}: {detail}\n{textwrap.indent(block.code, '    | ')}")
    if failures:
        print("\n" + GUIDE)
    counts = Counter(outcome for _, outcome, _ in results)
    print("\n" + ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("ran", "not run", "skipped", "FAILED")))
    return 1 if failures or not counts["ran"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
