"""Reads the C interface out of the header and out of the bindings, in one form.

Types are written as in C with typedefs resolved: "int64_t", "const int64_t *", "float *". Each parser
refuses text that it does not understand, so that nothing new can be overlooked. Standard library only.
"""

import ctypes
import re
from dataclasses import dataclass, field


class NotUnderstood(Exception):
    """The text holds something that this file must be taught first."""


@dataclass
class Declarations:
    functions: dict = field(default_factory=dict)  # name -> (return type, [(parameter's name, type)])
    constants: dict = field(default_factory=dict)  # name -> integer
    structs: dict = field(default_factory=dict)  # name -> [(field's name, type)]
    initialisers: dict = field(default_factory=dict)  # macro's name -> {field: value}, where the value is not 0

    @property
    def version(self):
        return tuple(self.constants[f"GH_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH"))


def differences(ours, theirs, compatible=lambda a, b: a == b):
    """What `theirs`, a binding, has different from `ours`, the header: one sentence each.

    Parameters are compared by name where the binding names them, and by type with `compatible`.
    """
    for name in sorted(ours.functions.keys() | theirs.functions.keys()):
        if name not in theirs.functions:
            yield f"{name}() is missing"
        elif name not in ours.functions:
            yield f"{name}() is not in the header"
        else:
            yield from _function_differences(name, ours.functions[name], theirs.functions[name], compatible)
    for name in sorted(ours.structs.keys() | theirs.structs.keys()):
        yield from _struct_differences(name, ours.structs.get(name, []), theirs.structs.get(name, []), compatible)
    for name in sorted(ours.initialisers.keys() | theirs.initialisers.keys()):
        if ours.initialisers.get(name) != theirs.initialisers.get(name):
            yield f"{name} is {theirs.initialisers.get(name)}, in the header {ours.initialisers.get(name)}"
    for name in sorted(ours.constants.keys() | theirs.constants.keys()):
        if ours.constants.get(name) != theirs.constants.get(name):
            yield f"{name} is {theirs.constants.get(name)}, in the header {ours.constants.get(name)}"


def _struct_differences(name, ours, theirs, compatible):
    our_names, their_names = [field for field, _ in ours], [field for field, _ in theirs]
    if our_names != their_names:
        yield f"{name} has the fields {their_names}, in the header {our_names}"
        return
    for (field_name, our_type), (_, their_type) in zip(ours, theirs):
        if not compatible(our_type, their_type):
            yield f"{name}'s {field_name} is a {their_type}, in the header {our_type}"


def _function_differences(name, ours, theirs, compatible):
    (our_result, our_parameters), (their_result, their_parameters) = ours, theirs
    if not compatible(our_result, their_result):
        yield f"{name}() returns {their_result}, in the header {our_result}"
    if len(our_parameters) != len(their_parameters):
        yield f"{name}() has {len(their_parameters)} parameters, in the header {len(our_parameters)}"
        return
    for (our_name, our_type), (their_name, their_type) in zip(our_parameters, their_parameters):
        if not compatible(our_type, their_type):
            yield f"{name}()'s {our_name} is a {their_type}, in the header {our_type}"
        if their_name is not None and their_name != our_name:
            yield f"{name}()'s {our_name} is called {their_name}"


# ---- The C header ------------------------------------------------------------------------------

# Macros that are no constant of the interface, or follow from those that are.
_OTHER_MACROS = {"GREYHOUND_GREYHOUND_H", "GH_API", "GH_VERSION"}


