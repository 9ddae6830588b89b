//! How many tokens a text will be, before a provider has said so, and how far off that may be.
//!
//! No tokenizer is at hand for most models, so tokens are estimated from what one pass over a text can count, and the
//! weights of those counts are learned from the usage the provider reports. [`Features`] are the counts: integers that add
//! up, so a request's are the sum of its parts'. [`Estimator`] has the weights and knows its own errors. A caller that
//! keeps the tokens reported for the last request asks only about what was added since ([`Estimator::bound`]), which is
//! what makes the error small.
//!
//! It is a cache: nothing true about a run depends on it, and an estimator that cannot be read is a new one. Floats stay
//! inside; equal histories give equal numbers.

use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What can be counted in one pass. All counts add up, save that a piece which straddles a cut counts in both parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Features {
    /// UTF-8 bytes: a byte-level tokenizer never makes more tokens than these.
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// Runs of ASCII letters, in pieces of up to [`WORD_PIECE`] letters.
    #[serde(skip_serializing_if = "is_zero")]
    pub words: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub digits: u64,
    /// Runs of other ASCII signs, in pieces of up to [`PUNCTUATION_PIECE`].
    #[serde(skip_serializing_if = "is_zero")]
    pub punctuation: u64,
    /// Runs of more than one blank; a single one is part of the word after it.
    #[serde(skip_serializing_if = "is_zero")]
    pub spaces: u64,
    /// Runs of newlines.
    #[serde(skip_serializing_if = "is_zero")]
    pub newlines: u64,
    /// Code points of two bytes: Latin with accents, Greek, Cyrillic, Hebrew, Arabic.
    #[serde(skip_serializing_if = "is_zero")]
    pub two_byte: u64,
    /// Code points of three bytes: Chinese, Japanese, Korean, Indic scripts, box drawing.
    #[serde(skip_serializing_if = "is_zero")]
    pub three_byte: u64,
    /// Code points of four bytes: emoji, rare ideographs.
    #[serde(skip_serializing_if = "is_zero")]
    pub four_byte: u64,
    /// Bytes of long runs that look like base64 or hex. They count here only.
    #[serde(skip_serializing_if = "is_zero")]
    pub blob: u64,
    /// Messages: each has a role and delimiters around its text.
    #[serde(skip_serializing_if = "is_zero")]
    pub messages: u64,
    /// Tokens of images, by [`image_tokens`].
    #[serde(skip_serializing_if = "is_zero")]
    pub images: u64,
    /// How many images, and the bytes they take in a request, where they stand in base64: for the budgets of their own
    /// that requests have (`context.md` §1).
    #[serde(skip_serializing_if = "is_zero")]
    pub pictures: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub picture_bytes: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Features {
    /// Of one text. Linear, no allocation.
    pub fn of(text: &str) -> Self {
        let mut counted = Self { bytes: text.len() as u64, ..Self::default() };
        // Lengths so far of the run the last byte belongs to; all others are 0.
        let (mut word, mut signs, mut blanks, mut lines) = (0_u32, 0_u32, 0_u32, 0_u32);
        // The run that may be a blob: its length, its digits, and what had been counted before it.
        let (mut length, mut digits) = (0_u64, 0_u64);
        let mut before = (0, 0, 0);
        for &byte in text.as_bytes() {
            let class = CLASSES[usize::from(byte)];
            if class & MAYBE_BLOB != 0 {
                if length == 0 {
                    before = (counted.words, counted.digits, counted.punctuation);
                    digits = 0;
                }
                length += 1;
            } else if length > 0 {
                counted.settle_blob(before, length, digits);
                length = 0;
            }
            match class & KIND {
                LETTER => {
                    counted.words += u64::from(word.is_multiple_of(WORD_PIECE));
                    word += 1;
                    (signs, blanks, lines) = (0, 0, 0);
                }
                DIGIT => {
                    counted.digits += 1;
                    digits += 1;
                    (word, signs, blanks, lines) = (0, 0, 0, 0);
                }
                SIGN => {
                    counted.punctuation += u64::from(signs.is_multiple_of(PUNCTUATION_PIECE));
                    signs += 1;
                    (word, blanks, lines) = (0, 0, 0);
                }
                BLANK => {
                    counted.spaces += u64::from(blanks == 1);
                    blanks += 1;
                    (word, signs, lines) = (0, 0, 0);
                }
                NEWLINE => {
                    counted.newlines += u64::from(lines == 0);
                    lines += 1;
                    (word, signs, blanks) = (0, 0, 0);
                }
                // A continuation byte belongs to the code point before it.
                CONTINUATION => {}
                lead => {
                    counted.two_byte += u64::from(lead == LEAD_2);
                    counted.three_byte += u64::from(lead == LEAD_3);
                    counted.four_byte += u64::from(lead == LEAD_4);
                    (word, signs, blanks, lines) = (0, 0, 0, 0);
                }
            }
        }
        counted.settle_blob(before, length, digits);
        counted
    }

    /// Of one message with this text.
    pub fn of_message(text: &str) -> Self {
        Self { messages: 1, ..Self::of(text) }
    }

    /// Of images that are this many tokens by [`image_tokens`].
    pub fn of_images(tokens: u64) -> Self {
        Self { images: tokens, ..Self::default() }
    }

    /// Of one image of a content part: so many pixels wide and high, and so many bytes as a file. Without bytes there is
    /// none: what stands for it is text.
    pub fn of_image(width: u32, height: u32, bytes: u64) -> Self {
        Self {
            images: image_tokens(width, height, bytes),
            pictures: u64::from(bytes > 0),
            picture_bytes: bytes.div_ceil(3).saturating_mul(4),
            ..Self::default()
        }
    }

    /// What all of it takes in a request, in bytes.
    pub fn sent_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.picture_bytes)
    }

    /// A run of `length` blob bytes ended: if it looks like one, what was counted in it is taken back.
    fn settle_blob(&mut self, before: (u64, u64, u64), length: u64, digits: u64) {
        let is_unbroken = self.punctuation == before.2;
        if length >= BLOB_MIN && (is_unbroken || digits * BLOB_DIGITS >= length) {
            (self.words, self.digits, self.punctuation) = before;
            self.blob += length;
        }
    }

    /// In the order of [`PRIOR`].
    fn vector(&self) -> Vector {
        [
            self.words,
            self.digits,
            self.punctuation,
            self.spaces,
            self.newlines,
            self.two_byte,
            self.three_byte,
            self.four_byte,
            self.blob,
            self.messages,
        ]
        .map(|count| count as f64)
    }

    fn zip(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: each(self.bytes, other.bytes),
            words: each(self.words, other.words),
            digits: each(self.digits, other.digits),
            punctuation: each(self.punctuation, other.punctuation),
            spaces: each(self.spaces, other.spaces),
            newlines: each(self.newlines, other.newlines),
            two_byte: each(self.two_byte, other.two_byte),
            three_byte: each(self.three_byte, other.three_byte),
            four_byte: each(self.four_byte, other.four_byte),
            blob: each(self.blob, other.blob),
            messages: each(self.messages, other.messages),
            images: each(self.images, other.images),
            pictures: each(self.pictures, other.pictures),
            picture_bytes: each(self.picture_bytes, other.picture_bytes),
        }
    }
}

