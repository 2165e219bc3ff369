"""Every relative link in the Markdown pages leads to a file, and its #fragment to a heading there."""

import re
import tempfile
import unittest
from pathlib import Path

from markdown import PAGES, ROOT


def prose(page):
    """The page without its code, in which brackets mean something else."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`(?!\])", "", text)


def anchors(page):
    """The fragments that GitHub gives the page's headings."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists():
            yield f"{page}: {target} does not exist"
        elif fragment and fragment not in anchors(file):
            yield f"{page}: {target} has no such heading"


class Links(unittest.TestCase):
    def test_every_page(self):
        self.assertGreater(len(PAGES), 4)
        for page in PAGES:
            with self.subTest(page=str(page.relative_to(ROOT))):
                self.assertEqual(list(broken_links(page)), [])

    def test_broken_links_are_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "page.md")
            page.write_text(
                "# The one heading!\n[a](page.md#the-one-heading) [b](#the-one-heading) [c](https://x.org)\n"
                "[d](absent.md) [e](#absent) [`f`](also_absent.c)\n```c\nx[i](y);\n```\n"
            )
            found = [problem.partition(": ")[2].split()[0] for problem in broken_links(page)]
            self.assertEqual(found, ["absent.md", "#absent", "also_absent.c"])


if __name__ == "__main__":
    unittest.main()