def parse_header(text):
    found = Declarations()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = text.replace("\\\n", " ")

    initialisers = {}
    for name, value in re.findall(r"^#define +(\w+)(.*)$", text, flags=re.MULTILINE):
        number = re.fullmatch(r" *\(*(?:\(\w+\))*(-?\d+)\)*", value)
        values = re.fullmatch(r" *\{([^{}]*)\} *", value)
        if number:
            found.constants[name] = int(number[1])
        elif values and name.endswith("_INIT"):
            initialisers[name] = [item.strip() for item in values[1].split(",")]
        elif name not in _OTHER_MACROS:
            raise NotUnderstood(f"#define {name}{value}")
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)

    def enumerators(match):
        for item in filter(None, (item.strip() for item in match[1].split(","))):
            name, _, value = item.partition("=")
            found.constants[name.strip()] = int(value)
        return ""

    text = re.sub(r"\benum *\{([^}]*)\};", enumerators, text)

    aliases = {}

    def alias(match):
        aliases[match[2]] = _c_type(match[1], aliases)
        return ""

    text = re.sub(r"\btypedef\s+([^;{}]*?)(\w+)\s*;", alias, text)

    def structure(match):
        fields = [item for item in match[2].split(";") if item.strip()]
        found.structs[match[1]] = [_c_parameter(item, aliases) for item in fields]
        return ""

    text = re.sub(r"\btypedef struct (\w+) \{([^{}]*)\} \1;", structure, text)
    for name, values in initialisers.items():
        found.initialisers[name] = _initialised(name, values, found)

    def prototype(match):
        result, name, parameters = match.groups()
        parameters = [] if parameters.strip() == "void" else parameters.split(",")
        found.functions[name] = (_c_type(result, aliases), [_c_parameter(p, aliases) for p in parameters])
        return ""

    text = re.sub(r"\bGH_API\s+([\w\s*]*?)(\w+)\s*\(([^()]*)\)\s*;", prototype, text)

    rest = re.sub(r'extern "C" \{|\}', "", text).strip()
    if rest:
        raise NotUnderstood(rest)
    return found


def _initialised(name, values, found):
    """What an initialiser sets each field to, without those that become 0."""
    struct = name.removesuffix("_INIT").lower()
    if len(values) != len(found.structs.get(struct, [])):
        raise NotUnderstood(f"{name}: {len(values)} values")

    def number(value):
        if value in ("NULL", f"sizeof({struct})"):
            return 0 if value == "NULL" else "its size"
        return found.constants[value] if value in found.constants else float(value.removesuffix("f"))

    numbers = {field: number(value) for (field, _), value in zip(found.structs[struct], values)}
    return {field: value for field, value in numbers.items() if value != 0}


def _c_parameter(text, aliases):
    match = re.fullmatch(r"\s*(.*?)(\w+)\s*", text, flags=re.DOTALL)
    return match[2], _c_type(match[1], aliases)


def _c_type(text, aliases):
    words = re.findall(r"\w+|\*", text)
    return " ".join(aliases.get(word, word) for word in words if word != "struct")


# ---- Rust: the source of greyhound-sys ----------------------------------------------------------

_RUST_TYPES = {
    "i32": "int32_t", "i64": "int64_t", "u32": "uint32_t", "u64": "uint64_t", "f32": "float", "f64": "double",
    "usize": "size_t",
    "c_char": "char", "c_void": "void",
}  # fmt: skip


def parse_rust(text):
    found = Declarations()
    aliases = dict(_RUST_TYPES)
    text = re.sub(r"//.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^#!?\[.*\]$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^use [^;]*;", "", text, flags=re.MULTILINE)

    def structure(match):
        name, body = match.groups()
        aliases[name] = name
        fields = [item.strip() for item in body.split(",") if item.strip()]
        if not re.fullmatch(r"_\w+: \[u8; 0\]", ", ".join(fields)):  # known by its pointer only
            found.structs[name] = [_rust_field(item, aliases) for item in fields]
        return ""

    def alias(match):
        aliases[match[1]] = _rust_type(match[2], aliases)
        return ""

    initialisers = {}

    def constant(match):
        name, type_, value = match.groups()
        number = re.fullmatch(r"(-?\d+)(?:isize as gh_stream)?", value)
        fields = re.fullmatch(rf"{type_} \{{([^{{}}]*)\}}", value)
        if number:
            found.constants[name] = int(number[1])
        elif fields and name.endswith("_INIT"):
            initialisers[name] = fields[1]
        elif name not in _OTHER_MACROS:
            raise NotUnderstood(match[0])
        return ""

    text = re.sub(r"pub type (\w+) = (\w+);", alias, text)
    text = re.sub(r"pub struct (\w+) \{([^}]*)\}", structure, text)
    text = re.sub(r"pub type (\w+) = ([^;]*);", alias, text)
    text = re.sub(r"pub const (\w+): (\w+) = ([^;]*);", constant, text)
    for name, fields in initialisers.items():
        found.initialisers[name] = _rust_initialised(fields, found)

    def function(match):
        name, parameters, result = match.groups()
        parameters = [p.strip().split(": ", 1) for p in parameters.split(",") if p.strip()]
        found.functions[name] = (
            _rust_type(result or "c_void", aliases),
            [(name, _rust_type(type_, aliases)) for name, type_ in parameters],
        )
        return ""

    text = re.sub(r"pub fn (\w+)\(([^()]*)\)(?: -> ([^;]*))?;", function, text)

    rest = re.sub(r'extern "C" \{\s*\}', "", text).strip()
    if rest:
        raise NotUnderstood(rest)
    return found


