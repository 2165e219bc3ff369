use std::ptr::null_mut;

use greyhound_sys as sys;

use crate::element::Element;
use crate::error::{Error, ErrorKind};
use crate::label::Label;
use crate::loss::Loss;
use crate::stream_call::{RowStatistics, SavedPointer, StreamCall};

/// What a backward pass starts from, for each row.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Saved<'a> {
    /// What [`HostCall::row_statistics`] received, for the same logits, labels, scale and softcap.
    /// The gradient is then bit for bit that of the call which computes both.
    Statistics(&'a [RowStatistics]),
    /// Each row's log-sum-exp, from anywhere. Less accurate where that is large, or a label nearly
    /// certain.
    Lse(&'a [f32]),
}

/// What a forward pass sums up over the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// The reduced loss, with all its terms.
    pub loss: f32,
    /// The part of it that is the z-loss.
    pub z_loss: f32,
    /// The number of rows that are not ignored.
    pub n_valid: f32,
    /// In how many of those the label has the largest logit; see [`HostCall::count_correct`].
    pub n_correct: Option<f32>,
    /// How many of those have a label outside `0..vocab`; see [`HostCall::count_out_of_range`].
    pub n_out_of_range: Option<f32>,
}

/// A loss, its gradient, or both, of slices, on the CPU: first what else goes in and comes out, then
/// the call. A row that is ignored gets 0 in every output, and -1 as its argmax.
///
/// ```
/// use greyhound::{HostCall, Loss, Reduction};
///
/// let (vocab, logits) = (2, [0.0_f32, 0.0, 7.0, 7.0]);
/// let mut dlogits = [0.0; 4];
/// let mut row_entropy = [0.0; 2];
///
/// let loss = Loss::default().reduction(Reduction::Mean).label_smoothing(0.5);
/// let totals = HostCall::new(loss, vocab)
///     .row_entropy(&mut row_entropy)
///     .forward_backward(&logits, &mut dlogits, &[0, 1])?;
///
/// assert!((totals.loss - 2_f32.ln()).abs() < 1e-6);
/// assert!((row_entropy[1] - 2_f32.ln()).abs() < 1e-6);
/// assert_eq!(dlogits, [-0.125, 0.125, 0.125, -0.125]); // (p - 0.25 - 0.5 [label]) / 2 rows
/// # Ok::<(), greyhound::Error>(())
/// ```
///
/// The gradient can be left for later, when what comes back from the losses is known:
///
/// ```
/// use greyhound::{HostCall, Loss, RowStatistics, Saved};
///
/// let (vocab, labels) = (3, [2_i32, 0]);
/// let mut logits = [0.5_f32, -1.0, 2.0, 0.0, 1.0, 0.0];
/// let mut log_probs = [0.0; 2];
/// let mut saved = [RowStatistics::default(); 2];
///
/// HostCall::new(Loss::default(), vocab)
///     .row_target_log_prob(&mut log_probs)
///     .row_statistics(&mut saved)
///     .forward(&logits, &labels)?;
///
/// let advantages = [1.5, -0.5];
/// HostCall::new(Loss::default(), vocab)
///     .row_dloss(&advantages)
///     .backward_in_place(&mut logits, &labels, Saved::Statistics(&saved))?;
///
/// assert!((logits[2] - 1.5 * (log_probs[0].exp() - 1.0)).abs() < 1e-6);
/// # Ok::<(), greyhound::Error>(())
/// ```
///
/// # Errors
/// With nothing written:
/// - [`ErrorKind::InvalidSize`] if a slice has another length than the shape says, `vocab` is 0, or
///   a row stride is less than `vocab`;
/// - [`ErrorKind::InvalidValue`] if a number of [`Loss`] is outside its domain;
/// - [`ErrorKind::LabelOutOfRange`] if a label is neither in `0..vocab` nor the ignored one, and
///   [`HostCall::count_out_of_range`] was not asked for.
#[derive(Debug)]
#[must_use]
pub struct HostCall<'a> {
    loss: Loss,
    vocab: usize,
    logits_row_stride: usize,
    dlogits_row_stride: usize,
    class_weights: Option<&'a [f32]>,
    row_dloss: Option<&'a [f32]>,
    row_dentropy: Option<&'a [f32]>,
    row_loss: Option<&'a mut [f32]>,
    row_lse: Option<&'a mut [f32]>,
    row_target_log_prob: Option<&'a mut [f32]>,
    row_entropy: Option<&'a mut [f32]>,
    row_argmax: Option<&'a mut [i64]>,
    row_statistics: Option<&'a mut [RowStatistics]>,
    count_correct: bool,
    count_out_of_range: bool,
}

