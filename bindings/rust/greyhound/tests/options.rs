//! Every option, input and output reaches the library under its own name: the same call made with
//! the C declarations gives the same bits.

mod common;

use common::{Number, Random};
use greyhound::{
    Bf16, HostCall, Label, Loss, Reduction, RowStatistics, Saved, SavedPointer, StreamCall, Totals,
    F16,
};
use greyhound_sys as sys;
use std::ffi::c_void;
use std::fmt::Debug;
use std::mem::size_of;
use std::ptr::{null, null_mut};

const BATCH: usize = 5;
const VOCAB: usize = 7;
const LOGITS_STRIDE: usize = 9;
const DLOGITS_STRIDE: usize = 8;
const IGNORE: i32 = -3;

struct Inputs<T, L> {
    logits: Vec<T>,
    labels: Vec<L>,
    class_weights: Vec<f32>,
    row_dloss: Vec<f32>,
    row_dentropy: Vec<f32>,
}

fn inputs<T: Number, L: From<i32>>() -> Inputs<T, L> {
    let mut random = Random::fresh();
    let length = (BATCH - 1) * LOGITS_STRIDE + VOCAB;
    let label = |i| if i == 2 { IGNORE } else { (3 * i + 1) % VOCAB as i32 };
    Inputs {
        logits: (0..length).map(|_| T::round(random.uniform(-4.0, 4.0))).collect(),
        labels: (0..BATCH as i32).map(|i| label(i).into()).collect(),
        class_weights: random.floats(VOCAB),
        row_dloss: random.floats(BATCH),
        row_dentropy: random.floats(BATCH),
    }
}

fn loss() -> Loss {
    Loss::default()
        .reduction(Reduction::Mean)
        .label_smoothing(0.125)
        .z_loss_multiplier(0.0625)
        .logit_scale(1.5)
        .softcap(3.0)
        .dloss(-0.75)
        .ignore_index(IGNORE.into())
}