impl Add for Features {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl AddAssign for Features {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Takes a part out of a sum it is in. Never below zero: a part that was not in it is the caller's mistake, and too low an
/// estimate would be the worse answer to it than none.
impl Sub for Features {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

impl std::iter::Sum for Features {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

/// Tokens of a request or a part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bound {
    /// As likely too high as too low.
    pub likely: u64,
    /// Exceeded about once in a hundred times. Never below `likely`.
    pub upper: u64,
}

/// What is known of the tokenizer of one model at one provider with one list of tools. Kept across runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimator {
    /// Tokens for one of each count.
    weights: Vector,
    /// How uncertain each weight is, and with which other: the P of recursive least squares.
    covariance: [Vector; KINDS],
    /// Reported over likely tokens of the latest turns, oldest first.
    ratios: Vec<f64>,
    /// Turns for which the bound stays wider, since one broke through it.
    surprised: u32,
    /// How much of each count was learned from.
    seen: Vector,
    /// Reported tokens over those of [`image_tokens`].
    image_factor: f64,
}

impl Default for Estimator {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimator {
    /// For a model of which nothing is known.
    pub fn new() -> Self {
        let mut covariance = [[0.0; KINDS]; KINDS];
        for (kind, row) in covariance.iter_mut().enumerate() {
            row[kind] = variance(kind);
        }
        Self { weights: PRIOR, covariance, ratios: Vec::new(), surprised: 0, seen: [0.0; KINDS], image_factor: 1.0 }
    }

