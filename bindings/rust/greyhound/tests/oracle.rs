//! Losses and gradients of random logits, in every element type, against the same computed in f64.

mod common;

use common::{Number, Random};
use greyhound::{cross_entropy_fwd_bwd, Bf16, Options, Sums, F16};

trait Rounding: Number {
    /// Half a unit in the last place, relative to the number.
    const ROUNDOFF: f64;
    /// Half of the smallest positive number: the rounding error where numbers are subnormal.
    const UNDERFLOW: f64;
}

impl Rounding for f32 {
    const ROUNDOFF: f64 = F32_ROUNDOFF;
    const UNDERFLOW: f64 = 1e-38; // flushing subnormal numbers to zero is allowed
}

impl Rounding for F16 {
    const ROUNDOFF: f64 = 1.0 / (1_u64 << 11) as f64;
    const UNDERFLOW: f64 = 1.0 / (1_u64 << 25) as f64;
}

impl Rounding for Bf16 {
    const ROUNDOFF: f64 = 1.0 / (1_u64 << 8) as f64;
    const UNDERFLOW: f64 = 1e-38;
}

const F32_ROUNDOFF: f64 = 1.0 / (1_u64 << 24) as f64;
const IGNORE: i64 = -7;

/// One row in f64: the gradient and the sizes of its terms, which bound its rounding error.
struct Row {
    loss: f64,
    lse: f64,
    gradient: Vec<f64>,
    magnitude: Vec<f64>,
}

fn reference_row(x: &[f64], label: usize, z_loss_multiplier: f64) -> Row {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let others: f64 = (0..x.len()).filter(|&j| j != label).map(|j| (x[j] - max).exp()).sum();
    let target = (x[label] - max).exp();
    let lse = max + (others + target).ln();
    let mut row = Row { loss: (others / target).ln_1p(), lse, gradient: vec![], magnitude: vec![] };
    for (j, &x) in x.iter().enumerate() {
        let p = (x - max).exp() / (others + target);
        let z = 2.0 * z_loss_multiplier * lse * p;
        let ce = if j == label { -others / (others + target) } else { p };
        row.gradient.push(ce + z);
        row.magnitude.push(ce.abs() + z.abs());
    }
    row
}