/// The same as `loss()` and `inputs`, without outputs.
fn options<T, L>(inputs: &Inputs<T, L>) -> sys::gh_cross_entropy_options {
    sys::gh_cross_entropy_options {
        logits_row_stride: LOGITS_STRIDE as i64,
        dlogits_row_stride: DLOGITS_STRIDE as i64,
        label_dtype: if size_of::<L>() == 4 { sys::GH_LABEL_I32 } else { sys::GH_LABEL_I64 },
        reduction: sys::GH_REDUCTION_MEAN,
        label_smoothing: 0.125,
        z_loss_multiplier: 0.0625,
        logit_scale: 1.5,
        softcap: 3.0,
        dloss: -0.75,
        ignore_index: IGNORE.into(),
        class_weights: inputs.class_weights.as_ptr(),
        row_dloss: inputs.row_dloss.as_ptr(),
        row_dentropy: inputs.row_dentropy.as_ptr(),
        ..sys::GH_CROSS_ENTROPY_OPTIONS_INIT
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Outputs {
    dlogits: Vec<f32>,
    row_loss: Vec<f32>,
    row_lse: Vec<f32>,
    row_target_log_prob: Vec<f32>,
    row_entropy: Vec<f32>,
    row_argmax: Vec<i64>,
    row_statistics: Vec<RowStatistics>,
    sums: [f32; 5], // loss, z_loss, n_valid, n_correct, n_out_of_range
}

fn unwritten() -> Outputs {
    let rows = vec![77.0; BATCH];
    Outputs {
        dlogits: vec![],
        row_loss: rows.clone(),
        row_lse: rows.clone(),
        row_target_log_prob: rows.clone(),
        row_entropy: rows,
        row_argmax: vec![77; BATCH],
        row_statistics: vec![RowStatistics::default(); BATCH],
        sums: [0.0; 5],
    }
}

fn exact<T: Number>(numbers: &[T]) -> Vec<f32> {
    numbers.iter().map(|x| x.exact()).collect()
}

fn padded<T: Number>() -> Vec<T> {
    vec![T::round(77.0); BATCH * DLOGITS_STRIDE]
}

/// What the C function gives.
fn expected<T: Number, L: Label>(inputs: &Inputs<T, L>, with_gradient: bool) -> Outputs {
    let mut out = unwritten();
    let mut dlogits = padded::<T>();
    let options = sys::gh_cross_entropy_options {
        row_loss: out.row_loss.as_mut_ptr(),
        row_lse: out.row_lse.as_mut_ptr(),
        row_target_log_prob: out.row_target_log_prob.as_mut_ptr(),
        row_entropy: out.row_entropy.as_mut_ptr(),
        row_argmax: out.row_argmax.as_mut_ptr(),
        row_statistics: out.row_statistics.as_mut_ptr().cast(),
        loss: &mut out.sums[0],
        z_loss: &mut out.sums[1],
        n_valid: &mut out.sums[2],
        n_correct: &mut out.sums[3],
        n_out_of_range: &mut out.sums[4],
        ..options(inputs)
    };
    let status = unsafe {
        sys::gh_cross_entropy(
            inputs.logits.as_ptr().cast(),
            if with_gradient { dlogits.as_mut_ptr().cast() } else { null_mut() },
            T::TYPE,
            inputs.labels.as_ptr().cast(),
            BATCH as i64,
            VOCAB as i64,
            &options,
            sys::GH_STREAM_HOST,
        )
    };
    assert_eq!(status, sys::GH_SUCCESS);
    out.dlogits = exact(&dlogits);
    // So that no two outputs agree by chance, and a mix-up shows.
    let rows = [&out.row_loss, &out.row_lse, &out.row_target_log_prob, &out.row_entropy];
    for (i, a) in rows.iter().enumerate() {
        assert!(rows[..i].iter().all(|b| a != b) && !a.contains(&77.0), "{:?}", out);
    }
    out
}

fn sums(totals: &Totals) -> [f32; 5] {
    let Totals { loss, z_loss, n_valid, n_correct, n_out_of_range, .. } = *totals;
    [loss, z_loss, n_valid, n_correct.unwrap(), n_out_of_range.unwrap()]
}

fn check<T: Number, L: Label + From<i32>>() {
    let inputs = inputs::<T, L>();
    for &with_gradient in &[true, false] {
        let mut out = unwritten();
        let mut dlogits = padded::<T>();
        let call = HostCall::new(loss(), VOCAB)
            .logits_row_stride(LOGITS_STRIDE)
            .dlogits_row_stride(DLOGITS_STRIDE)
            .class_weights(&inputs.class_weights)
            .row_dloss(&inputs.row_dloss)
            .row_dentropy(&inputs.row_dentropy)
            .row_loss(&mut out.row_loss)
            .row_lse(&mut out.row_lse)
            .row_target_log_prob(&mut out.row_target_log_prob)
            .row_entropy(&mut out.row_entropy)
            .row_argmax(&mut out.row_argmax)
            .row_statistics(&mut out.row_statistics)
            .count_correct()
            .count_out_of_range();
        let totals = if with_gradient {
            call.forward_backward(&inputs.logits, &mut dlogits, &inputs.labels)
        } else {
            call.forward(&inputs.logits, &inputs.labels)
        };
        out.sums = sums(&totals.unwrap());
        out.dlogits = exact(&dlogits);
        assert_eq!(out, expected(&inputs, with_gradient));
    }
}

#[test]
fn everything_reaches_the_library() {
    check::<f32, i64>();
    check::<f32, i32>();
    check::<F16, i64>();
    check::<Bf16, i32>();
}

#[test]
fn backward_gives_the_bits_of_the_one_pass_call() {
    let inputs = inputs::<Bf16, i32>();
    let expected = expected(&inputs, true);
    let call = || {
        HostCall::new(loss(), VOCAB)
            .logits_row_stride(LOGITS_STRIDE)
            .dlogits_row_stride(DLOGITS_STRIDE)
            .class_weights(&inputs.class_weights)
            .row_dloss(&inputs.row_dloss)
            .row_dentropy(&inputs.row_dentropy)
    };
    let saved = Saved::Statistics(&expected.row_statistics);

    let mut dlogits = padded::<Bf16>();
    call().backward(&inputs.logits, &mut dlogits, &inputs.labels, saved).unwrap();
    assert_eq!(exact(&dlogits), expected.dlogits);

    let mut in_place = inputs.logits.clone();
    call().backward_in_place(&mut in_place, &inputs.labels, saved).unwrap();
    check_in_place(&in_place, &inputs.logits, &expected.dlogits);
}

/// The gradient is where the logits were, and what lies between the rows is still there.
fn check_in_place<T: Number>(in_place: &[T], logits: &[T], dlogits: &[f32]) {
    for (i, (now, before)) in in_place.iter().zip(logits).enumerate() {
        let (row, column) = (i / LOGITS_STRIDE, i % LOGITS_STRIDE);
        if column < VOCAB {
            assert_eq!(
                now.exact(),
                dlogits[row * DLOGITS_STRIDE + column],
                "[{}][{}]",
                row,
                column
            );
        } else {
            assert_eq!(now.exact(), before.exact(), "between rows {} and the next", row);
        }
    }
}

#[test]
fn in_place_is_the_same_in_the_logits_rows() {
    let inputs = inputs::<F16, i64>();
    let expected = expected(&inputs, true);
    let mut in_place = inputs.logits.clone();
    let totals = HostCall::new(loss(), VOCAB)
        .logits_row_stride(LOGITS_STRIDE)
        .dlogits_row_stride(DLOGITS_STRIDE) // of no use here
        .class_weights(&inputs.class_weights)
        .row_dloss(&inputs.row_dloss)
        .row_dentropy(&inputs.row_dentropy)
        .forward_backward_in_place(&mut in_place, &inputs.labels)
        .unwrap();
    check_in_place(&in_place, &inputs.logits, &expected.dlogits);
    assert_eq!([totals.loss, totals.z_loss, totals.n_valid], expected.sums[..3]);
    assert_eq!((totals.n_correct, totals.n_out_of_range), (None, None));
}

#[test]
fn backward_from_lse_is_the_c_function() {
    let inputs = inputs::<f32, i64>();
    let row_lse = expected(&inputs, false).row_lse;

    let mut expected = padded::<f32>();
    let options = sys::gh_cross_entropy_options { row_dentropy: null(), ..options(&inputs) };
    let status = unsafe {
        sys::gh_cross_entropy_backward(
            inputs.logits.as_ptr().cast(),
            expected.as_mut_ptr().cast(),
            sys::GH_DTYPE_F32,
            inputs.labels.as_ptr().cast(),
            BATCH as i64,
            VOCAB as i64,
            null(),
            row_lse.as_ptr(),
            &options,
            sys::GH_STREAM_HOST,
        )
    };
    assert_eq!(status, sys::GH_SUCCESS);

    let mut dlogits = padded::<f32>();
    HostCall::new(loss(), VOCAB)
        .logits_row_stride(LOGITS_STRIDE)
        .dlogits_row_stride(DLOGITS_STRIDE)
        .class_weights(&inputs.class_weights)
        .row_dloss(&inputs.row_dloss)
        .backward(&inputs.logits, &mut dlogits, &inputs.labels, Saved::Lse(&row_lse))
        .unwrap();
    assert_eq!(dlogits, expected);
}

/// On the one stream that exists on every machine: the host's.
#[test]
fn the_stream_call_is_the_host_call_on_pointers() {
    let inputs = inputs::<f32, i32>();
    let host: *mut c_void = sys::GH_STREAM_HOST.cast();
    let expected = expected(&inputs, true);
    let dloss = -0.75;
    let bare = StreamCall::new(loss().dloss(1.0), BATCH, VOCAB)
        .logits_row_stride(LOGITS_STRIDE)
        .dlogits_row_stride(DLOGITS_STRIDE)
        .class_weights(inputs.class_weights.as_ptr())
        .dloss_ptr(&dloss)
        .row_dloss(inputs.row_dloss.as_ptr())
        .row_dentropy(inputs.row_dentropy.as_ptr());

    for &overwrite in &[false, true] {
        let mut out = unwritten();
        let mut dlogits = padded::<f32>();
        out.sums = [1000.0; 5];
        let mut call = bare
            .row_loss(out.row_loss.as_mut_ptr())
            .row_lse(out.row_lse.as_mut_ptr())
            .row_target_log_prob(out.row_target_log_prob.as_mut_ptr())
            .row_entropy(out.row_entropy.as_mut_ptr())
            .row_argmax(out.row_argmax.as_mut_ptr())
            .row_statistics(out.row_statistics.as_mut_ptr())
            .loss(&mut out.sums[0])
            .z_loss(&mut out.sums[1])
            .n_valid(&mut out.sums[2])
            .n_correct(&mut out.sums[3])
            .n_out_of_range(&mut out.sums[4])
            .workspace(null_mut(), 0);
        if overwrite {
            call = call.overwrite_sums();
        }
        let (logits, labels) = (inputs.logits.as_ptr(), inputs.labels.as_ptr());
        unsafe { call.forward_backward(logits, dlogits.as_mut_ptr(), labels, host) }.unwrap();
        out.dlogits = exact(&dlogits);
        if !overwrite {
            // One rounding, of a sum of at most 1024.
            for (sum, expected) in out.sums.iter().zip(&expected.sums) {
                assert!((sum - 1000.0 - expected).abs() <= 512.0 * f32::EPSILON, "{:?}", out.sums);
            }
            out.sums = expected.sums;
        }
        assert_eq!(out, expected);

        let saved = SavedPointer::Statistics(out.row_statistics.as_ptr());
        let mut again = padded::<f32>();
        unsafe { bare.backward(logits, again.as_mut_ptr(), labels, saved, host) }.unwrap();
        assert_eq!(again, expected.dlogits);
    }
    assert_eq!(unsafe { greyhound::workspace_size(host) }, Ok(0));
}

#[test]
fn the_stream_calls_forward_pass_writes_no_gradient() {
    let inputs = inputs::<f32, i64>();
    let mut loss = 0.0;
    let call = StreamCall::new(Loss::default().ignore_index(IGNORE.into()), BATCH, VOCAB)
        .logits_row_stride(LOGITS_STRIDE)
        .loss(&mut loss);
    let logits = inputs.logits.clone();
    unsafe {
        call.forward(logits.as_ptr(), inputs.labels.as_ptr(), sys::GH_STREAM_HOST.cast()).unwrap();
    }
    assert!(loss > 0.0);
    assert_eq!(logits, inputs.logits);
}

#[test]
fn the_default_loss_is_the_plain_one() {
    let (logits, labels) = ([0.5_f32, 2.0, -1.0, 0.0], [1_i64, 0]);
    let (mut short, mut dlogits) = (logits, [0.0; 4]);
    let sums =
        greyhound::cross_entropy_fwd_bwd(&mut short, &labels, 2, Default::default()).unwrap();
    let totals =
        HostCall::new(Loss::default(), 2).forward_backward(&logits, &mut dlogits, &labels).unwrap();
    assert_eq!(dlogits, short);
    assert_eq!((totals.loss, totals.z_loss, totals.n_valid), (sums.ce_sum, 0.0, sums.n_valid));
}

#[test]
fn labels_out_of_range_can_be_counted() {
    let (logits, labels) = ([0.0_f32; 4], [0, 2]);
    let mut dlogits = [0.0; 4];
    let totals = HostCall::new(Loss::default(), 2)
        .count_out_of_range()
        .count_correct()
        .forward_backward(&logits, &mut dlogits, &labels)
        .unwrap();
    assert_eq!((totals.n_valid, totals.n_out_of_range), (2.0, Some(1.0)));
    assert_eq!(totals.n_correct, Some(1.0));
    assert!(totals.loss.is_nan());
    assert_eq!(dlogits[..2], [-0.5, 0.5]);
    assert!(dlogits[2].is_nan() && dlogits[3].is_nan());
}

#[test]
fn an_empty_batch() {
    let totals = HostCall::new(Loss::default().reduction(Reduction::Mean), 5)
        .row_loss(&mut [])
        .row_statistics(&mut [])
        .forward_backward_in_place::<f32, i64>(&mut [], &[])
        .unwrap();
    assert_eq!(totals, Totals::default());
    HostCall::new(Loss::default(), 5)
        .backward_in_place::<f32, i64>(&mut [], &[], Saved::Statistics(&[]))
        .unwrap();
}