    /// The likely number of tokens.
    pub fn estimate(&self, features: &Features) -> u64 {
        tokens(self.likely(features))
    }

    /// A number of tokens that is exceeded about once in a hundred times, and never more than the text has bytes.
    pub fn upper(&self, features: &Features) -> u64 {
        let usual = self.quantile();
        let mut text = 0.0;
        for (kind, count) in features.vector().into_iter().enumerate().take(MESSAGE) {
            let met = self.seen[kind] >= HARD_LEARNED || !HARD.contains(&kind);
            let factor = if met { usual } else { usual.max(COLD_HARD) };
            text += self.widened(factor) * self.weights[kind] * count;
        }
        let text = text.min(features.bytes as f64);
        let around = self.widened(usual) * self.of_messages(features) + IMAGE_FACTOR * self.of_images(features);
        tokens(text + around).max(self.estimate(features))
    }

    /// Of a request of which all but `tail` is known to be `anchored` tokens.
    pub fn bound(&self, anchored: u64, tail: &Features) -> Bound {
        Bound { likely: anchored.saturating_add(self.estimate(tail)), upper: anchored.saturating_add(self.upper(tail)) }
    }

    /// A provider reported `reported` tokens more than for the request before, and `added` was appended in between. Only
    /// for requests that begin with the one before. What cannot be (nothing reported, far more or less than any tokenizer
    /// makes) is not learned from.
    pub fn learn(&mut self, added: &Features, reported: u64) {
        let likely = self.likely(added);
        let ratio = reported as f64 / likely;
        if reported == 0 || likely < 1.0 || !(1.0 / ABSURD..=ABSURD).contains(&ratio) {
            return;
        }
        self.remember(ratio, reported > self.upper(added));
        for (seen, count) in self.seen.iter_mut().zip(added.vector()) {
            *seen += count;
        }
        let images = self.of_images(added);
        if images > likely / 2.0 {
            let text = likely - images;
            let seen = (reported as f64 - text).max(0.0) / added.images as f64;
            self.image_factor = (self.image_factor + IMAGE_PACE * (seen - self.image_factor)).clamp(0.05, 20.0);
        } else {
            self.adjust(added, (reported as f64 - images).max(1.0));
        }
        if !self.is_sound() {
            *self = Self::new();
        }
    }

    fn likely(&self, features: &Features) -> f64 {
        self.of_text(features) + self.of_messages(features) + self.of_images(features)
    }

    /// A byte-level tokenizer cannot make more tokens than there are bytes, whatever the weights say.
    fn of_text(&self, features: &Features) -> f64 {
        let counts = features.vector();
        dot(&self.weights[..MESSAGE], &counts[..MESSAGE]).min(features.bytes as f64)
    }

    fn of_messages(&self, features: &Features) -> f64 {
        self.weights[MESSAGE] * features.messages as f64
    }

