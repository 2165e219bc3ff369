//! Finds libgreyhound.so and tells Cargo how to link it. The places, in order:
//!
//! 1. the directory in `GREYHOUND_LIB_DIR`; nothing else is tried if it is set;
//! 2. when this crate lies in a source checkout of Greyhound, its CMake build trees;
//! 3. an installed library that `pkg-config` knows.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

/// Build trees under the checkout's `build/`, named after the CMake presets; the newest library wins.
/// The sanitizer presets are left out: a Rust program cannot load those.
const BUILD_TREES: [&str; 4] = ["release", "ci", "hopper", "cpu"];

/// Before 1.0 each minor version is an ABI of its own, and the soname says which.
const ABI: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

const LINKER_NAME: &str = "libgreyhound.so";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=GREYHOUND_LIB_DIR");

    let mut tried = Vec::new();
    let directory = find_library(&mut tried).unwrap_or_else(|| {
        eprintln!("error: {} of ABI {} was not found. Tried:", LINKER_NAME, ABI);
        for place in &tried {
            eprintln!("  - {}", place);
        }
        eprintln!(
            "Build or install Greyhound, or set GREYHOUND_LIB_DIR to the library's directory."
        );
        process::exit(1);
    });

    // Only the place that was found: Cargo takes a watched file that does not exist for changed.
    println!("cargo:rerun-if-changed={}", directory.join(soname()).display());
    println!("cargo:rustc-link-lib=dylib=greyhound");
    println!("cargo:rustc-link-search=native={}", link_directory(&directory).display());
    // For the build scripts of dependents, as DEP_GREYHOUND_LIB_DIR.
    println!("cargo:lib_dir={}", directory.display());
}

/// The library's directory; on failure, `tried` has one line for each place and what was wrong.
fn find_library(tried: &mut Vec<String>) -> Option<PathBuf> {
    if let Some(directory) = env::var_os("GREYHOUND_LIB_DIR") {
        return library_in(Path::new(&directory), "GREYHOUND_LIB_DIR: ", tried);
    }

    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    if checkout.join("include/greyhound/greyhound.h").exists() {
        let checkout = checkout.canonicalize().unwrap_or(checkout);
        let trees = BUILD_TREES.map(|tree| checkout.join("build").join(tree));
        let modified = |directory: &PathBuf| {
            fs::metadata(directory.join(LINKER_NAME)).and_then(|file| file.modified()).ok()
        };
        let found = trees.iter().filter_map(|tree| library_in(tree, "build tree: ", tried));
        if let Some(newest) = found.max_by_key(modified) {
            return Some(newest);
        }
    } else {
        tried.push(format!("build trees: {} is not a checkout of Greyhound", checkout.display()));
    }

    let directory = ask_pkg_config(tried)?;
    library_in(&directory, "pkg-config: ", tried)
}

/// `directory` as an absolute path, if it holds a library of this crate's ABI.
fn library_in(directory: &Path, origin: &str, tried: &mut Vec<String>) -> Option<PathBuf> {
    for name in [LINKER_NAME.to_string(), soname()] {
        let file = directory.join(name);
        if !file.exists() {
            tried.push(format!("{}{} does not exist", origin, file.display()));
            return None;
        }
    }
    Some(directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf()))
}

fn soname() -> String {
    format!("{}.{}", LINKER_NAME, ABI)
}

/// The directory that pkg-config names for an installed library of this crate's version.
fn ask_pkg_config(tried: &mut Vec<String>) -> Option<PathBuf> {
    for variable in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR"]
    {
        println!("cargo:rerun-if-env-changed={}", variable);
    }
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let run = |arguments: &[&OsStr]| match Command::new(&program).args(arguments).output() {
        Err(error) => Err(format!("could not run {}: {}", Path::new(&program).display(), error)),
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ")),
    };
    let wanted = concat!("greyhound >= ", env!("CARGO_PKG_VERSION"));
    let answer = run(&[
        "--print-errors".as_ref(),
        "--short-errors".as_ref(),
        "--exists".as_ref(),
        wanted.as_ref(),
    ])
    .and_then(|_| run(&["--variable=libdir".as_ref(), "greyhound".as_ref()]));
    match answer {
        Ok(directory) => Some(PathBuf::from(directory)),
        Err(reason) => {
            tried.push(format!("pkg-config: {}", reason));
            None
        }
    }
}

/// A directory below Cargo's target directory with links to the library in `directory`.
///
/// Cargo puts native search paths on the loader's path of what it runs itself (`cargo test`
/// and `cargo run`, here and in every dependent), but only those below its own target
/// directory. Going through links in OUT_DIR makes ours one of them. An rpath would not do:
/// `rustc-link-arg` does not reach dependents.
fn link_directory(directory: &Path) -> PathBuf {
    let links = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    for name in [LINKER_NAME.to_string(), soname()] {
        let link = links.join(&name);
        let _ = fs::remove_file(&link);
        if let Err(error) = symlink(directory.join(&name), &link) {
            eprintln!("error: cannot create {}: {}", link.display(), error);
            process::exit(1);
        }
    }
    links
}