impl<'a> HostCall<'a> {
    /// A call for rows of `vocab` columns; how many, the labels say.
    pub fn new(loss: Loss, vocab: usize) -> Self {
        HostCall {
            loss,
            vocab,
            logits_row_stride: 0,
            dlogits_row_stride: 0,
            class_weights: None,
            row_dloss: None,
            row_dentropy: None,
            row_loss: None,
            row_lse: None,
            row_target_log_prob: None,
            row_entropy: None,
            row_argmax: None,
            row_statistics: None,
            count_correct: false,
            count_out_of_range: false,
        }
    }

    /// Elements from one row of logits to the next, at least `vocab`, or 0 for `vocab`. What lies
    /// between the rows is not touched; it may be missing behind the last one.
    pub fn logits_row_stride(mut self, elements: usize) -> Self {
        self.logits_row_stride = elements;
        self
    }

    /// The same for a gradient that does not replace the logits.
    pub fn dlogits_row_stride(mut self, elements: usize) -> Self {
        self.dlogits_row_stride = elements;
        self
    }

    /// `[vocab]`; as in PyTorch.
    pub fn class_weights(mut self, weights: &'a [f32]) -> Self {
        self.class_weights = Some(weights);
        self
    }

    /// `[batch]`, the upstream gradient of each row's loss.
    pub fn row_dloss(mut self, gradients: &'a [f32]) -> Self {
        self.row_dloss = Some(gradients);
        self
    }

    /// `[batch]`, the upstream gradient of each row's entropy. A forward pass whose statistics are
    /// for a backward pass with it must have [`HostCall::row_entropy`].
    pub fn row_dentropy(mut self, gradients: &'a [f32]) -> Self {
        self.row_dentropy = Some(gradients);
        self
    }

    /// `[batch]`, for each row's loss, in nats.
    pub fn row_loss(mut self, out: &'a mut [f32]) -> Self {
        self.row_loss = Some(out);
        self
    }

    /// `[batch]`, for each row's log-sum-exp.
    pub fn row_lse(mut self, out: &'a mut [f32]) -> Self {
        self.row_lse = Some(out);
        self
    }

    /// `[batch]`, for each label's log-probability, without smoothing and weight.
    pub fn row_target_log_prob(mut self, out: &'a mut [f32]) -> Self {
        self.row_target_log_prob = Some(out);
        self
    }

    /// `[batch]`, for the entropy of each row's softmax, in nats.
    pub fn row_entropy(mut self, out: &'a mut [f32]) -> Self {
        self.row_entropy = Some(out);
        self
    }

    /// `[batch]`, for the index of each row's first largest logit; -1 if the row's loss is NaN.
    pub fn row_argmax(mut self, out: &'a mut [i64]) -> Self {
        self.row_argmax = Some(out);
        self
    }

    /// `[batch]`, for what [`Saved::Statistics`] needs.
    pub fn row_statistics(mut self, out: &'a mut [RowStatistics]) -> Self {
        self.row_statistics = Some(out);
        self
    }

    /// Asks for [`Totals::n_correct`].
    pub fn count_correct(mut self) -> Self {
        self.count_correct = true;
        self
    }

    /// Asks for [`Totals::n_out_of_range`]: such a label is then no error. Its row's loss and
    /// gradient are NaN.
    pub fn count_out_of_range(mut self) -> Self {
        self.count_out_of_range = true;
        self
    }

    /// Computes what was asked for, and no gradient.
    ///
    /// - `logits`: `[batch, vocab]`, row by row.
    /// - `labels`: the class of each row, in `0..vocab` or the ignored one.
    ///
    /// # Errors
    /// See [`HostCall`].
    pub fn forward<T: Element, L: Label>(
        self,
        logits: &[T],
        labels: &[L],
    ) -> Result<Totals, Error> {
        self.check_matrix("logits", logits, self.logits_row_stride, labels)?;
        // SAFETY: the slice is as long as its rows need.
        unsafe { self.run(logits.as_ptr(), null_mut(), labels) }
    }

