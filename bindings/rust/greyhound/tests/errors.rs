//! What the wrapper and the library refuse: the kind, a message that names the argument, and
//! memory left as it was.

use greyhound::{
    cross_entropy_fwd_bwd, cross_entropy_fwd_bwd_on_stream, DeviceSums, Error, ErrorKind, Options,
};
use std::ptr::{null, null_mut};

const UNTOUCHED: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

/// Checks a call on logits [2, 3] that must fail.
fn refused(labels: &[i64], vocab: usize, options: Options) -> Error {
    let mut logits = UNTOUCHED;
    let error = cross_entropy_fwd_bwd(&mut logits, labels, vocab, options).unwrap_err();
    assert_eq!(logits, UNTOUCHED);
    assert_eq!(error.to_string(), error.message());
    error
}

#[test]
fn a_label_out_of_range() {
    let error = refused(&[2, 3], 3, Options::default());
    assert_eq!(error.kind(), ErrorKind::LabelOutOfRange);
    assert!(error.message().contains("labels[1] = 3"), "{}", error);

    let error = refused(&[-1, 3], 3, Options::default().ignore_index(3));
    assert!(error.message().contains("labels[0] = -1"), "{}", error);
}

#[test]
fn slices_that_do_not_match_the_shape() {
    // The last product is 6 once it has wrapped around.
    let wrapping = usize::MAX / 2 + 4;
    for &(batch, vocab) in &[(1, 3), (3, 3), (2, 2), (2, 4), (2, usize::MAX), (2, wrapping)] {
        let error = refused(&[0, 1, 2][..batch], vocab, Options::default());
        assert_eq!(error.kind(), ErrorKind::InvalidSize);
        assert!(error.message().contains("logits.len() = 6"), "{}", error);
        assert!(error.message().contains(&vocab.to_string()), "{}", error);
    }
}

#[test]
fn an_empty_vocabulary() {
    let error = cross_entropy_fwd_bwd::<f32>(&mut [], &[0], 0, Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize);
    assert!(error.message().contains("vocab = 0"), "{}", error);
}

#[test]
fn an_empty_batch_is_no_error() {
    let sums = cross_entropy_fwd_bwd::<f32>(&mut [], &[], 5, Options::default()).unwrap();
    assert_eq!((sums.ce_sum, sums.z_sum, sums.n_valid), (0.0, 0.0, 0.0));
}

#[test]
fn a_multiplier_that_is_not_finite() {
    for &multiplier in &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = refused(&[0, 1], 3, Options::default().z_loss_multiplier(multiplier));
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert!(error.message().contains("z_loss_multiplier"), "{}", error);
    }
}

const NO_SUMS: DeviceSums =
    DeviceSums { ce_sum: null_mut(), z_sum: null_mut(), n_valid: null_mut() };

#[test]
fn null_and_misaligned_pointers() {
    let mut ce_sum = 0.0;
    let sums = DeviceSums { ce_sum: &mut ce_sum, ..NO_SUMS };
    // No memory is touched: both calls fail at their arguments, on any machine.
    let error = unsafe {
        cross_entropy_fwd_bwd_on_stream::<f32>(
            null_mut(),
            null(),
            1,
            1,
            Options::default(),
            sums,
            null_mut(),
        )
    };
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NullPointer);
    assert!(error.message().contains("logits = NULL"), "{}", error);

    let odd = 0x1001 as *mut f32;
    let labels = 0x2000 as *const i64;
    let error = unsafe {
        cross_entropy_fwd_bwd_on_stream(odd, labels, 1, 1, Options::default(), sums, null_mut())
    };
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MisalignedPointer);
    assert!(error.message().contains("0x1001"), "{}", error);
}

#[test]
#[cfg(target_pointer_width = "64")]
fn a_size_beyond_int64() {
    let call = |batch, vocab| unsafe {
        cross_entropy_fwd_bwd_on_stream::<f32>(
            null_mut(),
            null(),
            batch,
            vocab,
            Options::default(),
            NO_SUMS,
            null_mut(),
        )
    };
    let error = call(usize::MAX, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize);
    assert!(error.message().contains("batch = 18446744073709551615"), "{}", error);
    let error = call(0, 1 << 63).unwrap_err();
    assert!(error.message().contains("vocab = 9223372036854775808"), "{}", error);
}

#[test]
fn the_message_belongs_to_its_own_thread() {
    let threads: Vec<_> = (10..18)
        .map(|label| {
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let error = refused(&[0, label], 3, Options::default());
                    assert!(
                        error.message().contains(&format!("labels[1] = {}:", label)),
                        "{}",
                        error
                    );
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
