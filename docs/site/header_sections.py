"""The directive `c-section`: everything that the C header declares under one of its headings, in its order.

Breathe's directives render what Doxygen read, one name each. Which names there are, and under which heading

    /* ---- Status ------------------------- */

they stand, is read here, so that nothing new can be missing from the page.
"""

import re
from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

HEADER = Path("include/greyhound/greyhound.h")
HEADING = re.compile(r"^/\* ---- (.+?) -+ \*/$")


def headings(header):
    """The line and the text of each."""
    lines = enumerate(header.read_text(encoding="utf-8").splitlines(), 1)
    return [(number, found[1]) for number, line in lines if (found := HEADING.match(line))]


def declarations(xml):
    """The line of each declaration, and the directive for it."""
    file = ElementTree.parse(Path(xml, "greyhound_8h.xml")).getroot().find("compounddef")
    structs = []
    for inner in file.iter("innerclass"):
        struct = ElementTree.parse(Path(xml, inner.get("refid") + ".xml")).getroot().find("compounddef")
        structs.append(inner.text)
        yield int(struct.find("location").get("line")), f"{{doxygenstruct}} {inner.text}\n:members:"
    for member in file.iter("memberdef"):
        line, kind, name = int(member.find("location").get("line")), member.get("kind"), member.findtext("name")
        if kind == "enum":  # without a name
            for value in member.iter("enumvalue"):
                yield line, f"{{doxygenenumvalue}} {value.findtext('name')}"
        elif name not in structs:  # the typedef of a struct says nothing more
            yield line, f"{{doxygen{kind}}} {name}"


class Section(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        self.env.note_dependency(str(HEADER))
        starts = headings(Path(self.env.srcdir, HEADER))
        ends = [line for line, _ in starts[1:]] + [float("inf")]
        try:
            start, end = next(
                (line, end) for (line, text), end in zip(starts, ends) if text.startswith(self.arguments[0])
            )
        except StopIteration:
            raise self.error(f"{HEADER} has no heading '{self.arguments[0]}'") from None
        xml = self.config.breathe_projects[self.config.breathe_default_project]
        found = sorted((item for item in declarations(xml) if start < item[0] < end), key=lambda item: item[0])
        text = "".join(f"```{directive}\n```\n\n" for _, directive in found)
        node = nodes.container()
        self.state.nested_parse(StringList(text.splitlines(), str(HEADER)), self.content_offset, node)
        return node.children


def setup(app):
    app.add_directive("c-section", Section)
    return {"parallel_read_safe": True}
