use std::ffi::c_void;
use std::ptr::null;

use greyhound_sys as sys;

use crate::element::{dtype_of, Element};
use crate::error::{Error, ErrorKind};
use crate::label::{label_dtype_of, Label};
use crate::loss::Loss;

/// What a forward pass saves of a row for a backward pass. Only the library knows what it means, and
/// only for the engine that wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct RowStatistics([u64; sys::GH_ROW_STATISTICS_BYTES / 8]);

/// What a backward pass on a stream starts from: `[batch]` of either, in the device's memory. See
/// [`Saved`](crate::Saved).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SavedPointer {
    /// What [`StreamCall::row_statistics`] received.
    Statistics(*const RowStatistics),
    /// Each row's log-sum-exp.
    Lse(*const f32),
}

/// A loss, its gradient, or both, in the memory of a CUDA device: all pointers are the device's, or
/// memory that it can access. The calls enqueue the work on a stream and return without waiting;
/// they may be captured into a CUDA graph.
///
/// This is the whole C interface without its sizes and types to keep in step. Setting a pointer is
/// safe; the calls are not, because they use it.
///
/// `stream` is a `cudaStream_t` or `CUstream`; null is the current device's default stream. With
/// `cudarc`, it is `stream.cu_stream().cast()`, and pointers are what `device_ptr` and
/// `device_ptr_mut` give, cast. `greyhound_sys::GH_STREAM_HOST` computes at once on the CPU, in host
/// memory.
///
/// ```no_run
/// use greyhound::{Bf16, Error, Loss, Reduction, StreamCall};
/// use std::ffi::c_void;
///
/// /// The mean loss to `loss`, and its gradient in place of the logits.
/// unsafe fn step(
///     (batch, vocab): (usize, usize),
///     logits: *mut Bf16,
///     labels: *const i32,
///     loss: *mut f32,
///     (workspace, size): (*mut c_void, usize),
///     stream: *mut c_void,
/// ) -> Result<(), Error> {
///     StreamCall::new(Loss::default().reduction(Reduction::Mean), batch, vocab)
///         .loss(loss)
///         .overwrite_sums()
///         .workspace(workspace, size)
///         .forward_backward(logits, logits, labels, stream)
/// }
/// ```
///
/// # Errors
/// With nothing written: those of [`HostCall`](crate::HostCall), and
/// - [`ErrorKind::NullPointer`], [`ErrorKind::MisalignedPointer`], [`ErrorKind::Overlap`] for
///   pointers that are so; the first also if [`Reduction::Mean`](crate::Reduction::Mean) has no
///   workspace;
/// - [`ErrorKind::UnreachablePointer`] if the stream's device cannot access a pointer;
/// - [`ErrorKind::NoCuda`], [`ErrorKind::NoDevice`], [`ErrorKind::UnsupportedDevice`] if there is
///   nothing to run on, and [`ErrorKind::Cuda`] for what CUDA itself reports.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct StreamCall {
    options: sys::gh_cross_entropy_options,
    batch: usize,
    vocab: usize,
    logits_row_stride: usize,
    dlogits_row_stride: usize,
}

impl StreamCall {
    /// A call for `batch` rows of `vocab` columns.
    pub fn new(loss: Loss, batch: usize, vocab: usize) -> Self {
        let options = loss.options();
        StreamCall { options, batch, vocab, logits_row_stride: 0, dlogits_row_stride: 0 }
    }

    /// Elements from one row of logits to the next, at least `vocab`, or 0 for `vocab`.
    pub fn logits_row_stride(mut self, elements: usize) -> Self {
        self.logits_row_stride = elements;
        self
    }

    /// The same for the gradient.
    pub fn dlogits_row_stride(mut self, elements: usize) -> Self {
        self.dlogits_row_stride = elements;
        self
    }

    /// `[vocab]`.
    pub fn class_weights(mut self, weights: *const f32) -> Self {
        self.options.class_weights = weights;
        self
    }

    /// One number that [`Loss::dloss`] is multiplied by, read when the stream gets there.
    pub fn dloss_ptr(mut self, gradient: *const f32) -> Self {
        self.options.dloss_ptr = gradient;
        self
    }

    /// `[batch]`, the upstream gradient of each row's loss.
    pub fn row_dloss(mut self, gradients: *const f32) -> Self {
        self.options.row_dloss = gradients;
        self
    }