fn check<T: Rounding>(batch: usize, vocab: usize, z_loss_multiplier: f32) {
    let mut random = Random::fresh();
    let what = format!(
        "{} [{}, {}], z_loss_multiplier {}",
        std::any::type_name::<T>(),
        batch,
        vocab,
        z_loss_multiplier
    );

    const SPREAD: f32 = 8.0;
    let mut logits: Vec<T> =
        (0..batch * vocab).map(|_| T::round(random.uniform(-SPREAD, SPREAD))).collect();
    let labels: Vec<i64> = (0..batch)
        .map(|_| if random.below(4) == 0 { IGNORE } else { random.below(vocab) as i64 })
        .collect();
    let input: Vec<f64> = logits.iter().map(|x| x.exact().into()).collect();

    let options = Options::default().z_loss_multiplier(z_loss_multiplier).ignore_index(IGNORE);
    let sums = cross_entropy_fwd_bwd(&mut logits, &labels, vocab, options).unwrap();

    // The engine computes in fp32. Its softmax is off by one rounding for each of: the additions of
    // the sum (at most vocab), a rounding of x - max and of its product with log2(e) (each worth
    // as many roundings as the exponent is large), and a handful of further operations.
    let spread = f64::from(2.0 * SPREAD);
    let arithmetic = (vocab as f64 + 2.0 * spread * std::f64::consts::LOG2_E + 16.0) * F32_ROUNDOFF;

    let (mut ce_sum, mut z_sum, mut n_valid) = (0.0, 0.0, 0.0);
    let (mut ce_error, mut z_error) = (0.0, 0.0);
    for (i, &label) in labels.iter().enumerate() {
        let output = &logits[i * vocab..(i + 1) * vocab];
        if label == IGNORE {
            assert!(output.iter().all(|x| x.exact() == 0.0), "{}: row {} is ignored", what, i);
            continue;
        }
        let row = reference_row(
            &input[i * vocab..(i + 1) * vocab],
            label as usize,
            f64::from(z_loss_multiplier),
        );
        for (j, gradient) in output.iter().map(|x| f64::from(x.exact())).enumerate() {
            let error = (gradient - row.gradient[j]).abs();
            let allowed = arithmetic * row.magnitude[j]
                + T::ROUNDOFF * row.gradient[j].abs() * (1.0 + arithmetic)
                + T::UNDERFLOW;
            assert!(
                error <= allowed,
                "{}: gradient[{}][{}] = {:e}, not {:e} (error {:e}, allowed {:e})",
                what,
                i,
                j,
                gradient,
                row.gradient[j],
                error,
                allowed
            );
        }
        // The logarithm turns the sum's relative error into an absolute one; the maximum, the
        // target and the logarithm are each at most spread + ln(vocab) and rounded once.
        let lse_error = arithmetic + 3.0 * (spread + (vocab as f64).ln()) * F32_ROUNDOFF;
        ce_sum += row.loss;
        z_sum += row.lse * row.lse;
        n_valid += 1.0;
        ce_error += lse_error;
        z_error += 2.0 * row.lse.abs() * lse_error + lse_error * lse_error;
    }
    // Losses are not negative, so each of at most batch additions costs one rounding of the sum.
    let addition = (batch as f64 + 1.0) * F32_ROUNDOFF;
    let close = |got: f32, want: f64, error: f64| {
        (f64::from(got) - want).abs() <= error + addition * (want + error)
    };
    assert_eq!(f64::from(sums.n_valid), n_valid, "{}", what);
    assert!(close(sums.ce_sum, ce_sum, ce_error), "{}: {:?}, ce_sum {}", what, sums, ce_sum);
    assert!(close(sums.z_sum, z_sum, z_error), "{}: {:?}, z_sum {}", what, sums, z_sum);
}

fn check_sizes<T: Rounding>() {
    for &(batch, vocab) in
        &[(1, 1), (3, 2), (8, 3), (5, 17), (33, 64), (4, 100), (2, 1000), (7, 1003), (1, 4099)]
    {
        for &z_loss_multiplier in &[0.0, 1e-4, -0.5] {
            check::<T>(batch, vocab, z_loss_multiplier);
        }
    }
}

#[test]
fn f32_agrees_with_f64() {
    check_sizes::<f32>();
}

#[test]
fn f16_agrees_with_f64() {
    check_sizes::<F16>();
}

#[test]
fn bf16_agrees_with_f64() {
    check_sizes::<Bf16>();
}

#[test]
fn the_sums_of_two_halves_are_those_of_the_whole() {
    let labels = [0, 1, 0, IGNORE];
    let options = Options::default().ignore_index(IGNORE);
    let mut whole = [0.0_f32; 8];
    let expected = cross_entropy_fwd_bwd(&mut whole, &labels, 2, options).unwrap();
    let mut parts = [0.0_f32; 8];
    let mut sums = Sums::default();
    for (logits, labels) in parts.chunks_mut(4).zip(labels.chunks(2)) {
        sums += cross_entropy_fwd_bwd(logits, labels, 2, options).unwrap();
    }
    assert_eq!(parts, whole);
    assert_eq!(sums.n_valid, 3.0);
    // One fp32 rounding for each of three additions, in either order.
    assert!((sums.ce_sum - expected.ce_sum).abs() <= 3.0 * f32::EPSILON * expected.ce_sum);
    assert!((sums.z_sum - expected.z_sum).abs() <= 3.0 * f32::EPSILON * expected.z_sum);
}

#[test]
fn the_mean_of_ignored_rows_is_zero() {
    let mut logits = [f32::NAN; 6];
    let sums = cross_entropy_fwd_bwd(&mut logits, &[-100, -100], 3, Options::default()).unwrap();
    assert_eq!(logits, [0.0; 6]);
    assert_eq!(sums, Sums::default());
    assert_eq!(sums.mean_loss(), 0.0);
}
