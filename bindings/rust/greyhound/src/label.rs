use greyhound_sys as sys;

mod sealed {
    pub trait Sealed {
        const DTYPE: greyhound_sys::gh_label_dtype;
    }
}

/// A type of labels: [`i32`] or [`i64`].
pub trait Label: Copy + sealed::Sealed {}

pub(crate) const fn label_dtype_of<L: Label>() -> sys::gh_label_dtype {
    L::DTYPE
}

impl sealed::Sealed for i32 {
    const DTYPE: sys::gh_label_dtype = sys::GH_LABEL_I32;
}
impl Label for i32 {}

impl sealed::Sealed for i64 {
    const DTYPE: sys::gh_label_dtype = sys::GH_LABEL_I64;
}
impl Label for i64 {}
