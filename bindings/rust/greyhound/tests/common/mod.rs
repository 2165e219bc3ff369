//! What the tests on random numbers share.
#![allow(dead_code)] // no test uses all of it

use greyhound::{Bf16, Element, F16};
use greyhound_sys as sys;
use std::time::{SystemTime, UNIX_EPOCH};

/// An element type with its C name and its conversions.
pub trait Number: Element {
    const TYPE: sys::gh_dtype;
    fn round(value: f32) -> Self;
    fn exact(self) -> f32;
}

impl Number for f32 {
    const TYPE: sys::gh_dtype = sys::GH_DTYPE_F32;
    fn round(value: f32) -> Self {
        value
    }
    fn exact(self) -> f32 {
        self
    }
}

impl Number for F16 {
    const TYPE: sys::gh_dtype = sys::GH_DTYPE_F16;
    fn round(value: f32) -> Self {
        F16::from_f32(value)
    }
    fn exact(self) -> f32 {
        self.into()
    }
}

impl Number for Bf16 {
    const TYPE: sys::gh_dtype = sys::GH_DTYPE_BF16;
    fn round(value: f32) -> Self {
        Bf16::from_f32(value)
    }
    fn exact(self) -> f32 {
        self.into()
    }
}

/// splitmix64.
pub struct Random(u64);

impl Random {
    /// Seeded by the clock; the seed is part of what a failing test prints.
    pub fn fresh() -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        println!("seed {}", seed);
        Random(seed)
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.next() >> 40) as f32 / (1 << 24) as f32
    }
    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.uniform(0.25, 2.0)).collect()
    }
}
