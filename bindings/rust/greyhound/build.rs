//! Lets this package's own tests find the library, also where Cargo does not help: older versions
//! run doctests without the native search paths, and a debugger runs a test binary without Cargo.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let directory = std::env::var("DEP_GREYHOUND_LIB_DIR").expect("greyhound-sys's build sets it");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", directory);
}
