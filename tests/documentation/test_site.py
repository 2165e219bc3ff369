"""docs/build.sh makes the site without a warning, and the site is whole.

Takes the build script and a folder to build in, which keeps Sphinx for the next run. Exits with 77 and a reason where
there is no way to get the tools. Standard library only.
"""

import ast
import html.parser
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
from pathlib import Path

from markdown import PAGES, ROOT

sys.path.append(str(ROOT / "tests/packaging"))
import declarations  # noqa: E402

SCRIPT = OUTPUT = None

# pip says one of these if it could not ask the package index.
NO_INDEX = re.compile(r"Retrying \(|Could not fetch URL|ConnectionError|ProxyError|[Tt]imed out")


class Document(html.parser.HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.text = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.update(value for name in ("id", "name") if (value := attributes.get(name)))
        self.links.extend(value for name in ("href", "src") if (value := attributes.get(name)))

    def handle_data(self, data):
        self.text.append(data)


def broken_links(site, pages):
    """(page, link) for each relative link that leads nowhere; `pages` are Documents by path."""
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            fragment = urllib.parse.unquote(parts.fragment)
            if not target.is_file():
                yield str(path.relative_to(site)), link
            elif fragment and target in pages and fragment not in pages[target].anchors:
                yield str(path.relative_to(site)), link


def read_pages(site):
    """All but rustdoc's, whose links rustdoc has checked."""
    paths = [path for path in site.rglob("*.html") if path.relative_to(site).parts[0] != "rust"]
    return {path.resolve(): Document(path.read_text(encoding="utf-8")) for path in paths}


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = (OUTPUT / "html").resolve()
        cls.pages = read_pages(cls.site)

    def page(self, name):
        return self.pages[self.site / name]

    def test_every_markdown_page_is_there_and_in_the_navigation(self):
        front = self.page("README.html")
        for page in PAGES:
            name = str(page.relative_to(ROOT).with_suffix(".html"))
            with self.subTest(page=name):
                self.assertIn(self.site / name, self.pages)
                self.assertIn("#" if name == "README.html" else name, front.links)

    def test_no_link_is_broken(self):
        self.assertEqual(list(broken_links(self.site, self.pages)), [])

    def test_a_broken_link_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            site = Path(folder).resolve()
            (site / "a.html").write_text('<p id="x"><a href="b.html#y">1</a> <a href="#x">2</a> <a href="#z">3</a>')
            (site / "b.html").write_text('<a href="a.html#x">1</a> <a href="c.html">2</a> <img src="d.svg">')
            expected = {("a.html", "b.html#y"), ("a.html", "#z"), ("b.html", "c.html"), ("b.html", "d.svg")}
            self.assertEqual(set(broken_links(site, read_pages(site))), expected)

    def test_the_c_reference_has_every_name_of_the_header(self):
        header = declarations.parse_header((ROOT / "include/greyhound/greyhound.h").read_text())
        names = {*header.functions, *header.constants, *header.structs, *header.initialisers}
        names |= {f"{struct}.{field}" for struct, fields in header.structs.items() for field, _ in fields}
        self.assertGreater(len(names), 60)
        self.assertEqual({name for name in names if f"c.{name}" not in self.page("docs/api/c.html").anchors}, set())

    def test_the_python_reference_has_every_public_name(self):
        package = ROOT / "bindings/python/greyhound"
        names = set()
        for path in package.rglob("[!_]*.py"):
            names |= self.public_names(path, package)
        for path in package.rglob("__init__.py"):
            names |= self.public_names(path, package)
        names.discard("greyhound.__version__")
        names.discard("greyhound.nn.loss.CrossEntropyLoss")  # greyhound.nn's
        self.assertGreater(len(names), 8)
        self.assertEqual(names - self.page("docs/api/python.html").anchors, set())

    @staticmethod
    def public_names(path, package):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.Assign) and statement.targets[0].id == "__all__":
                return {f"{module}.{name}" for name in ast.literal_eval(statement.value)}
        return set()

    def test_signatures_are_those_of_the_code(self):
        text = "".join(self.page("docs/api/python.html").text)
        self.assertIn("CrossEntropyLoss(weight: torch.Tensor | None = None, *, ignore_index: int = -100", text)
        self.assertNotIn("*args", text)

    def test_the_rust_reference_is_linked_where_it_is_made(self):
        links = [link for link in self.page("docs/api.html").links if "greyhound/index.html" in link]
        if (OUTPUT / "cargo").exists():
            self.assertEqual(links, ["../rust/greyhound/index.html"])
        else:
            self.assertIn("../source/bindings/rust/greyhound/src/lib.rs.html", self.page("docs/api.html").links)


if __name__ == "__main__":
    SCRIPT, OUTPUT = sys.argv[1], Path(sys.argv[2])
    if not shutil.which("doxygen"):
        print("skipped: no doxygen")
        sys.exit(77)
    built = subprocess.run([SCRIPT, OUTPUT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(built.stdout)
    if built.returncode != 0:
        if NO_INDEX.search(built.stdout):
            print("skipped: no package index to get Sphinx from")
            sys.exit(77)
        sys.exit("docs/build.sh failed")
    unittest.main(argv=sys.argv[:1], verbosity=2)
