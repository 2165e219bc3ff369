use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_char;

use greyhound_sys as sys;

/// Why a call did nothing. A call that fails has written nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The library's status codes, except success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A required pointer is null.
    NullPointer,
    /// A size is negative, zero where it must not be, or too large, or a slice has another length
    /// than the shape says.
    InvalidSize,
    /// The library does not know the element type.
    InvalidDtype,
    /// A number is outside its domain, such as a NaN multiplier.
    InvalidValue,
    /// A pointer is not aligned to its element.
    MisalignedPointer,
    /// Memory that is written overlaps other memory of the call.
    Overlap,
    /// The stream's device cannot access a pointer.
    UnreachablePointer,
    /// On the CPU: a label is neither in `0..vocab` nor `ignore_index`.
    LabelOutOfRange,
    /// The library was built without its CUDA engine.
    NoCuda,
    /// There is no CUDA driver or no CUDA device.
    NoDevice,
    /// The CUDA device is too old for the library.
    UnsupportedDevice,
    /// A CUDA call failed; the message has CUDA's words.
    Cuda,
    /// A status that was added to the library after this crate was written.
    Other(i32),
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: String) -> Self {
        Error { kind, message }
    }

    /// The result that `status` stands for, with the message of this thread's last call.
    pub(crate) fn check(status: sys::gh_status) -> Result<(), Self> {
        match ErrorKind::of(status) {
            None => Ok(()),
            Some(kind) => {
                // SAFETY: never NULL, and valid until this thread's next failing call.
                let message = unsafe { text(sys::gh_last_error()) }.to_owned();
                Err(Error { kind, message })
            }
        }
    }

    /// What went wrong, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// One line that names the argument and its value, such as
    /// `labels[3] = 70000: not in [0, 50257) and not ignore_index (-100)`.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl ErrorKind {
    fn of(status: sys::gh_status) -> Option<Self> {
        Some(match status {
            sys::GH_SUCCESS => return None,
            sys::GH_ERROR_NULL_POINTER => ErrorKind::NullPointer,
            sys::GH_ERROR_INVALID_SIZE => ErrorKind::InvalidSize,
            sys::GH_ERROR_INVALID_DTYPE => ErrorKind::InvalidDtype,
            sys::GH_ERROR_INVALID_VALUE => ErrorKind::InvalidValue,
            sys::GH_ERROR_MISALIGNED_POINTER => ErrorKind::MisalignedPointer,
            sys::GH_ERROR_OVERLAP => ErrorKind::Overlap,
            sys::GH_ERROR_UNREACHABLE_POINTER => ErrorKind::UnreachablePointer,
            sys::GH_ERROR_LABEL_OUT_OF_RANGE => ErrorKind::LabelOutOfRange,
            sys::GH_ERROR_NO_CUDA => ErrorKind::NoCuda,
            sys::GH_ERROR_NO_DEVICE => ErrorKind::NoDevice,
            sys::GH_ERROR_UNSUPPORTED_DEVICE => ErrorKind::UnsupportedDevice,
            sys::GH_ERROR_CUDA => ErrorKind::Cuda,
            other => ErrorKind::Other(other),
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The library's text, which is ASCII.
///
/// # Safety
/// `pointer` is a NUL-terminated string that lives as long as the result is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> &'a str {
    CStr::from_ptr(pointer).to_str().unwrap_or("(text is not UTF-8)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_library_has_a_kind_of_its_own() {
        // A status is known if its text differs from that of a number that cannot be one.
        let text_of = |status| unsafe { text(sys::gh_status_string(status)) };
        let unknown = text_of(i32::MIN);
        let mut kinds = std::collections::HashSet::new();
        for status in (sys::GH_SUCCESS + 1..1000).filter(|&s| text_of(s) != unknown) {
            let kind = ErrorKind::of(status).expect("not a success");
            assert!(!matches!(kind, ErrorKind::Other(_)), "{} = {:?}", status, text_of(status));
            assert!(kinds.insert(kind), "{:?} stands for two statuses", kind);
        }
        assert!(!kinds.is_empty());
        assert_eq!(ErrorKind::of(sys::GH_SUCCESS), None);
        assert_eq!(ErrorKind::of(12345), Some(ErrorKind::Other(12345)));
    }
}
