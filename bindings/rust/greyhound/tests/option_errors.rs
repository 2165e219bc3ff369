//! What the calls with options refuse, in the wrapper and in the library: the kind, a message that
//! names the argument, and memory left as it was.

use greyhound::{
    Error, ErrorKind, HostCall, Loss, Reduction, RowStatistics, Saved, SavedPointer, StreamCall,
};
use greyhound_sys::GH_STREAM_HOST;
use std::ptr::{null, null_mut};

const VOCAB: usize = 3;
const LABELS: [i64; 2] = [2, 0];
const LOGITS: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

fn host_call<'a>() -> HostCall<'a> {
    HostCall::new(Loss::default(), VOCAB)
}

/// Checks a call on logits [2, 3] that must fail, in place and into another slice.
fn refused<'a>(make: impl Fn() -> HostCall<'a>, kind: ErrorKind, message: &str) {
    let mut logits = LOGITS;
    let error = make().forward_backward_in_place(&mut logits, &LABELS).unwrap_err();
    check(&error, kind, message);
    assert_eq!(logits, LOGITS);
    let mut dlogits = LOGITS;
    let error = make().forward_backward(&logits, &mut dlogits, &LABELS).unwrap_err();
    check(&error, kind, message);
    assert_eq!(dlogits, LOGITS);
    check(&make().forward(&logits, &LABELS).unwrap_err(), kind, message);
}

/// The same for the backward pass.
fn refused_backward(call: HostCall, saved: Saved, kind: ErrorKind, message: &str) {
    let mut logits = LOGITS;
    let error = call.backward_in_place(&mut logits, &LABELS, saved).unwrap_err();
    check(&error, kind, message);
    assert_eq!(logits, LOGITS);
}

fn check(error: &Error, kind: ErrorKind, message: &str) {
    assert_eq!(error.kind(), kind, "{}", error);
    assert!(error.message().contains(message), "\"{}\" lacks \"{}\"", error, message);
}

#[test]
fn numbers_outside_their_domain() {
    let plain = Loss::default();
    for (loss, name) in [
        (plain.label_smoothing(1.5), "options.label_smoothing = 1.5"),
        (plain.z_loss_multiplier(f32::INFINITY), "options.z_loss_multiplier = inf"),
        (plain.logit_scale(0.0), "options.logit_scale = 0"),
        (plain.softcap(-1.0), "options.softcap = -1"),
    ] {
        refused(|| HostCall::new(loss, VOCAB), ErrorKind::InvalidValue, name);
    }
}

#[test]
fn slices_of_another_length() {
    let floats = [1.0_f32; 4];
    for length in [0, 1, 3, 4] {
        let slice = &floats[..length];
        let named = |name: &str| format!("{}.len() = {}: must be", name, length);
        let kind = ErrorKind::InvalidSize;
        refused(|| host_call().row_dloss(slice), kind, &named("row_dloss"));
        refused(|| host_call().row_dentropy(slice), kind, &named("row_dentropy"));
        if length != VOCAB {
            refused(|| host_call().class_weights(slice), kind, &named("class_weights"));
        }
        refused_backward(host_call(), Saved::Lse(slice), kind, &named("saved"));
        let statistics = vec![RowStatistics::default(); length];
        refused_backward(host_call(), Saved::Statistics(&statistics), kind, &named("saved"));

        let mut out = vec![7.0; length];
        let mut argmax = vec![7; length];
        let mut statistics = vec![RowStatistics::default(); length];
        let forward = |call: HostCall| call.forward(&LOGITS, &LABELS).unwrap_err();
        check(&forward(host_call().row_loss(&mut out)), kind, &named("row_loss"));
        check(&forward(host_call().row_lse(&mut out)), kind, &named("row_lse"));
        let error = forward(host_call().row_target_log_prob(&mut out));
        check(&error, kind, &named("row_target_log_prob"));
        check(&forward(host_call().row_entropy(&mut out)), kind, &named("row_entropy"));
        check(&forward(host_call().row_argmax(&mut argmax)), kind, &named("row_argmax"));
        let error = forward(host_call().row_statistics(&mut statistics));
        check(&error, kind, &named("row_statistics"));
        assert!(out.iter().all(|&x| x == 7.0) && argmax.iter().all(|&x| x == 7));
    }
}

#[test]
fn matrices_of_another_size() {
    let matrix = [1.0_f32; 16];
    let mut out = [7.0_f32; 16];
    let saved = [0.0; 2];
    // Two rows of 3 in rows of 5: from 8 elements, without what lies behind the last row, to 10.
    for (stride, right) in [(0, 6..=6), (3, 6..=6), (5, 8..=10)] {
        for length in 0..16 {
            let call = || host_call().logits_row_stride(stride).dlogits_row_stride(stride);
            let slice = &matrix[..length];
            let enough = &matrix[..*right.start()];
            let results = [
                ("logits", call().forward(slice, &LABELS).map(|_| ())),
                (
                    "logits",
                    call().forward_backward_in_place(&mut out[..length], &LABELS).map(|_| ()),
                ),
                ("logits", call().forward_backward(slice, &mut [0.0; 10], &LABELS).map(|_| ())),
                (
                    "dlogits",
                    call().forward_backward(enough, &mut out[..length], &LABELS).map(|_| ()),
                ),
                (
                    "logits",
                    call().backward_in_place(&mut out[..length], &LABELS, Saved::Lse(&saved)),
                ),
                (
                    "dlogits",
                    call().backward(enough, &mut out[..length], &LABELS, Saved::Lse(&saved)),
                ),
            ];
            for (i, (name, result)) in results.into_iter().enumerate() {
                if right.contains(&length) {
                    // The third has an output of ten elements, which suits rows of five alone.
                    assert!(result.is_ok() || i == 2 && stride != 5, "{} of {}", name, length);
                } else {
                    let message = format!("{}.len() = {}: must be", name, length);
                    check(&result.unwrap_err(), ErrorKind::InvalidSize, &message);
                }
            }
        }
    }
    let narrow = || host_call().logits_row_stride(2);
    let error = narrow().forward(&matrix[..4], &LABELS).unwrap_err();
    check(&error, ErrorKind::InvalidSize, "options.logits_row_stride = 2");
    // The product of rows and stride wraps around to 6.
    let wide = host_call().logits_row_stride(usize::MAX / 2 + 4);
    let error = wide.forward(&LOGITS, &LABELS).unwrap_err();
    check(&error, ErrorKind::InvalidSize, "logits.len() = 6");
}

