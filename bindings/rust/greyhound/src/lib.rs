//! Cross-entropy for training: the loss and the gradient of the logits, in one pass over memory.
//!
//! | | slices, on the CPU | device memory, on a CUDA stream |
//! | --- | --- | --- |
//! | loss and gradient in place, in one call | [`cross_entropy_fwd_bwd`] | [`cross_entropy_fwd_bwd_on_stream`] |
//! | every option, output and pass | [`HostCall`] | [`StreamCall`] |
//! | a gradient times an upstream gradient | | [`scale_dlogits`] |
//!
//! ```
//! use greyhound::{cross_entropy_fwd_bwd, Options};
//!
//! let vocab = 4;
//! let mut logits = vec![0.0_f32; 2 * vocab]; // [batch, vocab], row by row
//! let labels = [1, -100]; // the second row is ignored
//!
//! let sums = cross_entropy_fwd_bwd(&mut logits, &labels, vocab, Options::default())?;
//!
//! assert!((sums.mean_loss() - 4_f32.ln()).abs() < 1e-6);
//! assert_eq!(sums.n_valid, 1.0);
//! assert_eq!(logits, [0.25, -0.75, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0]); // softmax - one-hot
//! # Ok::<(), greyhound::Error>(())
//! ```
//!
//! With a mean, label smoothing, and the loss of each row:
//!
//! ```
//! use greyhound::{HostCall, Loss, Reduction};
//!
//! let vocab = 4;
//! let mut logits = vec![0.0_f32; 2 * vocab];
//! let mut row_loss = [0.0; 2];
//!
//! let loss = Loss::default().reduction(Reduction::Mean).label_smoothing(0.1);
//! let totals = HostCall::new(loss, vocab)
//!     .row_loss(&mut row_loss)
//!     .forward_backward_in_place(&mut logits, &[1, -100])?;
//!
//! assert!((totals.loss - 4_f32.ln()).abs() < 1e-6);
//! assert_eq!(row_loss[1], 0.0);
//! # Ok::<(), greyhound::Error>(())
//! ```
//!
//! The computation, its special values and its promises about summation are those of the functions
//! in the C header `greyhound/greyhound.h`: `gh_cross_entropy_fwd_bwd`, `gh_cross_entropy`,
//! `gh_cross_entropy_backward` and `gh_scale_dlogits`.

#![warn(missing_docs)]

mod cross_entropy;
mod element;
mod error;
mod host_call;
mod label;
mod loss;
mod stream_call;

pub use cross_entropy::{
    cross_entropy_fwd_bwd, cross_entropy_fwd_bwd_on_stream, DeviceSums, Options, Sums,
};
pub use element::{Bf16, Element, F16};
pub use error::{Error, ErrorKind};
pub use host_call::{HostCall, Saved, Totals};
pub use label::Label;
pub use loss::{Loss, Reduction};
pub use stream_call::{scale_dlogits, workspace_size, RowStatistics, SavedPointer, StreamCall};

/// The version of the loaded library, such as `"0.1.0"`.
pub fn version() -> &'static str {
    // SAFETY: static text, never NULL.
    unsafe { error::text(greyhound_sys::gh_version_string()) }
}
