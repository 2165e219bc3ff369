"""How Sphinx makes the site. The source folder is the repository itself, so that links between pages, and from pages to
files, are the same on the site and in a Markdown viewer. docs/build.sh calls it."""

import inspect
import os
import re
import sys
from pathlib import Path

from sphinx.util.inspect import stringify_signature

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "bindings/python")]
sys.dont_write_bytecode = True

HEADER = (ROOT / "include/greyhound/greyhound.h").read_text(encoding="utf-8")

project = "Greyhound"
author = "The Greyhound authors"
version = release = ".".join(re.findall(r"^#define GH_VERSION_\w+ +(\d+)$", HEADER, re.MULTILINE))

extensions = [
    "breathe",
    "header_sections",
    "myst_parser",
    "source_pages",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_external_toc",
]

# ---- Pages ---------------------------------------------------------------------------------------

external_toc_path = "docs/site/toc.yml"
include_patterns = ["README.md", "docs/**.md", "bindings/*/README.md"]
# Not so much as walked through.
exclude_patterns = [".*", "bench", "build*", "include", "src", "tests", "bindings/*/*/**"]
myst_heading_anchors = 4

# ---- The C reference, of what Doxygen read -------------------------------------------------------

breathe_projects = {"greyhound": os.environ["GREYHOUND_DOXYGEN_XML"]}
breathe_default_project = "greyhound"
breathe_domain_by_extension = {"h": "c"}

# ---- The Python reference, of the docstrings -----------------------------------------------------

# Docstrings can be read without them, and PyTorch is large.
autodoc_mock_imports = ["numpy", "torch"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
# What other projects define.
nitpick_ignore_regex = [
    ("c:identifier", "u?int[0-9]+_t|size_t|CUstream_st"),
    ("py:class", r"(torch|np|ctypes)\..*|(functional\.)?Reduction"),
]


def signature_of_constructor(app, what, name, obj, options, signature, result):
    """Of a class whose base PyTorch would be, Sphinx sees the stand-in's."""
    if what == "class" and "__init__" in vars(obj):
        parameters = list(inspect.signature(obj.__init__).parameters.values())[1:]
        return stringify_signature(inspect.Signature(parameters), unqualified_typehints=True), result
    return None


def setup(app):
    app.connect("autodoc-process-signature", signature_of_constructor)


# ---- The Rust reference, which rustdoc made ------------------------------------------------------

greyhound_rust_html = os.environ.get("GREYHOUND_RUST_HTML", "")

# ---- Looks ---------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"Greyhound {release}"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["width.css"]
templates_path = ["templates"]
# The front page is README.html; this leads there from the folder.
html_additional_pages = {"index": "to_front_page.html"}