    /// Computes what was asked for, and the gradient: `dlogits`, shaped like `logits`.
    ///
    /// # Errors
    /// See [`HostCall`].
    pub fn forward_backward<T: Element, L: Label>(
        self,
        logits: &[T],
        dlogits: &mut [T],
        labels: &[L],
    ) -> Result<Totals, Error> {
        self.check_matrix("logits", logits, self.logits_row_stride, labels)?;
        self.check_matrix("dlogits", dlogits, self.dlogits_row_stride, labels)?;
        // SAFETY: the slices are as long as their rows need.
        unsafe { self.run(logits.as_ptr(), dlogits.as_mut_ptr(), labels) }
    }

    /// [`HostCall::forward_backward`], with the gradient in place of the logits.
    ///
    /// # Errors
    /// See [`HostCall`].
    pub fn forward_backward_in_place<T: Element, L: Label>(
        mut self,
        logits: &mut [T],
        labels: &[L],
    ) -> Result<Totals, Error> {
        self.check_matrix("logits", logits, self.logits_row_stride, labels)?;
        self.dlogits_row_stride = self.logits_row_stride;
        let pointer = logits.as_mut_ptr();
        // SAFETY: the slice is as long as its rows need.
        unsafe { self.run(pointer, pointer, labels) }
    }

    /// The gradient alone, from what an earlier call saved. The logits are read once.
    ///
    /// # Errors
    /// See [`HostCall`]; [`ErrorKind::InvalidValue`] also if an output was asked for, or
    /// [`HostCall::row_dentropy`] is given and `saved` is an [`Saved::Lse`].
    pub fn backward<T: Element, L: Label>(
        self,
        logits: &[T],
        dlogits: &mut [T],
        labels: &[L],
        saved: Saved<'_>,
    ) -> Result<(), Error> {
        self.check_matrix("logits", logits, self.logits_row_stride, labels)?;
        self.check_matrix("dlogits", dlogits, self.dlogits_row_stride, labels)?;
        // SAFETY: the slices are as long as their rows need.
        unsafe { self.run_backward(logits.as_ptr(), dlogits.as_mut_ptr(), labels, saved) }
    }

    /// [`HostCall::backward`], with the gradient in place of the logits.
    ///
    /// # Errors
    /// As [`HostCall::backward`].
    pub fn backward_in_place<T: Element, L: Label>(
        mut self,
        logits: &mut [T],
        labels: &[L],
        saved: Saved<'_>,
    ) -> Result<(), Error> {
        self.check_matrix("logits", logits, self.logits_row_stride, labels)?;
        self.dlogits_row_stride = self.logits_row_stride;
        let pointer = logits.as_mut_ptr();
        // SAFETY: the slice is as long as its rows need.
        unsafe { self.run_backward(pointer, pointer, labels, saved) }
    }

    /// # Safety
    /// The pointers are valid for their rows.
    unsafe fn run<T: Element, L: Label>(
        self,
        logits: *const T,
        dlogits: *mut T,
        labels: &[L],
    ) -> Result<Totals, Error> {
        let mut totals = Totals::default();
        let (mut n_correct, mut n_out_of_range) = (0.0, 0.0);
        let (count_correct, count_out_of_range) = (self.count_correct, self.count_out_of_range);
        let mut call = self
            .stream_call(labels.len())?
            .loss(&mut totals.loss)
            .z_loss(&mut totals.z_loss)
            .n_valid(&mut totals.n_valid);
        if count_correct {
            call = call.n_correct(&mut n_correct);
        }
        if count_out_of_range {
            call = call.n_out_of_range(&mut n_out_of_range);
        }
        call.forward_backward(logits, dlogits, labels.as_ptr(), sys::GH_STREAM_HOST.cast())?;
        totals.n_correct = count_correct.then_some(n_correct);
        totals.n_out_of_range = count_out_of_range.then_some(n_out_of_range);
        Ok(totals)
    }

