//! Raw declarations of libgreyhound, name for name as in `greyhound/greyhound.h`, which documents
//! them. The crate `greyhound` wraps them safely.

#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_void};

pub const GH_VERSION_MAJOR: u32 = 0;
pub const GH_VERSION_MINOR: u32 = 1;
pub const GH_VERSION_PATCH: u32 = 0;
pub const GH_VERSION: u32 = GH_VERSION_MAJOR << 16 | GH_VERSION_MINOR << 8 | GH_VERSION_PATCH;

pub type gh_status = i32;

pub const GH_SUCCESS: gh_status = 0;
pub const GH_ERROR_NULL_POINTER: gh_status = 1;
pub const GH_ERROR_INVALID_SIZE: gh_status = 2;
pub const GH_ERROR_INVALID_DTYPE: gh_status = 3;
pub const GH_ERROR_INVALID_VALUE: gh_status = 4;
pub const GH_ERROR_MISALIGNED_POINTER: gh_status = 5;
pub const GH_ERROR_OVERLAP: gh_status = 6;
pub const GH_ERROR_UNREACHABLE_POINTER: gh_status = 7;
pub const GH_ERROR_LABEL_OUT_OF_RANGE: gh_status = 8;
pub const GH_ERROR_NO_CUDA: gh_status = 9;
pub const GH_ERROR_NO_DEVICE: gh_status = 10;
pub const GH_ERROR_UNSUPPORTED_DEVICE: gh_status = 11;
pub const GH_ERROR_CUDA: gh_status = 12;

pub type gh_dtype = i32;

pub const GH_DTYPE_F32: gh_dtype = 0;
pub const GH_DTYPE_F16: gh_dtype = 1;
pub const GH_DTYPE_BF16: gh_dtype = 2;

/// CUDA's opaque stream object; `cudaStream_t` and `CUstream` point to one.
#[repr(C)]
pub struct CUstream_st {
    _opaque: [u8; 0],
}

pub type gh_stream = *mut CUstream_st;

pub const GH_STREAM_HOST: gh_stream = -1isize as gh_stream;

extern "C" {
    pub fn gh_version() -> u32;
    pub fn gh_version_string() -> *const c_char;
    pub fn gh_status_string(status: gh_status) -> *const c_char;
    pub fn gh_last_error() -> *const c_char;

    pub fn gh_cross_entropy_fwd_bwd(
        logits: *mut c_void,
        dtype: gh_dtype,
        labels: *const i64,
        batch: i64,
        vocab: i64,
        z_loss_multiplier: f32,
        ignore_index: i64,
        ce_sum: *mut f32,
        z_sum: *mut f32,
        n_valid: *mut f32,
        stream: gh_stream,
    ) -> gh_status;
}