    fn of_images(&self, features: &Features) -> f64 {
        self.image_factor * features.images as f64
    }

    /// After a surprise the bound is twice as far off.
    fn widened(&self, factor: f64) -> f64 {
        if self.surprised > 0 { 1.0 + 2.0 * (factor - 1.0) } else { factor }
    }

    /// What the likely number is multiplied by to be an upper bound. The conformal quantile of the ratios seen: of n + 1 ratios, the new one among them, 99 % are at most this.
    fn quantile(&self) -> f64 {
        let seen = self.ratios.len();
        let largest = self.ratios.iter().copied().fold(0.0, f64::max);
        if seen < ENOUGH {
            return (largest * 1.1).max(COLD);
        }
        let rank = ((seen + 1) * 99).div_ceil(100).min(seen);
        let mut sorted = self.ratios.clone();
        let (_, at, _) = sorted.select_nth_unstable_by(rank - 1, f64::total_cmp);
        at.max(1.0)
    }

    fn remember(&mut self, ratio: f64, broke_through: bool) {
        self.surprised = if broke_through { SURPRISED_TURNS } else { self.surprised.saturating_sub(1) };
        if self.ratios.len() >= RATIOS {
            self.ratios.remove(0);
        }
        self.ratios.push(ratio);
    }

    /// One step of recursive least squares with forgetting, on relative errors: a small turn teaches as much as a large one.
    fn adjust(&mut self, added: &Features, reported: f64) {
        let x = added.vector().map(|count| count / reported);
        let error = 1.0 - dot(&self.weights, &x);
        let px = self.covariance.map(|row| dot(&row, &x));
        let scale = NOISE + dot(&x, &px);
        for kind in 0..KINDS {
            let moved = self.weights[kind] + px[kind] / scale * error;
            self.weights[kind] = moved.clamp(0.0, CEILING[kind]);
        }
        for row in 0..KINDS {
            for column in 0..KINDS {
                self.covariance[row][column] -= px[row] * px[column] / scale;
                self.covariance[row][column] /= FORGETTING;
            }
        }
        self.restrain();
    }

    /// Forgetting makes a weight that no text speaks of ever less certain, until one odd code point takes the blame for
    /// the error of a whole page. No weight gets less certain than it was at the start.
    fn restrain(&mut self) {
        for kind in 0..KINDS {
            let excess = self.covariance[kind][kind] / variance(kind);
            if excess > 1.0 {
                let shrink = excess.sqrt().recip();
                for other in 0..KINDS {
                    self.covariance[kind][other] *= shrink;
                    self.covariance[other][kind] *= shrink;
                }
            }
        }
    }

