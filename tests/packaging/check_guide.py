"""The C++ of docs/integrating.md: each block compiles by itself, and each program among them runs and returns 0.

Blocks that include a CUDA header need --cuda-include. Standard library only.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--cuda-include", action="append", default=[])
    parser.add_argument("--libdir", required=True)
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()

    blocks = re.findall(r"^```cpp\n(.*?)^```$", arguments.page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if not blocks:
        sys.exit(f"{arguments.page} has no C++ blocks")
    compiler = [arguments.compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    compiler += [f"-I{path}" for path in arguments.include]
    compiler += [word for path in arguments.cuda_include for word in ("-isystem", path)]

    programs = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, block in enumerate(blocks, 1):
            if not arguments.cuda_include and re.search(r"#include <cuda\w*\.h>", block):
                print(f"block {number}: not compiled, no CUDA headers")
                continue
            source, program = Path(folder, f"block_{number}.cpp"), Path(folder, f"block_{number}")
            source.write_text(block, encoding="utf-8")
            if not re.search(r"^int main\(", block, re.MULTILINE):
                subprocess.run([*compiler, "-fsyntax-only", source], check=True)
                continue
            subprocess.run([*compiler, source, "-o", program, f"-L{arguments.libdir}", "-lgreyhound"], check=True)
            subprocess.run([program], check=True, env={**os.environ, "LD_LIBRARY_PATH": arguments.libdir})
            programs += 1
    if not programs:
        sys.exit(f"{arguments.page} has no program")


if __name__ == "__main__":
    main()
