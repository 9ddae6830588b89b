//! Seeded chance: every decision of a simulation comes from one number, so that a failure can be played again.

/// A stream of pseudo-random numbers (splitmix64: small, fast, and the same on every machine).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The stream of that name under a seed. Each part of the simulation has its own, so that one drawing more does not
    /// shift what the others draw.
    pub fn new(seed: u64, name: &str) -> Self {
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        for byte in name.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        Self(mix(state))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// One of `0..below`; 0 if there is none.
    pub fn below(&mut self, below: u64) -> u64 {
        if below == 0 { 0 } else { self.number() % below }
    }

    /// From `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `percent` of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of a few. The slice must not be empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap_or(0)]
    }

    pub fn millis(&mut self, low: u64, high: u64) -> std::time::Duration {
        std::time::Duration::from_millis(self.between(low, high))
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
