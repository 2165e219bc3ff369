"""Holds the bindings to the header: the same functions, parameters, constants and version.

The comparison itself is tested too: every drifted copy below must be noticed.
"""

import re
import unittest
from pathlib import Path

import declarations

ROOT = Path(__file__).resolve().parents[2]
HEADER = (ROOT / "include/greyhound/greyhound.h").read_text()
RUST = (ROOT / "bindings/rust/greyhound-sys/src/lib.rs").read_text()
PYTHON = (ROOT / "bindings/python/greyhound/_abi.py").read_text()


def rust_differences(header, rust):
    return list(declarations.differences(declarations.parse_header(header), declarations.parse_rust(rust)))


def python_differences(header, python):
    ours, theirs = declarations.parse_header(header), declarations.parse_python(python)
    # The package works with every patch of its minor version, so it names none.
    del ours.constants["GH_VERSION_PATCH"]
    return list(declarations.differences(ours, theirs, declarations.python_compatible))


class Agreement(unittest.TestCase):
    def test_rust_declares_what_the_header_does(self):
        self.assertEqual(rust_differences(HEADER, RUST), [])

    def test_python_declares_what_the_header_does(self):
        self.assertEqual(python_differences(HEADER, PYTHON), [])

    def test_packages_have_the_version_of_the_header(self):
        version = ".".join(map(str, declarations.parse_header(HEADER).version))
        for path, pattern in (
            ("bindings/python/greyhound/__init__.py", r'^__version__ = "(.*)"$'),
            ("bindings/jax/greyhound_jax/__init__.py", r'^__version__ = "(.*)"$'),
            # Its own version, and the one that it wants of greyhound-sys.
            ("bindings/rust/greyhound/Cargo.toml", r'(?<!-)\bversion = "(.*?)"'),
            ("bindings/rust/greyhound-sys/Cargo.toml", r'(?<!-)\bversion = "(.*?)"'),
        ):
            with self.subTest(path=path):
                found = re.findall(pattern, (ROOT / path).read_text(), flags=re.MULTILINE)
                self.assertEqual(set(found), {version})

    def test_the_header_is_read_in_full(self):
        # Counted in another way than the parser's own, so that it cannot lose a declaration unseen.
        header = declarations.parse_header(HEADER)
        code = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
        self.assertEqual(len(header.functions), len(re.findall(r"\bgh_\w+\(", code)))
        self.assertEqual(
            set(header.constants | header.initialisers),
            set(re.findall(r"\bGH_[A-Z0-9_]+\b", code)) - {"GH_API", "GH_VERSION"})
        self.assertEqual(len(header.structs), len(re.findall(r"\btypedef struct \w+ \{", code)))


# What a careless change would do to one of the files: (text, replacement).
HEADER_DRIFTS = [
    ("int64_t batch, int64_t vocab", "int64_t batch, int32_t vocab"),
    ("int64_t batch, int64_t vocab", "int64_t vocab, int64_t batch"),
    ("float z_loss_multiplier, int64_t ignore_index", "int64_t ignore_index, float z_loss_multiplier"),
    ("float *n_valid,\n", "float *n_valid, float *accuracy,\n"),
    ("uint32_t gh_version(void)", "int32_t gh_version(void)"),
    ("GH_API uint32_t gh_version(void);", "GH_API uint32_t gh_version(void); GH_API int32_t gh_new(void);"),
    ("GH_API uint32_t gh_version(void);", ""),
    ("typedef int32_t gh_dtype", "typedef int64_t gh_dtype"),
    ("GH_ERROR_CUDA = 12", "GH_ERROR_CUDA = 13"),
    ("GH_ERROR_CUDA = 12", "GH_ERROR_CUDA = 12, GH_ERROR_NEW = 13"),
    ("GH_DTYPE_F16 = 1", "GH_DTYPE_FP16 = 1"),
    ("(intptr_t)-1", "(intptr_t)-2"),
    ("GH_VERSION_MINOR 1", "GH_VERSION_MINOR 2"),
    ("    float label_smoothing; ", "    double label_smoothing; "),
    ("    int64_t logits_row_stride;\n    int64_t dlogits_row_stride;",
     "    int64_t dlogits_row_stride;\n    int64_t logits_row_stride;"),
    ("    int64_t ignore_index;  ", "    int32_t ignore_index;  "),
    ("GH_SUMS_ADD, GH_REDUCTION_SUM, 0.0f,", "GH_SUMS_ADD, GH_REDUCTION_MEAN, 0.0f,"),
    ("1.0f, -100, NULL", "1.0f, -1, NULL"),
]

# What lies behind a pointer: Rust says it, ctypes takes any address.
HEADER_POINTEE_DRIFTS = [
    ("void *logits", "float *logits"),
    ("const int64_t *labels", "int64_t *labels"),
    ("const int64_t *labels", "const int32_t *labels"),
    ("float *n_valid,\n", "double *n_valid,\n"),
]

