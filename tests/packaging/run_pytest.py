"""Runs pytest on a directory, or exits with 77 and a reason if this Python lacks what the tests use."""

import importlib.util
import subprocess
import sys

missing = [name for name in ("pytest", "numpy") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {sys.executable} has no {' and no '.join(missing)}")
    sys.exit(77)
sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *sys.argv[1:]]))