    /// `[batch]`, the upstream gradient of each row's entropy.
    pub fn row_dentropy(mut self, gradients: *const f32) -> Self {
        self.options.row_dentropy = gradients;
        self
    }

    /// `[batch]`, for each row's loss.
    pub fn row_loss(mut self, out: *mut f32) -> Self {
        self.options.row_loss = out;
        self
    }

    /// `[batch]`, for each row's log-sum-exp.
    pub fn row_lse(mut self, out: *mut f32) -> Self {
        self.options.row_lse = out;
        self
    }

    /// `[batch]`, for each label's log-probability.
    pub fn row_target_log_prob(mut self, out: *mut f32) -> Self {
        self.options.row_target_log_prob = out;
        self
    }

    /// `[batch]`, for the entropy of each row's softmax, in nats.
    pub fn row_entropy(mut self, out: *mut f32) -> Self {
        self.options.row_entropy = out;
        self
    }

    /// `[batch]`, for the index of each row's first largest logit.
    pub fn row_argmax(mut self, out: *mut i64) -> Self {
        self.options.row_argmax = out;
        self
    }

    /// `[batch]`, for what [`StreamCall::backward`] needs.
    pub fn row_statistics(mut self, out: *mut RowStatistics) -> Self {
        self.options.row_statistics = out.cast();
        self
    }

    /// One number: the reduced loss is added to it.
    pub fn loss(mut self, sum: *mut f32) -> Self {
        self.options.loss = sum;
        self
    }

    /// One number: the part of the loss that is the z-loss is added to it.
    pub fn z_loss(mut self, sum: *mut f32) -> Self {
        self.options.z_loss = sum;
        self
    }

    /// One number: how many rows are not ignored is added to it.
    pub fn n_valid(mut self, sum: *mut f32) -> Self {
        self.options.n_valid = sum;
        self
    }

    /// One number: in how many of those the label has the largest logit is added to it.
    pub fn n_correct(mut self, sum: *mut f32) -> Self {
        self.options.n_correct = sum;
        self
    }

    /// One number: how many of those have a label outside `0..vocab` is added to it.
    pub fn n_out_of_range(mut self, sum: *mut f32) -> Self {
        self.options.n_out_of_range = sum;
        self
    }

    /// The five sums are overwritten, not added to.
    pub fn overwrite_sums(mut self) -> Self {
        self.options.sums = sys::GH_SUMS_OVERWRITE;
        self
    }

    /// [`workspace_size`] bytes, aligned to 8. [`Reduction::Mean`](crate::Reduction::Mean) needs
    /// them, and with them the five sums are bitwise repeatable. Calls that share a workspace must
    /// run one after the other.
    pub fn workspace(mut self, memory: *mut c_void, bytes: usize) -> Self {
        self.options.workspace = memory;
        self.options.workspace_size = bytes;
        self
    }

    /// Computes what was asked for, and no gradient.
    ///
    /// # Errors
    /// See [`StreamCall`].
    ///
    /// # Safety
    /// Until the stream has done the work,
    /// - `logits` is valid for `[batch, vocab]` elements in rows of the given stride, `labels` for
    ///   `[batch]`, and each pointer that was set for what its setter says, in memory that the
    ///   stream's device can access;
    /// - nothing else writes that memory, or reads what the call writes;
    /// - `stream` is a live stream.
    pub unsafe fn forward<T: Element, L: Label>(
        &self,
        logits: *const T,
        labels: *const L,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        self.forward_backward(logits, std::ptr::null_mut(), labels, stream)
    }

    /// Computes what was asked for, and the gradient, with the logits read once.
    ///
    /// `dlogits` may be `logits`, with the same stride: then the gradient replaces them.
    ///
    /// # Errors
    /// See [`StreamCall`].
    ///
    /// # Safety
    /// As for [`StreamCall::forward`]; `dlogits` is valid like `logits`, but for writing.
    pub unsafe fn forward_backward<T: Element, L: Label>(
        &self,
        logits: *const T,
        dlogits: *mut T,
        labels: *const L,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        let (batch, vocab, options) = self.arguments::<L>()?;
        Error::check(sys::gh_cross_entropy(
            logits.cast(),
            dlogits.cast(),
            dtype_of::<T>(),
            labels.cast(),
            batch,
            vocab,
            &options,
            stream.cast(),
        ))
    }

