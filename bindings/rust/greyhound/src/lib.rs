//! Cross-entropy for training: the loss and the gradient of the logits, in one pass over memory.
//!
//! [`cross_entropy_fwd_bwd`] works on slices, on the CPU. [`cross_entropy_fwd_bwd_on_stream`] works
//! on device memory, on a CUDA stream. Both overwrite the logits with their gradient.
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
//! The computation, its special values and its promises about summation are those of
//! `gh_cross_entropy_fwd_bwd` in the C header `greyhound/greyhound.h`.

#![warn(missing_docs)]

mod cross_entropy;
mod element;
mod error;

pub use cross_entropy::{
    cross_entropy_fwd_bwd, cross_entropy_fwd_bwd_on_stream, DeviceSums, Options, Sums,
};
pub use element::{Bf16, Element, F16};
pub use error::{Error, ErrorKind};

/// The version of the loaded library, such as `"0.1.0"`.
pub fn version() -> &'static str {
    // SAFETY: static text, never NULL.
    unsafe { error::text(greyhound_sys::gh_version_string()) }
}
