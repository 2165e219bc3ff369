"""test_snippets.py notices a code block that does not work, and one that nobody decided about.

Takes the arguments of test_snippets.py.
"""

import shutil
import sys
import unittest

import languages
import test_snippets
from markdown import PAGES, PageError, blocks, blocks_of_file

SETTING = None


def check(text, setting=None, **more):
    """The (outcome, detail) of each block of a page."""
    page = blocks("page.md", text)
    return [(outcome, detail) for _, outcome, detail in test_snippets.check_page(page, setting or SETTING, **more)]


def fenced(language, code, note=None):
    comment = f"<!-- snippet: {note} -->\n" if note is not None else ""
    return f"Some prose.\n\n{comment}```{language}\n{code}\n```\n\n"


CALL = (
    "gh_cross_entropy_fwd_bwd(logits, dtype, labels, batch, vocab, 0.0f, -100, ce_sum, z_sum, n_valid, GH_STREAM_HOST)"
)
PYTHON_LIBRARY = "import ctypes\nlibrary = ctypes.CDLL('libgreyhound.so.0.1')\n"

# language, note, a block that works, and blocks that differ from it by one mistake
EXAMPLES = [
    ("c", None, f"if ({CALL} != GH_SUCCESS) puts(gh_last_error());",
     [f"if ({CALL.replace('z_sum, ', '')} != GH_SUCCESS) puts(gh_last_error());", "int unused = 1;"]),
    ("c", None, "#include <greyhound/greyhound.h>\nint main(void) {\n    return gh_version() != GH_VERSION;\n}",
     ["#include <greyhound/greyhound.h>\nint main(void) {\n    return gh_version() == GH_VERSION;\n}",
      "int main(void) {\n    return gh_version() != GH_VERSION;\n}"]),
    ("c", "file", "#include <stdint.h>\nint64_t twice(int64_t x) { return 2 * x; }",
     ["int64_t twice(int64_t x) { return 2 * x; }"]),
    ("cpp", None, f"auto status = {CALL};\nif (status) std::puts(gh_last_error());",
     [f"auto status = {CALL};\nif (status) absent();"]),
    ("python", None, PYTHON_LIBRARY + "assert library.gh_version() == 0x000100",
     [PYTHON_LIBRARY + "assert library.gh_version() == 0", PYTHON_LIBRARY + "library.gh_absent",
      "import absent_module", "x = ="]),
    ("cmake", None, "find_package(greyhound 0.1 REQUIRED)\ntarget_link_libraries(app PRIVATE greyhound::greyhound)",
     ["find_package(greyhound 9.9 REQUIRED)\ntarget_link_libraries(app PRIVATE greyhound::greyhound)",
      "find_package(greyhound 0.1 REQUIRED)\ntarget_link_libraries(app PRIVATE greyhound::absent)",
      "find_package(greyhound 0.1 REQUIRED)\ntarget_link_libraries(app PRIVATE m)"]),
    ("sh", None, "test -e CMakeLists.txt\ntest -e build/release/libgreyhound.so",
     ["test -e absent\ntest -e CMakeLists.txt", "absent_command", "cat $ABSENT_VARIABLE"]),
]
RUST_EXAMPLES = [
    ("rust", None, "let status = unsafe { greyhound_sys::gh_version() };\nassert_eq!(status, 0x100);",
     ["let status = unsafe { greyhound_sys::gh_version() };\nassert_eq!(status, 0);",
      "let status = unsafe { greyhound_sys::gh_absent() };\nassert_eq!(status, 0x100);",
      "let unused = 1;"]),
    ("rust", "build.rs", 'println!("cargo:rustc-link-arg=-Wl,-rpath,{}", std::env::var("DEP_GREYHOUND_LIB_DIR")?);',
     ['println!("cargo:rerun-if-changed={}", std::env::var("DEP_GREYHOUND_LIB_DIR")?);']),
]


