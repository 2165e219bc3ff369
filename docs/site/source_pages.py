"""A page of the site for each source file that a page links to.

In a Markdown viewer such a link leads to the file in the repository. Here it leads to a page with the file's text in
colours; a folder has none, and a link to one becomes plain text.
"""

import html
import os
import shutil
from pathlib import Path, PurePosixPath

from docutils import nodes
from pygments.lexers import find_lexer_class_for_filename
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

FOLDER = "source"

# Where rustdoc's pages are, if there are any, a link to a crate's root leads to its documentation.
RUST_FOLDER = "rust"
CRATES = {
    "bindings/rust/greyhound/src/lib.rs": "rust/greyhound/index.html",
    "bindings/rust/greyhound-sys/src/lib.rs": "rust/greyhound_sys/index.html",
}

LANGUAGES = {".cuh": "cuda", ".h": "c"}  # where the name does not tell, or not what we mean


class LinkToSourcePages(SphinxTransform):
    """While a page is read: MyST takes a link to a file that is no page for a download, and one to a folder for a
    reference that it will not find."""

    default_priority = 400

    def apply(self):
        for node in list(self.document.findall(addnodes.download_reference)):
            path = os.path.normpath(os.path.join(os.path.dirname(self.env.docname), node["reftarget"]))
            link = nodes.reference("", "", *node.children, internal=True, refuri=self._uri(path))
            node.replace_self(link)
        for node in list(self.document.findall(addnodes.pending_xref)):
            if (Path(self.env.srcdir, self.env.docname).parent / node["reftarget"]).is_dir():
                node.replace_self(node.children)

    def _uri(self, path):
        if self.config.greyhound_rust_html and path in CRATES:
            target = CRATES[path]
        else:
            self.env.greyhound_sources.add(path)
            target = page_name(path) + ".html"
        return os.path.relpath(target, os.path.dirname(self.env.docname))


def page_name(path):
    return str(PurePosixPath(FOLDER, path))


def start(app, env, docnames):
    env.greyhound_sources = set()


def pages(app):
    for path in sorted(app.env.greyhound_sources):
        text = Path(app.srcdir, path).read_text(encoding="utf-8")
        lexer = find_lexer_class_for_filename(path)
        language = LANGUAGES.get(PurePosixPath(path).suffix) or (lexer.aliases[0] if lexer else "text")
        code = app.builder.highlighter.highlight_block(text, language, linenos="inline", location=path)
        body = f"<h1><code>{html.escape(path)}</code></h1>\n{code}"
        yield page_name(path), {"title": path, "body": body, "display_toc": False}, "page.html"


def copy_rust(app, exception):
    if exception is None and app.config.greyhound_rust_html:
        shutil.copytree(app.config.greyhound_rust_html, Path(app.outdir, RUST_FOLDER), dirs_exist_ok=True)


def setup(app):
    app.add_config_value("greyhound_rust_html", "", "env")
    app.add_transform(LinkToSourcePages)
    app.connect("env-before-read-docs", start)
    app.connect("html-collect-pages", pages)
    app.connect("build-finished", copy_rust)
    return {"parallel_read_safe": False}