RUST_DRIFTS = [
    ("vocab: i64", "vocab: i32"),
    ("batch: i64,\n        vocab: i64", "vocab: i64,\n        batch: i64"),
    ("labels: *const i64", "labels: *mut i64"),
    ("logits: *mut c_void", "logits: *mut f32"),
    ("n_valid: *mut f32,\n        stream", "n_valid: *mut f32,\n        accuracy: *mut f32,\n        stream"),
    ("z_sum: *mut f32,\n", ""),
    ("pub fn gh_last_error() -> *const c_char;", ""),
    ("pub fn gh_last_error() -> *const c_char;", "pub fn gh_last_error() -> *mut c_char;"),
    ("pub fn gh_last_error() -> *const c_char;", "pub fn gh_last_error();"),
    ("pub type gh_status = i32", "pub type gh_status = u32"),
    ("pub type gh_stream = *mut CUstream_st", "pub type gh_stream = *mut c_void"),
    ("GH_ERROR_CUDA: gh_status = 12", "GH_ERROR_CUDA: gh_status = 11"),
    ("pub const GH_ERROR_CUDA: gh_status = 12;", ""),
    ("GH_STREAM_HOST: gh_stream = -1", "GH_STREAM_HOST: gh_stream = 1"),
    ("GH_VERSION_PATCH: u32 = 0", "GH_VERSION_PATCH: u32 = 7"),
    ("pub softcap: f32", "pub softcap: f64"),
    ("    pub softcap: f32,\n", ""),
    ("pub row_lse: *mut f32", "pub row_log_sum_exp: *mut f32"),
    ("pub row_dloss: *const f32", "pub row_dloss: *mut f32"),
    ("    pub logits_row_stride: i64,\n    pub dlogits_row_stride: i64,\n",
     "    pub dlogits_row_stride: i64,\n    pub logits_row_stride: i64,\n"),
    ("logit_scale: 1.0", "logit_scale: 0.0"),
    ("ignore_index: -100", "ignore_index: -1"),
    ("reduction: GH_REDUCTION_SUM", "reduction: GH_REDUCTION_MEAN"),
    ("size: size_of::<gh_cross_entropy_options>()", "size: 8"),
    ("options: *const gh_cross_entropy_options", "options: *mut gh_cross_entropy_options"),
]

PYTHON_DRIFTS = [
    ('"vocab": ctypes.c_int64', '"vocab": ctypes.c_int32'),
    ('"batch": ctypes.c_int64,\n            "vocab"', '"vocab": ctypes.c_int64,\n            "batch"'),
    ('"labels": ctypes.c_void_p', '"labels": ctypes.c_int64'),
    ('"z_sum": ctypes.c_void_p', '"z_sum": ctypes.c_float'),
    ('"z_loss_multiplier": ctypes.c_float,\n', ""),
    ('"n_valid": ctypes.c_void_p,\n', '"n_valid": ctypes.c_void_p,\n"accuracy": ctypes.c_void_p,\n'),
    ('"gh_last_error": (ctypes.c_char_p, {}),\n', ""),
    ('"gh_last_error": (ctypes.c_char_p, {}),\n', '"gh_last_error": (ctypes.c_void_p, {}),\n'),
    ('"gh_last_error": (ctypes.c_char_p, {}),\n', '"gh_last_failure": (ctypes.c_char_p, {}),\n'),
    ('"gh_version": (ctypes.c_uint32', '"gh_version": (ctypes.c_int32'),
    ("gh_dtype = ctypes.c_int32", "gh_dtype = ctypes.c_int64"),
    ("GH_ERROR_CUDA = 12", "GH_ERROR_CUDA = 11"),
    ("GH_ERROR_CUDA = 12\n", ""),
    ("GH_VERSION_MINOR = 1", "GH_VERSION_MINOR = 2"),
    ("GH_STREAM_HOST = 2", "GH_STREAM_HOST = 1 + 2"),
    ('("softcap", ctypes.c_float)', '("softcap", ctypes.c_int32)'),
    ('        ("softcap", ctypes.c_float),\n', ""),
    ('("row_lse", ctypes.c_void_p)', '("row_log_sum_exp", ctypes.c_void_p)'),
    ('    "logit_scale": 1.0,\n', ""),
    ('"ignore_index": -100', '"ignore_index": -1'),
    ("ctypes.sizeof(gh_cross_entropy_options)", "8"),
]


class Drift(unittest.TestCase):
    def check_noticed(self, original, drifts, differences):
        for text, replacement in drifts:
            with self.subTest(text=text, replacement=replacement):
                self.assertIn(text, original, "the drift no longer fits the file")
                self.assertNotEqual(differences(original.replace(text, replacement, 1)), [])

    def test_a_drifted_header_is_noticed_by_rust(self):
        drifts = HEADER_DRIFTS + HEADER_POINTEE_DRIFTS + [("GH_VERSION_PATCH 0", "GH_VERSION_PATCH 1")]
        self.check_noticed(HEADER, drifts, lambda header: rust_differences(header, RUST))

    def test_a_drifted_header_is_noticed_by_python(self):
        self.check_noticed(HEADER, HEADER_DRIFTS, lambda header: python_differences(header, PYTHON))

    def test_a_drifted_rust_declaration_is_noticed(self):
        self.check_noticed(RUST, RUST_DRIFTS, lambda rust: rust_differences(HEADER, rust))

    def test_a_drifted_python_declaration_is_noticed(self):
        self.check_noticed(PYTHON, PYTHON_DRIFTS, lambda python: python_differences(HEADER, python))

    def test_what_the_parsers_do_not_know_is_refused(self):
        for text in ("struct gh_options { int32_t size; };", "#define GH_OPTIONS_INIT {1}", "int gh_hidden(void);"):
            with self.subTest(text=text), self.assertRaises(declarations.NotUnderstood):
                declarations.parse_header(HEADER.replace("/* ---- Types", f"{text}\n/* ---- Types"))
        for text in ("#[repr(C)] pub union gh_u { a: i32 }", "pub const GH_SIZE: usize = size_of();", "fn gh_f();",
                     "#[repr(C)] pub struct gh_o { a: i32 }", "pub const GH_O_INIT: gh_o = gh_o { a: f() };"):
            with self.subTest(text=text), self.assertRaises(declarations.NotUnderstood):
                declarations.parse_rust(RUST.replace("pub type gh_status", f"{text}\npub type gh_status"))


if __name__ == "__main__":
    unittest.main()