class BrokenSnippets(unittest.TestCase):
    def check_examples(self, examples):
        for language, note, right, wrong in examples:
            with self.subTest(language=language, code=right):
                (result,) = check(fenced(language, right, note))
                self.assertEqual(result[0], "ran", result[1])
            for code in wrong:
                with self.subTest(language=language, code=code):
                    (result,) = check(fenced(language, code, note))
                    self.assertEqual(result[0], "FAILED", result[1])

    def test_that_do_not_work(self):
        self.check_examples(EXAMPLES)

    def test_that_do_not_work_in_rust(self):
        if not SETTING.cargo:
            self.skipTest("no cargo")
        self.check_examples(RUST_EXAMPLES)

    def test_that_do_not_end(self):
        seconds, languages.SECONDS = languages.SECONDS, 1
        try:
            ((outcome, detail),) = check(fenced("sh", "sleep 100 & wait"))
        finally:
            languages.SECONDS = seconds
        self.assertEqual((outcome, detail.splitlines()[0]), ("FAILED", "sh was not done after 1 s"))

    def test_that_would_change_the_machine(self):
        for command in ("sudo true", "python3 -m pip install x", "cmake --install build", "apt-get update"):
            with self.subTest(command=command):
                ((outcome, _),) = check(fenced("sh", f"echo & {command}"))
                self.assertEqual(outcome, "FAILED")


def record(setting, code, note):
    """A runner that runs nothing."""
    return f"[{code}]"


class Decisions(unittest.TestCase):
    def check(self, text):
        return [outcome if outcome == "FAILED" else detail.rpartition(" (")[0] or detail
                for outcome, detail in check(text, runners={"sh": record, "c": record})]

    def test_every_block_needs_one(self):
        for language, note, outcome in [
            ("sh", None, "[x\n]"),
            ("text", None, "not code"),
            ("{toctree}", None, "a directive of the site; documentation.site runs it"),
            ("sh", "not run: too slow", "too slow"),
            ("diff", "not run: a patch", "a patch"),
            ("", "not run: a patch", "a patch"),
            ("", None, "FAILED"),
            ("diff", None, "FAILED"),
            ("sh", "not run", "FAILED"),
            ("sh", "not run:", "FAILED"),
            ("sh", "file", "FAILED"),
            ("c", "continues", "FAILED"),
        ]:
            with self.subTest(language=language, note=note):
                self.assertEqual(self.check(fenced(language, "x", note)), [outcome])

    def test_a_block_continues_the_last_of_its_language(self):
        page = fenced("sh", "a") + fenced("c", "b") + fenced("sh", "c", "continues") + fenced("sh", "d", "continues")
        self.assertEqual(self.check(page), ["with page.md:16", "[b\n]", "with page.md:23", "[a\nc\nd\n]"])

    def test_a_block_runs_by_itself_if_what_continues_it_fails(self):
        def fail_long(setting, code, note):
            if code.count("\n") > 1:
                raise languages.Failed("too long")
            return "short"

        page = fenced("sh", "a") + fenced("sh", "b", "continues")
        self.assertEqual([outcome for outcome, _ in check(page, runners={"sh": fail_long})], ["ran", "FAILED"])

    def test_an_example_takes_its_place_in_the_program_above(self):
        program = "int main(void) {\n    /* The example. */\n    a();\n    /* End of the example. */\n}"
        page = fenced("c", program) + fenced("c", "b();", "example") + fenced("c", "c();", "example")
        expected = [program.replace("    a();", replacement) for replacement in
                    ("    a();", '#line 1 "snippet"\nb();', '#line 1 "snippet"\nc();')]
        self.assertEqual(self.check(page), [f"[{code}\n]" for code in expected])
        self.assertEqual(self.check(fenced("c", "int main(void) {\n}") + fenced("c", "b();", "example"))[1], "FAILED")

    def test_a_reason_may_take_two_lines(self):
        self.assertEqual(self.check(fenced("sh", "x", "not run:\n  too slow")), ["too slow"])

    def test_blocks_of_a_list_and_other_fences(self):
        self.assertEqual(self.check("- item\n\n  ```sh\n  if x\n    y\n  ```\n"), ["[if x\n  y\n]"])
        self.assertEqual(self.check("~~~~ sh\n```\n~~~\n~~~~\n"), ["[```\n~~~\n]"])
        self.assertEqual(self.check("```sh title\nx\n```\n"), ["[x\n]"])
        self.assertEqual(self.check("Not a block: ```sh x``` and `y`.\n"), [])

    def test_pages_that_cannot_be_read(self):
        note = "<!-- snippet: continues -->\n"
        for page in ("```sh\nx\n", note, note + "Words.\n```sh\nx\n```\n"):
            with self.subTest(page=page), self.assertRaises(PageError):
                self.check(page)


if __name__ == "__main__":
    SETTING = test_snippets.make_setting(test_snippets.arguments_of(sys.argv[1:]))
    SETTING.program = test_snippets.a_program(blocks_of_file(PAGES[0]))
    try:
        unittest.main(argv=sys.argv[:1], verbosity=2)
    finally:
        shutil.rmtree(SETTING.work, ignore_errors=True)
