"""How a code block of each language is run. A runner returns a word on what it did, or raises Failed or Skipped.

A block is completed only with what a reader would obviously add; C_WRAPPER, RUST_WRAPPER and the runners' docstrings
say with what.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from markdown import ROOT

SECONDS = 60  # for one command


class Failed(Exception):
    pass


class Skipped(Exception):
    """This machine lacks something that the block needs."""


@dataclass
class Setting:
    prefix: Path  # an installed Greyhound
    libdir: Path  # its library directory
    build: Path  # the build folder it was installed from
    work: Path  # a folder for everything that is written
    cc: str
    cxx: str
    cmake: str
    cargo: str = ""
    cuda_include: str = ""
    program: str = ""  # a C program with a main, for the blocks that use one

    def environment(self, **more):
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(self.libdir), os.environ.get("LD_LIBRARY_PATH")])),
            "GREYHOUND_LIBRARY": str(self.libdir / "libgreyhound.so"),
            "PYTHONPATH": str(ROOT / "bindings/python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CC": self.cc,
            "CXX": self.cxx,
            **more,
        }
        return {name: value for name, value in environment.items() if value is not None}

    def folder(self):
        return Path(tempfile.mkdtemp(dir=self.work))

    def call(self, command, folder, **environment):
        """Runs a command and returns what it printed. A status other than 0, or no end, is a failure."""
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # so that its children can be stopped with it
        )
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise Failed(f"{command[0]} was not done after {SECONDS} s\n{output}") from None
        if process.returncode != 0:
            raise Failed(f"{' '.join(map(str, command))}\nended with status {process.returncode}\n{output}")
        return output


# ---- C and C++ -----------------------------------------------------------------------------------

# Above statements that stand alone.
C_HEADERS = {
    ".c": ["math.h", "stdio.h", "stdlib.h", "string.h"],
    ".cpp": ["cmath", "cstdio", "cstdlib", "cstring", "stdexcept", "vector"],
}

# Around statements that stand alone: the arguments of gh_cross_entropy_fwd_bwd under their names in the header.
C_WRAPPER = """\
{includes}
#include <greyhound/greyhound.h>

int snippet(void *logits, gh_dtype dtype, const int64_t *labels, int64_t batch, int64_t vocab,
            float z_loss_multiplier, int64_t ignore_index, float *ce_sum, float *z_sum, float *n_valid,
            gh_stream stream);
