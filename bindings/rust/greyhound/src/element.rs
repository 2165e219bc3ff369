use std::slice;

use greyhound_sys as sys;

mod sealed {
    pub trait Sealed {
        const DTYPE: greyhound_sys::gh_dtype;
    }
}

/// An element type of logits and of their gradient: [`f32`], [`F16`] or [`Bf16`].
pub trait Element: Copy + sealed::Sealed {}

pub(crate) const fn dtype_of<T: Element>() -> sys::gh_dtype {
    T::DTYPE
}

impl sealed::Sealed for f32 {
    const DTYPE: sys::gh_dtype = sys::GH_DTYPE_F32;
}
impl Element for f32 {}

/// An IEEE 754 binary16 number, by its bits.
///
/// Laid out as a `u16`, so that slices of any other crate's half-precision type can be borrowed
/// with [`F16::from_bits_mut`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct F16(u16);

impl sealed::Sealed for F16 {
    const DTYPE: sys::gh_dtype = sys::GH_DTYPE_F16;
}
impl Element for F16 {}

impl F16 {
    /// The number with these bits.
    pub const fn from_bits(bits: u16) -> Self {
        F16(bits)
    }

    /// The number's bits.
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// The same memory, seen as numbers.
    pub fn from_bits_mut(bits: &mut [u16]) -> &mut [Self] {
        // SAFETY: repr(transparent) over u16, and every bit pattern is a number.
        unsafe { slice::from_raw_parts_mut(bits.as_mut_ptr().cast(), bits.len()) }
    }

    /// The nearest number; of two equally near ones, the one with an even last bit.
    pub fn from_f32(value: f32) -> Self {
        let sign = (value.to_bits() >> 16 & 0x8000) as u16;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        let bits = if magnitude > 0x7f80_0000 {
            // NaN stays a (quiet) NaN with the payload's upper bits.
            0x7e00 | (magnitude >> 13 & 0x1ff) as u16
        } else if magnitude >= 0x4780_0000 {
            0x7c00 // 65536 and more, and infinity
        } else if magnitude >= 0x3880_0000 {
            // Normal: drop 13 bits of the significand, and move the exponent's bias from 127 to 15.
            // A carry out of the significand moves on into the exponent, up to infinity.
            (round_off(magnitude, 13) - ((127 - 15) << 10)) as u16
        } else if magnitude >= 0x3300_0000 {
            // Subnormal: in units of 2^-24.
            let significand = magnitude & 0x007f_ffff | 0x0080_0000;
            round_off(significand, 126 - (magnitude >> 23)) as u16
        } else {
            0 // less than half of the smallest
        };
        F16(sign | bits)
    }
}

impl From<F16> for f32 {
    /// Exact.
    fn from(value: F16) -> f32 {
        let sign = u32::from(value.0 & 0x8000) << 16;
        let exponent = u32::from(value.0 >> 10 & 0x1f);
        let significand = u32::from(value.0 & 0x3ff);
        let magnitude = match exponent {
            0 => (significand as f32 * 2_f32.powi(-24)).to_bits(),
            0x1f => 0x7f80_0000 | significand << 13,
            _ => (exponent + (127 - 15)) << 23 | significand << 13,
        };
        f32::from_bits(sign | magnitude)
    }
}

/// A bfloat16 number, by its bits: the upper half of an [`f32`].
///
/// Laid out as a `u16`, so that slices of any other crate's bfloat16 type can be borrowed with
/// [`Bf16::from_bits_mut`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct Bf16(u16);

impl sealed::Sealed for Bf16 {
    const DTYPE: sys::gh_dtype = sys::GH_DTYPE_BF16;
}
impl Element for Bf16 {}

impl Bf16 {
    /// The number with these bits.
    pub const fn from_bits(bits: u16) -> Self {
        Bf16(bits)
    }

    /// The number's bits.
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// The same memory, seen as numbers.
    pub fn from_bits_mut(bits: &mut [u16]) -> &mut [Self] {
        // SAFETY: repr(transparent) over u16, and every bit pattern is a number.
        unsafe { slice::from_raw_parts_mut(bits.as_mut_ptr().cast(), bits.len()) }
    }

    /// The nearest number; of two equally near ones, the one with an even last bit.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            // Rounding could carry a NaN into infinity; make it quiet instead.
            return Bf16((bits >> 16) as u16 | 0x40);
        }
        Bf16(round_off(bits, 16) as u16)
    }
}

impl From<Bf16> for f32 {
    /// Exact.
    fn from(value: Bf16) -> f32 {
        f32::from_bits(u32::from(value.0) << 16)
    }
}

/// `bits` without its last `count` (1 to 31), rounded to nearest, ties to even.
fn round_off(bits: u32, count: u32) -> u32 {
    let kept = bits >> count;
    let dropped = bits & ((1 << count) - 1);
    let half = 1 << (count - 1);
    kept + u32::from(dropped > half || dropped == half && kept & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks `round` between all neighbouring numbers of a 16-bit format: exact values stay, the
    /// middle goes to the even neighbour, and its fp32 neighbours go to their own side.
    fn check_rounding(infinity: u16, widen: fn(u16) -> f32, round: fn(f32) -> u16) {
        for low in 0..infinity {
            let high = low + 1;
            let (a, b) = (widen(low), widen(high));
            assert_eq!(round(a), low, "{:#06x}", low);
            let (a, mut b) = (f64::from(a), f64::from(b));
            if high == infinity {
                // In rounding, infinity stands where the next finite number would.
                b = a + (a - f64::from(widen(low - 1)));
            }
            let middle = ((a + b) / 2.0) as f32;
            assert_eq!(f64::from(middle), (a + b) / 2.0, "the middle is an fp32 number");
            let even = if low & 1 == 0 { low } else { high };
            assert_eq!(round(middle), even, "between {:#06x} and {:#06x}", low, high);
            assert_eq!(round(f32::from_bits(middle.to_bits() - 1)), low, "{:#06x}", low);
            assert_eq!(round(f32::from_bits(middle.to_bits() + 1)), high, "{:#06x}", high);
            assert_eq!(round(-middle), even | 0x8000);
        }
        assert_eq!(round(f32::INFINITY), infinity);
        assert_eq!(round(f32::NEG_INFINITY), infinity | 0x8000);
        for nan in [f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)] {
            assert!(round(nan) & 0x7fff > infinity);
            assert!(widen(round(nan)).is_nan());
        }
    }

    #[test]
    fn f16_rounds_to_nearest_even() {
        check_rounding(
            0x7c00,
            |bits| F16::from_bits(bits).into(),
            |value| F16::from_f32(value).to_bits(),
        );
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        check_rounding(
            0x7f80,
            |bits| Bf16::from_bits(bits).into(),
            |value| Bf16::from_f32(value).to_bits(),
        );
    }

    #[test]
    fn f16_widens_to_known_values() {
        for (bits, value) in [
            (0x0001, 2_f32.powi(-24)),
            (0x0400, 2_f32.powi(-14)),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(f32::from(F16::from_bits(bits)), value);
        }
    }
}