    /// Whether every number is one that [`Estimator::learn`] could have made.
    fn is_sound(&self) -> bool {
        let weights = self.weights.iter().zip(CEILING).all(|(weight, ceiling)| (0.0..=ceiling).contains(weight));
        let covariance = self.covariance.iter().enumerate().all(|(kind, row)| {
            row.iter().all(|value| value.is_finite()) && (0.0..=variance(kind) * 1.001).contains(&row[kind])
        });
        let ratios =
            self.ratios.len() <= RATIOS && self.ratios.iter().all(|ratio| (1.0 / ABSURD..=ABSURD).contains(ratio));
        let seen = self.seen.iter().all(|count| count.is_finite() && *count >= 0.0);
        weights
            && covariance
            && seen
            && ratios
            && (0.05..=20.0).contains(&self.image_factor)
            && self.surprised <= SURPRISED_TURNS
    }
}

/// An estimator as it is kept: floats by their bits, so that what is read estimates exactly as what was written.
#[derive(Serialize, Deserialize)]
struct Kept {
    weights: [u64; KINDS],
    covariance: [[u64; KINDS]; KINDS],
    ratios: Vec<u64>,
    surprised: u32,
    seen: [u64; KINDS],
    image_factor: u64,
}

impl Serialize for Estimator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kept = Kept {
            weights: self.weights.map(f64::to_bits),
            covariance: self.covariance.map(|row| row.map(f64::to_bits)),
            ratios: self.ratios.iter().copied().map(f64::to_bits).collect(),
            surprised: self.surprised,
            seen: self.seen.map(f64::to_bits),
            image_factor: self.image_factor.to_bits(),
        };
        kept.serialize(serializer)
    }
}

/// Reads what was kept. Anything that is not a sound estimator, however well formed, is a new one: never an error, for
/// nothing is lost but what can be learned again.
impl<'de> Deserialize<'de> for Estimator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Read {
            Kept(Box<Kept>),
            Other(serde::de::IgnoredAny),
        }
        let kept = match Read::deserialize(deserializer)? {
            Read::Kept(kept) => *kept,
            Read::Other(serde::de::IgnoredAny) => return Ok(Self::new()),
        };
        let estimator = Self {
            weights: kept.weights.map(f64::from_bits),
            covariance: kept.covariance.map(|row| row.map(f64::from_bits)),
            ratios: kept.ratios.into_iter().map(f64::from_bits).collect(),
            surprised: kept.surprised,
            seen: kept.seen.map(f64::from_bits),
            image_factor: f64::from_bits(kept.image_factor),
        };
        Ok(if estimator.is_sound() { estimator } else { Self::new() })
    }
}

/// How a provider counts images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageFamily {
    /// A patch of 28 × 28 pixels is a token, after the image was made to fit.
    Claude,
    /// A patch of 32 × 32 pixels is 1.2 tokens, at the original size.
    OpenAi,
    /// About 1,100, or 258 for each tile of 768 × 768.
    Gemini,
    /// The highest of these.
    Unknown,
}

/// Tokens of one image of so many pixels and bytes, whoever is going to count it, rather too many than too few: what
/// admission adds for it until the model's own factor is learned. A side of 0 means that the size is not known: the most
/// any image is, for the bytes of a file bound its pixels in no format. No bytes are no image.
pub fn image_tokens(width: u32, height: u32, bytes: u64) -> u64 {
    if bytes == 0 {
        return 0;
    }
    image_tokens_of(ImageFamily::Unknown, u64::from(width), u64::from(height))
}

