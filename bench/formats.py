"""Numbers and tables as the pages show them."""

import json


def read(path):
    return json.loads(path.read_text()) if path.exists() else None


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def milliseconds(us):
    return f"{us / 1000:.4f}" if us < 100 else f"{us / 1000:.3f}"


def bytes_text(count):
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def with_reasons(errors):
    """errors: name -> message"""
    return "; ".join(f"{name} (`{message}`)" for name, message in errors.items())