    /// The gradient alone, from what an earlier call saved. Outputs must not be set.
    ///
    /// # Errors
    /// See [`StreamCall`]; [`ErrorKind::InvalidValue`] also if an output is set, or
    /// [`StreamCall::row_dentropy`] with [`SavedPointer::Lse`].
    ///
    /// # Safety
    /// As for [`StreamCall::forward_backward`]; what `saved` points to is valid for `[batch]`.
    pub unsafe fn backward<T: Element, L: Label>(
        &self,
        logits: *const T,
        dlogits: *mut T,
        labels: *const L,
        saved: SavedPointer,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        let (batch, vocab, options) = self.arguments::<L>()?;
        let (row_statistics, row_lse) = match saved {
            SavedPointer::Statistics(rows) => (rows, null()),
            SavedPointer::Lse(rows) => (null(), rows),
        };
        Error::check(sys::gh_cross_entropy_backward(
            logits.cast(),
            dlogits.cast(),
            dtype_of::<T>(),
            labels.cast(),
            batch,
            vocab,
            row_statistics.cast(),
            row_lse,
            &options,
            stream.cast(),
        ))
    }

    fn arguments<L: Label>(&self) -> Result<(i64, i64, sys::gh_cross_entropy_options), Error> {
        let options = sys::gh_cross_entropy_options {
            logits_row_stride: size("logits_row_stride", self.logits_row_stride)?,
            dlogits_row_stride: size("dlogits_row_stride", self.dlogits_row_stride)?,
            label_dtype: label_dtype_of::<L>(),
            ..self.options
        };
        Ok((size("batch", self.batch)?, size("vocab", self.vocab)?, options))
    }
}

/// Multiplies a gradient by `*dloss_ptr`, in place: an upstream gradient that was not known when the
/// gradient was computed. If it is exactly 1, the gradient is neither read nor written.
///
/// The gradient, already rounded to `T`, is multiplied in `f32` and rounded once more, which
/// [`StreamCall::backward`] does not do: prefer that for [`F16`](crate::F16) with
/// [`Reduction::Mean`](crate::Reduction::Mean), where a gradient may have become 0 before a loss scale
/// reaches it.
///
/// `dlogits` is `[batch, vocab]`, with `row_stride` elements from one row to the next, or 0 for `vocab`.
///
/// # Errors
/// See [`StreamCall`].
///
/// # Safety
/// Until the stream has done the work,
/// - `dlogits` is valid for reading and writing `[batch, vocab]` elements in rows of the given stride,
///   and `dloss_ptr` for reading one number, in memory that the stream's device can access;
/// - nothing else writes that memory, or reads `dlogits`;
/// - `stream` is a live stream.
pub unsafe fn scale_dlogits<T: Element>(
    dlogits: *mut T,
    (batch, vocab): (usize, usize),
    row_stride: usize,
    dloss_ptr: *const f32,
    stream: *mut c_void,
) -> Result<(), Error> {
    Error::check(sys::gh_scale_dlogits(
        dlogits.cast(),
        dtype_of::<T>(),
        size("batch", batch)?,
        size("vocab", vocab)?,
        size("row_stride", row_stride)?,
        dloss_ptr,
        stream.cast(),
    ))
}

/// How many bytes of workspace suffice for any [`StreamCall`] on `stream`. Depends only on the
/// stream's device.
///
/// # Errors
/// [`ErrorKind::NoCuda`], [`ErrorKind::NoDevice`], [`ErrorKind::UnsupportedDevice`] or
/// [`ErrorKind::Cuda`].
///
/// # Safety
/// `stream` is a live stream.
pub unsafe fn workspace_size(stream: *mut c_void) -> Result<usize, Error> {
    let mut bytes = 0;
    Error::check(sys::gh_cross_entropy_workspace_size(stream.cast(), &mut bytes))?;
    Ok(bytes)
}

/// A size as C takes it.
pub(crate) fn size(name: &str, value: usize) -> Result<i64, Error> {
    i64::try_from(value).map_err(|_| {
        Error::new(ErrorKind::InvalidSize, format!("{} = {}: exceeds 2^63 - 1", name, value))
    })
}