int snippet(void *logits, gh_dtype dtype, const int64_t *labels, int64_t batch, int64_t vocab,
            float z_loss_multiplier, int64_t ignore_index, float *ce_sum, float *z_sum, float *n_valid,
            gh_stream stream) {{
    (void)logits, (void)dtype, (void)labels, (void)batch, (void)vocab, (void)z_loss_multiplier;
    (void)ignore_index, (void)ce_sum, (void)z_sum, (void)n_valid, (void)stream;
    {{
#line 1 "snippet"
{statements}
    }}
    return 0;
}}
"""


# Lines of a program between which a block with the note `example` stands.
EXAMPLE = re.compile(r"(?<=/\* The example\. \*/\n).*?(?=^ */\* End of the example\. \*/)", re.MULTILINE | re.DOTALL)


def has_main(code):
    return re.search(r"^int\s+main\s*\(", code, re.MULTILINE) is not None


def with_example(program, code):
    """The program with this block as its example."""
    if not EXAMPLE.search(program):
        raise Failed("no program above with `/* The example. */` and `/* End of the example. */`")
    return EXAMPLE.sub(lambda _: f'#line 1 "snippet"\n{code}', program)


def compiled(setting, code, note, compiler, standard, suffix):
    """Compiled with warnings as errors. Run if it has a main; otherwise the block is a whole file with the note `file`,
    or statements, which are compiled inside C_WRAPPER."""
    whole = has_main(code) or note == "file"
    if not whole:
        includes = "\n".join(
            [f"#include <{header}>" for header in C_HEADERS[suffix]]
            + re.findall(r"^\s*#\s*include\b.*$", code, re.MULTILINE)
        )
        statements = re.sub(r"^\s*#\s*include\b.*$", "", code, flags=re.MULTILINE)
        code = C_WRAPPER.format(includes=includes, statements=statements)
    folder = setting.folder()
    (folder / ("snippet" + suffix)).write_text(code)
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Werror", f"-I{setting.prefix}/include"]
    if note == "example":
        flags += ["-Wno-unused"]  # of what its program declares
    needs_cuda = re.search(r"#\s*include\s*<cu\w+\.h>", code)
    if needs_cuda:
        if not setting.cuda_include:
            raise Skipped("no CUDA headers")
        flags += [f"-isystem{path}" for path in setting.cuda_include.split(":")]
    if needs_cuda or not has_main(code):
        setting.call([compiler, *flags, "-c", "snippet" + suffix, "-o", "snippet.o"], folder)
        return "compiled" + ("" if whole else ", inside a function")
    libraries = [f"-L{setting.libdir}", "-Wl,--as-needed", "-lgreyhound", "-ldl", "-lm"]
    setting.call([compiler, *flags, "snippet" + suffix, "-o", "snippet", *libraries], folder)
    setting.call([folder / "snippet"], folder)
    return "compiled and run"


def run_c(setting, code, note):
    return compiled(setting, code, note, setting.cc, "c99", ".c")


def run_cpp(setting, code, note):
    return compiled(setting, code, note, setting.cxx, "c++17", ".cpp")


# ---- Python --------------------------------------------------------------------------------------

# Only these may be missing. Any other import that fails is a mistake in the block.
OPTIONAL_MODULES = {"cupy", "greyhound_jax", "jax", "ml_dtypes", "numba", "numpy", "torch"}


def run_python(setting, code, note):
    """Run as it stands, but on the CPU, and there with smaller logits."""
    imported = set(re.findall(r"^\s*(?:import|from)\s+(\w+)", code, re.MULTILINE))
    for module in sorted(imported & OPTIONAL_MODULES):
        if importlib.util.find_spec(module) is None:
            raise Skipped(f"{sys.executable} has no {module}")
    on_cpu = code.replace('device="cuda"', 'device="cpu"').replace("8192, 128256", "64, 1000")
    if "cuda" in on_cpu or "cupy" in imported:
        compile(code, "snippet", "exec")
        raise Skipped("needs a GPU (its syntax is right)")
    folder = setting.folder()
    (folder / "snippet.py").write_text(on_cpu)
    setting.call([sys.executable, "-W", "error::DeprecationWarning:__main__", "snippet.py"], folder)
    return "run" if on_cpu == code else "run on the CPU, smaller"


# ---- Rust ----------------------------------------------------------------------------------------

CARGO_TOML = """\
[package]
name = "snippet"
version = "0.0.0"
edition = "2021"

[dependencies]
greyhound = {{ path = "{root}/bindings/rust/greyhound" }}
greyhound-sys = {{ path = "{root}/bindings/rust/greyhound-sys" }}

