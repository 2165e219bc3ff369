"""Checks a built libgreyhound.so: what it exports, what it is called and what it needs.

Exports must be exactly the functions that the header declares, and the only other libraries loaded
with it may be the C library, the dynamic loader and the OpenMP runtime. Standard library only.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import declarations

# librt, libdl and libpthread are parts of the C library that older releases keep in files of their own.
ALLOWED_DEPENDENCIES = re.compile(
    r"(libc|libm|librt|libdl|libpthread|libgomp|libomp|ld-linux[a-z0-9_-]*)\.so(\.\d+)?")


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def exported_symbols(nm, library):
    """Name and version of each symbol; the version itself is listed as a symbol of type A, with no version."""
    lines = output_of(nm, "-D", "--defined-only", "--format=posix", library).splitlines()
    symbols = [line.split()[:2] for line in lines]
    return dict(name.partition("@@")[::2] for name, kind in symbols if kind != "A")


def dynamic_section(readelf, library):
    """Pairs such as ("NEEDED", "libc.so.6")."""
    text = output_of(readelf, "-d", "--wide", library)
    return re.findall(r"\((\w+)\)[^\[\n]*(?:\[([^\]]*)\])?", text)


def problems(nm, readelf, header, library):
    declared = declarations.parse_header(header.read_text())
    exported = exported_symbols(nm, library)
    for name in sorted(exported.keys() - declared.functions.keys()):
        yield f"exports {name}, which the header does not declare"
    for name in sorted(declared.functions.keys() - exported.keys()):
        yield f"does not export {name}, which the header declares"

    entries = dynamic_section(readelf, library)
    major, minor, _ = declared.version
    for name, version in sorted(exported.items()):
        if version != f"gh_{major}.{minor}":
            yield f"exports {name} with the version '{version}', not gh_{major}.{minor}"
    soname = f"libgreyhound.so.{major}.{minor}"
    found = [value for tag, value in entries if tag == "SONAME"]
    if found != [soname]:
        yield f"has the SONAME {found}, not {soname}"
    needed = [value for tag, value in entries if tag == "NEEDED"]
    if not needed:
        yield "needs no library at all: readelf's output was not understood"
    for name in needed:
        if not ALLOWED_DEPENDENCIES.fullmatch(name):
            yield f"needs {name}"
    for tag, value in entries:
        if tag in ("RPATH", "RUNPATH"):
            yield f"has the {tag} {value}, a path of the machine that built it"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("library")
    arguments = parser.parse_args()
    found = list(problems(arguments.nm, arguments.readelf, arguments.header, arguments.library))
    for problem in found:
        print(f"{arguments.library} {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
