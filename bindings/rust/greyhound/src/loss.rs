use greyhound_sys as sys;

/// What the loss of the rows is reduced to, and with it what the gradient is of.
///
/// There is no `None`: each row's loss can be had with either, and then the gradient of the sum is
/// the one that a loss per row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// The sum over the rows. The default.
    Sum,
    /// The sum divided by the number of rows whose label is not the ignored one; with class weights,
    /// by the sum of their labels' weights. 0 without such rows.
    Mean,
}

/// Which loss is computed: the options that are numbers. [`HostCall`](crate::HostCall) and
/// [`StreamCall`](crate::StreamCall) compute it.
///
/// With `x = softcap * tanh(logit_scale * logits / softcap)`, `lse` the log of the sum of their
/// exponentials, `e` the label smoothing and `w` the class weights, a row with the label `y` has
///
/// ```text
/// loss = (1 - e) * w[y] * (lse - x[y])  +  e / vocab * sum(w * (lse - x))  +  z_loss_multiplier * lse^2
/// ```
///
/// ```
/// use greyhound::{Loss, Reduction};
///
/// let loss = Loss::default().reduction(Reduction::Mean).label_smoothing(0.1).z_loss_multiplier(1e-4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    reduction: Reduction,
    label_smoothing: f32,
    z_loss_multiplier: f32,
    logit_scale: f32,
    softcap: f32,
    dloss: f32,
    ignore_index: i64,
}

impl Loss {
    /// By default the sum.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// The part of the target that is spread over all classes evenly, in `[0, 1]`; as in PyTorch.
    /// By default 0.
    #[must_use]
    pub fn label_smoothing(mut self, smoothing: f32) -> Self {
        self.label_smoothing = smoothing;
        self
    }

    /// The weight of the squared log-sum-exp in the loss; finite. By default 0.
    #[must_use]
    pub fn z_loss_multiplier(mut self, multiplier: f32) -> Self {
        self.z_loss_multiplier = multiplier;
        self
    }

    /// What logits are multiplied by first (an inverse temperature); finite and positive. By
    /// default 1.
    #[must_use]
    pub fn logit_scale(mut self, scale: f32) -> Self {
        self.logit_scale = scale;
        self
    }

    /// The bound `c` of `c * tanh(x / c)`, which scaled logits go through; finite and positive, or 0
    /// for none. By default 0.
    #[must_use]
    pub fn softcap(mut self, cap: f32) -> Self {
        self.softcap = cap;
        self
    }

    /// The upstream gradient: what the gradient of the logits is multiplied by, before it is
    /// rounded. Any value. By default 1.
    #[must_use]
    pub fn dloss(mut self, gradient: f32) -> Self {
        self.dloss = gradient;
        self
    }

    /// The label of rows that do not count: their loss and gradient are 0. Any value, also one
    /// inside `0..vocab`. By default -100.
    #[must_use]
    pub fn ignore_index(mut self, label: i64) -> Self {
        self.ignore_index = label;
        self
    }

    /// The library's options with these, and with everything else at its default.
    pub(crate) fn options(&self) -> sys::gh_cross_entropy_options {
        sys::gh_cross_entropy_options {
            reduction: match self.reduction {
                Reduction::Sum => sys::GH_REDUCTION_SUM,
                Reduction::Mean => sys::GH_REDUCTION_MEAN,
            },
            label_smoothing: self.label_smoothing,
            z_loss_multiplier: self.z_loss_multiplier,
            logit_scale: self.logit_scale,
            softcap: self.softcap,
            dloss: self.dloss,
            ignore_index: self.ignore_index,
            ..sys::GH_CROSS_ENTROPY_OPTIONS_INIT
        }
    }
}

impl Default for Loss {
    /// The plain cross-entropy, summed.
    fn default() -> Self {
        let options = sys::GH_CROSS_ENTROPY_OPTIONS_INIT;
        Loss {
            reduction: Reduction::Sum,
            label_smoothing: options.label_smoothing,
            z_loss_multiplier: options.z_loss_multiplier,
            logit_scale: options.logit_scale,
            softcap: options.softcap,
            dloss: options.dloss,
            ignore_index: options.ignore_index,
        }
    }
}