    /// # Safety
    /// The pointers are valid for their rows.
    unsafe fn run_backward<T: Element, L: Label>(
        self,
        logits: *const T,
        dlogits: *mut T,
        labels: &[L],
        saved: Saved<'_>,
    ) -> Result<(), Error> {
        let batch = labels.len();
        let saved = match saved {
            Saved::Statistics(rows) => {
                check_length("saved.len()", rows.len(), "labels.len()", batch)?;
                SavedPointer::Statistics(rows.as_ptr())
            }
            Saved::Lse(rows) => {
                check_length("saved.len()", rows.len(), "labels.len()", batch)?;
                SavedPointer::Lse(rows.as_ptr())
            }
        };
        let mut count = 0.0; // for the library to refuse, like every other output
        let (count_correct, count_out_of_range) = (self.count_correct, self.count_out_of_range);
        let mut call = self.stream_call(batch)?;
        if count_correct {
            call = call.n_correct(&mut count);
        }
        if count_out_of_range {
            call = call.n_out_of_range(&mut count);
        }
        call.backward(logits, dlogits, labels.as_ptr(), saved, sys::GH_STREAM_HOST.cast())
    }

    /// All options but the sums, as pointers. The slices stay borrowed for `'a`, and so for the call,
    /// which is over when it returns: the host engine does not keep pointers.
    fn stream_call(self, batch: usize) -> Result<StreamCall, Error> {
        let mut call = StreamCall::new(self.loss, batch, self.vocab)
            .logits_row_stride(self.logits_row_stride)
            .dlogits_row_stride(self.dlogits_row_stride);
        if let Some(weights) = self.class_weights {
            check_length("class_weights.len()", weights.len(), "vocab", self.vocab)?;
            call = call.class_weights(weights.as_ptr());
        }
        let of_batch = |name, length| check_length(name, length, "labels.len()", batch);
        if let Some(gradients) = self.row_dloss {
            of_batch("row_dloss.len()", gradients.len())?;
            call = call.row_dloss(gradients.as_ptr());
        }
        if let Some(gradients) = self.row_dentropy {
            of_batch("row_dentropy.len()", gradients.len())?;
            call = call.row_dentropy(gradients.as_ptr());
        }
        if let Some(out) = self.row_loss {
            of_batch("row_loss.len()", out.len())?;
            call = call.row_loss(out.as_mut_ptr());
        }
        if let Some(out) = self.row_lse {
            of_batch("row_lse.len()", out.len())?;
            call = call.row_lse(out.as_mut_ptr());
        }
        if let Some(out) = self.row_target_log_prob {
            of_batch("row_target_log_prob.len()", out.len())?;
            call = call.row_target_log_prob(out.as_mut_ptr());
        }
        if let Some(out) = self.row_entropy {
            of_batch("row_entropy.len()", out.len())?;
            call = call.row_entropy(out.as_mut_ptr());
        }
        if let Some(out) = self.row_argmax {
            of_batch("row_argmax.len()", out.len())?;
            call = call.row_argmax(out.as_mut_ptr());
        }
        if let Some(out) = self.row_statistics {
            of_batch("row_statistics.len()", out.len())?;
            call = call.row_statistics(out.as_mut_ptr());
        }
        Ok(call)
    }

    /// Does the slice reach to its last row's end, and no further than that row's stride?
    fn check_matrix<T, L>(
        &self,
        name: &str,
        matrix: &[T],
        row_stride: usize,
        labels: &[L],
    ) -> Result<(), Error> {
        let (batch, vocab) = (labels.len(), self.vocab);
        let stride = if row_stride == 0 { vocab } else { row_stride };
        let most = batch.checked_mul(stride);
        let least = most.map(|most| most.saturating_sub(stride.saturating_sub(vocab)));
        if let (Some(least), Some(most)) = (least, most) {
            if least <= matrix.len() && matrix.len() <= most {
                return Ok(());
            }
        }
        Err(Error::new(
            ErrorKind::InvalidSize,
            format!(
                "{}.len() = {}: must be labels.len() ({}) x vocab ({}), in rows {} apart",
                name,
                matrix.len(),
                batch,
                vocab,
                stride
            ),
        ))
    }
}

fn check_length(
    name: &str,
    length: usize,
    expected_name: &str,
    expected: usize,
) -> Result<(), Error> {
    if length == expected {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidSize,
        format!("{} = {}: must be {} ({})", name, length, expected_name, expected),
    ))
}