def _rust_initialised(text, found):
    """As _initialised()."""
    def number(value):
        if value in ("null()", "null_mut()"):
            return 0
        if re.fullmatch(r"size_of::<\w+>\(\)", value):
            return "its size"
        if value in found.constants:
            return found.constants[value]
        if not re.fullmatch(r"-?\d+(\.\d+)?", value):
            raise NotUnderstood(value)
        return float(value)

    items = [item.strip().split(": ", 1) for item in text.split(",") if item.strip()]
    return {name: number(value) for name, value in items if number(value) != 0}


def _rust_field(text, aliases):
    match = re.fullmatch(r"pub (\w+): (.*)", text)
    if not match:
        raise NotUnderstood(text)
    return match[1], _rust_type(match[2], aliases)


def _rust_type(text, aliases):
    text = text.strip()
    if text.startswith("*const "):
        return f"const {_rust_type(text[len('*const '):], aliases)} *"
    if text.startswith("*mut "):
        return f"{_rust_type(text[len('*mut '):], aliases)} *"
    if text not in aliases:
        raise NotUnderstood(f"the type {text}")
    return aliases[text]


# ---- Python: the package's _abi.py -------------------------------------------------------------

_CTYPES = {
    ctypes.c_int32: "int32_t", ctypes.c_uint32: "uint32_t", ctypes.c_int64: "int64_t", ctypes.c_float: "float",
    ctypes.c_size_t: "size_t", ctypes.c_char_p: "const char *", ctypes.c_void_p: "void *", None: "void",
}  # fmt: skip


def parse_python(text):
    found = Declarations()
    module = {"__name__": "_abi"}
    exec(compile(text, "_abi.py", "exec"), module)
    for name, value in module.items():
        if re.fullmatch(r"GH_[A-Z0-9_]+_INIT", name):
            struct = module["STRUCTURES"][name.removesuffix("_INIT").lower()]
            size = "its size" if value.get("size") == ctypes.sizeof(struct) else value.get("size")
            found.initialisers[name] = {**value, "size": size}
        elif re.fullmatch(r"GH_[A-Z0-9_]+", name):
            found.constants[name] = value
    # ctypes gives a pointer's value without its sign.
    found.constants["GH_STREAM_HOST"] = ctypes.c_ssize_t(found.constants["GH_STREAM_HOST"]).value
    for name, (result, parameters) in module["FUNCTIONS"].items():
        found.functions[name] = (_ctypes_type(result), [(p, _ctypes_type(type_)) for p, type_ in parameters.items()])
    for name, struct in module["STRUCTURES"].items():
        found.structs[name] = [(field, _ctypes_type(type_)) for field, type_ in struct._fields_]
    return found


def _ctypes_type(type_):
    if type_ not in _CTYPES:
        raise NotUnderstood(f"the type {type_}")
    return _CTYPES[type_]


def python_compatible(header_type, python_type):
    """Are they passed alike? A c_void_p stands for a pointer to anything but text."""
    if python_type == "void *":
        return header_type.endswith("*") and header_type != "const char *"
    return python_type == header_type
