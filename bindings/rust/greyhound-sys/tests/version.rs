//! The loaded library speaks the ABI that these declarations describe.

use greyhound_sys::{gh_version, gh_version_string, GH_VERSION};
use std::ffi::CStr;

#[test]
fn the_library_has_this_abi() {
    let version = unsafe { gh_version() };
    // Before 1.0 each minor version is an ABI of its own; a later patch only adds.
    assert_eq!(version >> 8, GH_VERSION >> 8, "{:#x} against {:#x}", version, GH_VERSION);
    assert!(version >= GH_VERSION, "{:#x} against {:#x}", version, GH_VERSION);

    let text = unsafe { CStr::from_ptr(gh_version_string()) }.to_str().unwrap();
    assert_eq!(text, format!("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff));
}