#[test]
fn a_backward_pass_with_outputs() {
    let (mut out, mut argmax, mut statistics) = ([7.0; 2], [7; 2], [RowStatistics::default(); 2]);
    let saved = [RowStatistics::default(); 2];
    let refused = |call: HostCall, name: &str| {
        refused_backward(call, Saved::Statistics(&saved), ErrorKind::InvalidValue, name);
    };
    refused(host_call().row_loss(&mut out), "options.row_loss");
    refused(host_call().row_lse(&mut out), "options.row_lse");
    refused(host_call().row_target_log_prob(&mut out), "options.row_target_log_prob");
    refused(host_call().row_entropy(&mut out), "options.row_entropy");
    refused(host_call().row_argmax(&mut argmax), "options.row_argmax");
    refused(host_call().row_statistics(&mut statistics), "options.row_statistics");
    refused(host_call().count_correct(), "options.n_correct");
    refused(host_call().count_out_of_range(), "options.n_out_of_range");
}

#[test]
fn an_entropy_gradient_from_lse() {
    let call = host_call().row_dentropy(&[1.0, 1.0]);
    let saved = Saved::Lse(&[1.0, 1.0]);
    refused_backward(call, saved, ErrorKind::InvalidValue, "options.row_dentropy");
}

#[test]
fn labels_out_of_range() {
    let mut logits = LOGITS;
    for error in [
        host_call().forward_backward_in_place(&mut logits, &[2_i32, 3]).unwrap_err(),
        host_call().backward_in_place(&mut logits, &[2_i64, 3], Saved::Lse(&[1.0; 2])).unwrap_err(),
    ] {
        check(&error, ErrorKind::LabelOutOfRange, "labels[1] = 3: not in [0, 3)");
    }
    assert_eq!(logits, LOGITS);
}

// No memory is touched below: the calls fail at their arguments, on any machine.

#[test]
fn a_mean_on_a_cuda_stream_without_a_workspace() {
    let call = StreamCall::new(Loss::default().reduction(Reduction::Mean), 2, VOCAB);
    let mut logits = LOGITS;
    let pointer = logits.as_mut_ptr();
    let error = unsafe { call.forward_backward(pointer, pointer, LABELS.as_ptr(), null_mut()) };
    check(&error.unwrap_err(), ErrorKind::NullPointer, "options.workspace = NULL");
    assert_eq!(logits, LOGITS);
}

#[test]
fn null_misaligned_and_overlapping_pointers() {
    let call = StreamCall::new(Loss::default(), 2, VOCAB);
    let host = GH_STREAM_HOST.cast();
    let (labels, saved) = (LABELS.as_ptr(), SavedPointer::Lse([0.0; 2].as_ptr()));
    let logits = LOGITS.as_ptr();

    let error = unsafe { call.forward(logits, labels, host) }.unwrap_err();
    check(&error, ErrorKind::NullPointer, "dlogits = NULL");
    let error = unsafe { call.backward(logits, null_mut(), labels, saved, host) }.unwrap_err();
    check(&error, ErrorKind::NullPointer, "dlogits = NULL");
    let nothing = SavedPointer::Statistics(null());
    let error = unsafe { call.backward(logits, logits as *mut _, labels, nothing, host) };
    check(&error.unwrap_err(), ErrorKind::NullPointer, "row_statistics = NULL");

    let odd = call.row_loss(0x1002 as *mut f32);
    let error = unsafe { odd.forward(logits, labels, host) }.unwrap_err();
    check(&error, ErrorKind::MisalignedPointer, "options.row_loss = 0x1002");

    let overlapping = call.loss(logits as *mut f32);
    let error = unsafe { overlapping.forward(logits, labels, host) }.unwrap_err();
    check(&error, ErrorKind::Overlap, "options.loss = 0x");
}

#[test]
#[cfg(target_pointer_width = "64")]
fn sizes_beyond_int64() {
    let check = |call: StreamCall, name: &str| {
        let error = unsafe { call.forward::<f32, i64>(null(), null(), null_mut()) }.unwrap_err();
        check(&error, ErrorKind::InvalidSize, name);
    };
    let call = |batch, vocab| StreamCall::new(Loss::default(), batch, vocab);
    check(call(usize::MAX, 1), "batch = 18446744073709551615");
    check(call(1, 1 << 63), "vocab = 9223372036854775808");
    check(call(1, 1).logits_row_stride(1 << 63), "logits_row_stride = 9223372036854775808");
    check(call(1, 1).dlogits_row_stride(1 << 63), "dlogits_row_stride = 9223372036854775808");
}
