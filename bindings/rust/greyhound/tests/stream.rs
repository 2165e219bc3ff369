//! The raw call, on the one stream that exists on every machine: the host's.

use greyhound::{
    cross_entropy_fwd_bwd, cross_entropy_fwd_bwd_on_stream, scale_dlogits, DeviceSums, ErrorKind,
    Options, F16,
};
use greyhound_sys::GH_STREAM_HOST;
use std::ptr::null_mut;

#[test]
fn it_is_the_slice_call_on_pointers_and_adds_to_its_sums() {
    let input = [0.5_f32, -1.5, 2.0, 0.0, 3.0, -2.0, 1.0, 1.25];
    let labels = [3, 1];
    let options = Options::default().z_loss_multiplier(0.125);

    let mut expected = input;
    let expected_sums = cross_entropy_fwd_bwd(&mut expected, &labels, 4, options).unwrap();

    let mut logits = input;
    let (mut ce_sum, mut z_sum, mut n_valid) = (1000.0, 2000.0, 3000.0);
    let sums = DeviceSums { ce_sum: &mut ce_sum, z_sum: &mut z_sum, n_valid: &mut n_valid };
    unsafe {
        cross_entropy_fwd_bwd_on_stream(
            logits.as_mut_ptr(),
            labels.as_ptr(),
            2,
            4,
            options,
            sums,
            GH_STREAM_HOST.cast(),
        )
    }
    .unwrap();

    assert_eq!(logits, expected);
    assert_eq!(ce_sum, 1000.0 + expected_sums.ce_sum);
    assert_eq!(z_sum, 2000.0 + expected_sums.z_sum);
    assert_eq!(n_valid, 3002.0);
}

#[test]
fn two_of_the_sums_are_optional() {
    let mut logits = [0.0_f32; 2];
    let mut ce_sum = 0.0;
    let sums = DeviceSums { ce_sum: &mut ce_sum, z_sum: null_mut(), n_valid: null_mut() };
    unsafe {
        cross_entropy_fwd_bwd_on_stream(
            logits.as_mut_ptr(),
            [0].as_ptr(),
            1,
            2,
            Options::default(),
            sums,
            GH_STREAM_HOST.cast(),
        )
    }
    .unwrap();
    assert_eq!(logits, [-0.5, 0.5]);
    assert!((ce_sum - 2_f32.ln()).abs() <= 4.0 * f32::EPSILON, "{}", ce_sum);
}

#[test]
fn a_gradient_is_scaled_where_it_is() {
    let stream = GH_STREAM_HOST.cast();
    let mut dlogits = [0.5_f32, -1.5, 7.0, 0.25, 1.25];
    unsafe { scale_dlogits(dlogits.as_mut_ptr(), (2, 2), 3, &-2.0, stream) }.unwrap();
    assert_eq!(dlogits, [-1.0, 3.0, 7.0, -0.5, -2.5]); // 7 lies between the rows
    unsafe { scale_dlogits(dlogits.as_mut_ptr(), (1, 5), 0, &1.0, stream) }.unwrap();
    assert_eq!(dlogits, [-1.0, 3.0, 7.0, -0.5, -2.5]);

    let mut halves = [F16::from_f32(0.5), F16::from_f32(-3.0)];
    unsafe { scale_dlogits(halves.as_mut_ptr(), (1, 2), 0, &0.5, stream) }.unwrap();
    assert_eq!(halves[0].to_bits(), F16::from_f32(0.25).to_bits());
    assert_eq!(halves[1].to_bits(), F16::from_f32(-1.5).to_bits());

    let error =
        unsafe { scale_dlogits(dlogits.as_mut_ptr(), (2, 2), 1, &2.0, stream) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize);
}