[workspace]
"""

RUST_WRAPPER = """\
fn main() -> Result<(), Box<dyn std::error::Error>> {{
{statements}
    Ok(())
}}
"""

RUST_CALLER = 'fn main() { println!("{}", unsafe { greyhound_sys::gh_version() }); }\n'


def run_rust(setting, code, note):
    """The main file of a crate that depends on both crates, and run. Statements get a main that returns a Result. With
    the note `build.rs`, the crate's build script instead; then the crate's program is run as Cargo would not run it,
    without help to find the library."""
    if not setting.cargo:
        raise Skipped("no cargo")
    if not re.search(r"^(pub )?fn main\b", code, re.MULTILINE):
        code = RUST_WRAPPER.format(statements=code)
    code = "#![deny(warnings)] " + code  # not RUSTFLAGS, which would be the dependencies' too
    folder, target = setting.folder(), setting.work / "cargo"
    (folder / "src").mkdir()
    (folder / "Cargo.toml").write_text(CARGO_TOML.format(root=ROOT))
    is_build_script = note == "build.rs"
    (folder / "src/main.rs").write_text(RUST_CALLER if is_build_script else code)
    if is_build_script:
        (folder / "build.rs").write_text(code)
    cargo = [setting.cargo, "--quiet"]
    options = ["--offline", "--target-dir", target]
    # Cargo itself adds the library's place to the loader's path.
    environment = {"GREYHOUND_LIB_DIR": str(setting.libdir), "LD_LIBRARY_PATH": None}
    if not is_build_script:
        setting.call([*cargo, "run", *options], folder, **environment)
        return "compiled and run"
    setting.call([*cargo, "build", *options], folder, **environment)
    setting.call([target / "debug/snippet"], folder, **environment)
    return "built with, and the program run"


# ---- CMake ---------------------------------------------------------------------------------------


def run_cmake(setting, code, note):
    """Part of a CMakeLists.txt. Programs it names but does not add are added first; every C file it names is
    setting.program; where it makes Greyhound part of the build, that is this source tree."""
    folder = setting.folder()
    added = set(re.findall(r"add_executable\(\s*([\w.-]+)", code))
    linked = set(re.findall(r"target_link_libraries\(\s*([\w.-]+)", code))
    head = ""
    if not re.search(r"^\s*project\(", code, re.MULTILINE | re.IGNORECASE):
        head = "cmake_minimum_required(VERSION 3.25)\nproject(snippet LANGUAGES C CXX)\n"
        head += "".join(f"add_executable({name} program.c)\n" for name in sorted(linked - added))
    for source in {"program.c", *re.findall(r"[\w.-]+\.c\b", code)}:
        (folder / source).write_text(setting.program)
    for subdirectory in re.findall(r"add_subdirectory\(\s*([\w./-]*greyhound)\b", code):
        (folder / subdirectory).parent.mkdir(parents=True, exist_ok=True)
        (folder / subdirectory).symlink_to(ROOT)
    (folder / "CMakeLists.txt").write_text(head + code)
    command = [setting.cmake, "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={setting.prefix}"]
    command += ["-DGREYHOUND_CUDA=OFF", f"-DFETCHCONTENT_SOURCE_DIR_GREYHOUND={ROOT}", "--no-warn-unused-cli"]
    setting.call([*command, "-Werror=dev"], folder)
    if re.search(r"FetchContent|add_subdirectory", code):
        return "configured"  # building the library once more would show nothing new
    setting.call([setting.cmake, "--build", folder / "build"], folder)
    for name in sorted(added | linked):
        setting.call([folder / "build" / name], folder, LD_LIBRARY_PATH=None)
    return "configured, built and run"


# ---- Shell ---------------------------------------------------------------------------------------

CHANGES_THE_MACHINE = re.compile(
    r"\b(sudo|apt|apt-get|dpkg|docker|curl|wget|ldconfig|git (clone|push)|(pip|cargo|cmake) (--)?install|rm -r)"
)


def sandbox(setting):
    """A folder that looks like the root of a checkout whose build/release is the build under test. What a block writes
    into a source folder, such as docs/, does reach the source tree."""
    folder = setting.folder()
    for entry in ROOT.iterdir():
        if entry.name not in ("build", ".git"):
            (folder / entry.name).symlink_to(entry)
    # One by one, so that a block that configures build/release does so here and not in the real one.
    for pattern in ("libgreyhound.so*", "tests/library/*_test", "bench/greyhound_bench"):
        for file in setting.build.glob(pattern):
            link = folder / "build/release" / file.relative_to(setting.build)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    (folder / "program.c").write_text(setting.program)
    return folder


def run_sh(setting, code, note):
    """Run by sh, stopping at the first command that fails, in a sandbox() with program.c in it. /opt/greyhound stands
    for the prefix where the library is installed."""
    change = CHANGES_THE_MACHINE.search(code)
    if change:
        raise Failed(f"`{change[0]}` changes the machine: the block needs `<!-- snippet: not run: REASON -->`")
    if "pkg-config" in code and not shutil.which("pkg-config"):
        raise Skipped("no pkg-config")
    folder = sandbox(setting)
    for program in re.findall(r"\bbuild/release/(?:tests|bench)/[\w/]+", code):
        if not (folder / program).exists():
            raise Skipped(f"this build has no {program.removeprefix('build/release/')}")
    code = code.replace("/opt/greyhound/lib/", f"{setting.libdir}/").replace("/opt/greyhound", str(setting.prefix))
    setting.call(["sh", "-e", "-u", "-c", code], folder)
    return "run"


RUNNERS = {"c": run_c, "cpp": run_cpp, "python": run_python, "rust": run_rust, "cmake": run_cmake, "sh": run_sh}
NOTES = {"c": {"file", "example"}, "cpp": {"file", "example"}, "rust": {"build.rs"}}