/// The same where it is known who counts.
pub fn image_tokens_of(family: ImageFamily, width: u64, height: u64) -> u64 {
    let patches = |side: u64| match (width, height) {
        (0, _) | (_, 0) => u64::MAX,
        (width, height) => width.div_ceil(side).saturating_mul(height.div_ceil(side)),
    };
    let claude = patches(28).min(CLAUDE_IMAGE_MAX);
    let openai = patches(32).saturating_mul(6).div_ceil(5).min(OPENAI_IMAGE_MAX);
    let gemini = patches(768).saturating_mul(GEMINI_TILE).clamp(GEMINI_IMAGE, GEMINI_IMAGE_MAX);
    match family {
        ImageFamily::Claude => claude,
        ImageFamily::OpenAi => openai,
        ImageFamily::Gemini => gemini,
        ImageFamily::Unknown => claude.max(openai).max(gemini),
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// A float as a count: rounded up, never negative, whatever it was.
fn tokens(count: f64) -> u64 {
    // `as` saturates, and makes 0 of NaN.
    count.ceil() as u64
}

/// How uncertain a weight is at the start: by half its size squared; a weight near zero is not certain to be zero.
fn variance(kind: usize) -> f64 {
    PRIOR[kind].max(0.05).powi(2) * 0.5
}

/// Counts that have a weight.
const KINDS: usize = 10;
/// The last of them: messages. The others are text.
const MESSAGE: usize = KINDS - 1;
type Vector = [f64; KINDS];

/// Weights before anything was learned: words, digits, punctuation, blanks, newlines, code points of two, three and four
/// bytes, blob bytes, messages.
const PRIOR: Vector = [0.95, 0.70, 0.53, 0.84, 1.32, 0.41, 0.71, 2.0, 0.67, 4.0];
/// No weight gets above this. A piece is at most its bytes and the blank before it, which some tokenizers do not join with
/// digits; the rest are generous guesses, of a run of blanks, a run of newlines, and of what a server wraps around a message.
const CEILING: Vector = [7.0, 2.0, 3.0, 8.0, 8.0, 3.0, 4.0, 5.0, 1.0, 64.0];

/// Letters of a word that are usually one token.
const WORD_PIECE: u32 = 6;
/// Signs in a row that are usually one token.
const PUNCTUATION_PIECE: u32 = 2;
/// Shorter runs are names and numbers.
const BLOB_MIN: u64 = 40;
/// One byte in so many must be a digit where there are signs: a long path or identifier has fewer.
const BLOB_DIGITS: u64 = 12;

/// Variance of the relative error of one report: a tenth, squared.
const NOISE: f64 = 0.01;
/// A turn counts half after 138 turns.
const FORGETTING: f64 = 0.995;
/// Turns whose ratios make the bound.
const RATIOS: usize = 512;
/// Fewer ratios have no 99th percentile.
const ENOUGH: usize = 99;
/// The bound while there are fewer.
const COLD: f64 = 1.6;
/// The same for the kinds of text on which tokenizers differ most, until enough of them was learned from: code points of
/// more than one byte, and blobs.
const COLD_HARD: f64 = 2.0;
const HARD: std::ops::RangeInclusive<usize> = 5..=8;
const HARD_LEARNED: f64 = 5_000.0;
/// How long one broken bound widens the next ones.
const SURPRISED_TURNS: u32 = 20;
/// Reported over likely beyond this, either way, is a mistake of somebody's and no property of a tokenizer.
const ABSURD: f64 = 8.0;
/// How fast the factor of images follows what is reported.
const IMAGE_PACE: f64 = 0.25;
/// The bound of images: the formulas are the providers' own, their rounding and fitting is not ours.
const IMAGE_FACTOR: f64 = 1.25;

/// Larger images are made to fit (older models: 1,568).
const CLAUDE_IMAGE_MAX: u64 = 4_784;
/// A photo of 12 megapixels at its original size is 14,364; what is larger is assumed to be made to fit.
const OPENAI_IMAGE_MAX: u64 = 16_384;
const GEMINI_IMAGE: u64 = 1_100;
const GEMINI_TILE: u64 = 258;
/// A photo of 12 megapixels in tiles is 6,192; what is larger is assumed to be made to fit.
const GEMINI_IMAGE_MAX: u64 = 8_192;

/// Kinds of bytes: the low bits, and whether it may be part of a blob.
const KIND: u8 = 0x0f;
const MAYBE_BLOB: u8 = 0x10;
const LETTER: u8 = 0;
const DIGIT: u8 = 1;
const SIGN: u8 = 2;
const BLANK: u8 = 3;
const NEWLINE: u8 = 4;
const CONTINUATION: u8 = 5;
const LEAD_2: u8 = 6;
const LEAD_3: u8 = 7;
const LEAD_4: u8 = 8;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [SIGN; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' | b'a'..=b'z' => LETTER | MAYBE_BLOB,
            b'0'..=b'9' => DIGIT | MAYBE_BLOB,
            b'+' | b'/' | b'=' | b'_' | b'-' => SIGN | MAYBE_BLOB,
            b' ' | b'\t' => BLANK,
            b'\n' | b'\r' => NEWLINE,
            0x80..=0xbf => CONTINUATION,
            0xc0..=0xdf => LEAD_2,
            0xe0..=0xef => LEAD_3,
            0xf0..=0xff => LEAD_4,
            0x00..=0x7f => SIGN,
        };
        byte += 1;
    }
    classes
}

#[cfg(test)]
mod tests;
