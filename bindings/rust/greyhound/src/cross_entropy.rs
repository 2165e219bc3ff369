use std::ffi::c_void;
use std::ops::AddAssign;

use greyhound_sys as sys;

use crate::element::{dtype_of, Element};
use crate::error::{Error, ErrorKind};
use crate::stream_call::size;

/// What a call computes beside the plain cross-entropy.
///
/// ```
/// let options = greyhound::Options::default().z_loss_multiplier(1e-4).ignore_index(0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    z_loss_multiplier: f32,
    ignore_index: i64,
}

impl Options {
    /// The weight of the squared log-sum-exp in the gradient; must be finite. By default 0: no
    /// z-loss.
    #[must_use]
    pub fn z_loss_multiplier(mut self, multiplier: f32) -> Self {
        self.z_loss_multiplier = multiplier;
        self
    }

    /// The label of rows that do not count: their gradient is 0 and they add nothing. Any value,
    /// also one inside `0..vocab`. By default -100.
    #[must_use]
    pub fn ignore_index(mut self, label: i64) -> Self {
        self.ignore_index = label;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Options { z_loss_multiplier: 0.0, ignore_index: -100 }
    }
}

/// The sums over the rows whose label is not `ignore_index`. Those of several calls add up with
/// `+=`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Sums {
    /// The sum of the rows' losses, in nats.
    pub ce_sum: f32,
    /// The sum of the rows' squared log-sum-exp, not multiplied by the z-loss multiplier.
    pub z_sum: f32,
    /// The number of rows that count.
    pub n_valid: f32,
}

impl Sums {
    /// The mean loss of the rows that count; 0 if none does.
    ///
    /// The gradient in the logits is that of the sum: divide it by `n_valid` as well, or scale the
    /// learning rate.
    pub fn mean_loss(&self) -> f32 {
        self.ce_sum / self.n_valid.max(1.0)
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Sums) {
        self.ce_sum += other.ce_sum;
        self.z_sum += other.z_sum;
        self.n_valid += other.n_valid;
    }
}

/// Adds up the cross-entropy loss of `labels.len()` rows and overwrites `logits` with the gradient
/// of `ce_sum + z_loss_multiplier * z_sum`, on the CPU.
///
/// - `logits`: `[labels.len(), vocab]`, row by row; becomes the gradient, not divided by anything.
/// - `labels`: the class of each row, in `0..vocab` or the ignored one.
///
/// # Errors
/// With nothing written:
/// - [`ErrorKind::InvalidSize`] if `logits.len()` is not `labels.len() * vocab`, or `vocab` is 0;
/// - [`ErrorKind::InvalidValue`] if the z-loss multiplier is NaN or infinite;
/// - [`ErrorKind::LabelOutOfRange`] if a label is neither in `0..vocab` nor the ignored one.
///
/// # Examples
/// Half-precision logits are borrowed from their bits:
/// ```
/// use greyhound::{cross_entropy_fwd_bwd, Bf16, Options};
///
/// let mut bits = [0_u16; 2]; // two zeros
/// cross_entropy_fwd_bwd(Bf16::from_bits_mut(&mut bits), &[0], 2, Options::default())?;
/// assert_eq!(bits, [0xbf00, 0x3f00]); // -0.5 and 0.5
/// # Ok::<(), greyhound::Error>(())
/// ```
pub fn cross_entropy_fwd_bwd<T: Element>(
    logits: &mut [T],
    labels: &[i64],
    vocab: usize,
    options: Options,
) -> Result<Sums, Error> {
    let batch = labels.len();
    if batch.checked_mul(vocab) != Some(logits.len()) {
        return Err(Error::new(
            ErrorKind::InvalidSize,
            format!(
                "logits.len() = {}: must be labels.len() ({}) x vocab ({})",
                logits.len(),
                batch,
                vocab
            ),
        ));
    }
    let mut sums = Sums::default();
    let pointers =
        DeviceSums { ce_sum: &mut sums.ce_sum, z_sum: &mut sums.z_sum, n_valid: &mut sums.n_valid };
    // SAFETY: the slices hold batch x vocab and batch elements, borrowed for the whole call, which
    // is over when it returns: the host engine does not keep pointers.
    unsafe {
        cross_entropy_fwd_bwd_on_stream(
            logits.as_mut_ptr(),
            labels.as_ptr(),
            batch,
            vocab,
            options,
            pointers,
            sys::GH_STREAM_HOST.cast(),
        )?;
    }
    Ok(sums)
}

/// Where [`cross_entropy_fwd_bwd_on_stream`] adds its sums: one `f32` each, in memory that the
/// stream's device can access. Zero them before the first call. See [`Sums`] for their meaning.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSums {
    /// Required.
    pub ce_sum: *mut f32,
    /// May be null.
    pub z_sum: *mut f32,
    /// May be null.
    pub n_valid: *mut f32,
}

/// [`cross_entropy_fwd_bwd`] on device memory: enqueues the work on a CUDA stream and returns
/// without waiting. May be captured into a CUDA graph.
///
/// - `logits`: `[batch, vocab]`, row by row; becomes the gradient. Aligned to its element.
/// - `labels`: `[batch]`. A label out of range makes its row's gradient and loss NaN.
/// - `sums`: added to, not set.
/// - `stream`: a `cudaStream_t` or `CUstream`; null is the current device's default stream.
///   `greyhound_sys::GH_STREAM_HOST` runs the call at once on the CPU, on host memory.
///
/// # Errors
/// With nothing written: those of [`cross_entropy_fwd_bwd`], and
/// - [`ErrorKind::NullPointer`], [`ErrorKind::MisalignedPointer`], [`ErrorKind::Overlap`] for
///   pointers that are so;
/// - [`ErrorKind::UnreachablePointer`] if the stream's device cannot access a pointer;
/// - [`ErrorKind::NoCuda`], [`ErrorKind::NoDevice`], [`ErrorKind::UnsupportedDevice`] if there is
///   nothing to run on, and [`ErrorKind::Cuda`] for what CUDA itself reports.
///
/// # Safety
/// Until the stream has done the work,
/// - `logits`, `labels` and the pointers in `sums` are valid for that many elements in memory that
///   the stream's device can access, and nothing else writes them or reads what is written;
/// - `stream` is a live stream.
pub unsafe fn cross_entropy_fwd_bwd_on_stream<T: Element>(
    logits: *mut T,
    labels: *const i64,
    batch: usize,
    vocab: usize,
    options: Options,
    sums: DeviceSums,
    stream: *mut c_void,
) -> Result<(), Error> {
    let (batch, vocab) = (size("batch", batch)?, size("vocab", vocab)?);
    let status = sys::gh_cross_entropy_fwd_bwd(
        logits.cast(),
        dtype_of::<T>(),
        labels,
        batch,
        vocab,
        options.z_loss_multiplier,
        options.ignore_index,
        sums.ce_sum,
        sums.z_sum,
        sums.n_valid,
        stream.cast(),
    );
    Error::check(status)
}
