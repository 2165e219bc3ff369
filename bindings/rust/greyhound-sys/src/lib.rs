//! Raw declarations of libgreyhound, name for name as in `greyhound/greyhound.h`, which documents
//! them. The crate `greyhound` wraps them safely.

#![allow(non_camel_case_types)]

use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};

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

pub type gh_label_dtype = i32;

pub const GH_LABEL_I64: gh_label_dtype = 0;
pub const GH_LABEL_I32: gh_label_dtype = 1;

pub type gh_reduction = i32;

pub const GH_REDUCTION_SUM: gh_reduction = 0;
pub const GH_REDUCTION_MEAN: gh_reduction = 1;
pub const GH_REDUCTION_NONE: gh_reduction = 2;

pub type gh_sums = i32;

pub const GH_SUMS_ADD: gh_sums = 0;
pub const GH_SUMS_OVERWRITE: gh_sums = 1;

pub const GH_ROW_STATISTICS_BYTES: usize = 32;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gh_cross_entropy_options {
    pub size: usize,
    pub logits_row_stride: i64,
    pub dlogits_row_stride: i64,
    pub label_dtype: gh_label_dtype,
    pub sums: gh_sums,
    pub reduction: gh_reduction,
    pub label_smoothing: f32,
    pub z_loss_multiplier: f32,
    pub logit_scale: f32,
    pub softcap: f32,
    pub dloss: f32,
    pub ignore_index: i64,
    pub class_weights: *const f32,
    pub dloss_ptr: *const f32,
    pub row_dloss: *const f32,
    pub row_dentropy: *const f32,
    pub row_loss: *mut f32,
    pub row_lse: *mut f32,
    pub row_target_log_prob: *mut f32,
    pub row_entropy: *mut f32,
    pub row_argmax: *mut i64,
    pub row_statistics: *mut c_void,
    pub loss: *mut f32,
    pub z_loss: *mut f32,
    pub n_valid: *mut f32,
    pub n_correct: *mut f32,
    pub n_out_of_range: *mut f32,
    pub workspace: *mut c_void,
    pub workspace_size: usize,
}

pub const GH_CROSS_ENTROPY_OPTIONS_INIT: gh_cross_entropy_options = gh_cross_entropy_options {
    size: size_of::<gh_cross_entropy_options>(),
    logits_row_stride: 0,
    dlogits_row_stride: 0,
    label_dtype: GH_LABEL_I64,
    sums: GH_SUMS_ADD,
    reduction: GH_REDUCTION_SUM,
    label_smoothing: 0.0,
    z_loss_multiplier: 0.0,
    logit_scale: 1.0,
    softcap: 0.0,
    dloss: 1.0,
    ignore_index: -100,
    class_weights: null(),
    dloss_ptr: null(),
    row_dloss: null(),
    row_dentropy: null(),
    row_loss: null_mut(),
    row_lse: null_mut(),
    row_target_log_prob: null_mut(),
    row_entropy: null_mut(),
    row_argmax: null_mut(),
    row_statistics: null_mut(),
    loss: null_mut(),
    z_loss: null_mut(),
    n_valid: null_mut(),
    n_correct: null_mut(),
    n_out_of_range: null_mut(),
    workspace: null_mut(),
    workspace_size: 0,
};

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

    pub fn gh_cross_entropy(
        logits: *const c_void,
        dlogits: *mut c_void,
        dtype: gh_dtype,
        labels: *const c_void,
        batch: i64,
        vocab: i64,
        options: *const gh_cross_entropy_options,
        stream: gh_stream,
    ) -> gh_status;

    pub fn gh_cross_entropy_backward(
        logits: *const c_void,
        dlogits: *mut c_void,
        dtype: gh_dtype,
        labels: *const c_void,
        batch: i64,
        vocab: i64,
        row_statistics: *const c_void,
        row_lse: *const f32,
        options: *const gh_cross_entropy_options,
        stream: gh_stream,
    ) -> gh_status;

    pub fn gh_scale_dlogits(
        dlogits: *mut c_void,
        dtype: gh_dtype,
        batch: i64,
        vocab: i64,
        dlogits_row_stride: i64,
        dloss_ptr: *const f32,
        stream: gh_stream,
    ) -> gh_status;

    pub fn gh_cross_entropy_workspace_size(stream: gh_stream, size: *mut usize) -> gh_status;
}
