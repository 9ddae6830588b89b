//! Finding without an index: reads every piece. Ranks as the index does, so that both give the same answers.

use std::cmp::Ordering;

use longrein_ports::{Found, Piece};

use super::excerpt::{Hits, hits};
use super::query::Query;
use super::{Written, found_by_words, is_echo};

/// Pieces whose words of a query stand in one passage, with at most so many other words between them, come first.
pub(crate) const NEAR_WORDS: usize = 20;

/// A word that stands in more pieces than this tells little, and takes long to weigh.
pub(crate) const TELLING_MAX: usize = 300;

/// The pieces that fit best. `pieces` are in the order of their first event.
pub(crate) fn find(pieces: &[Piece], query: &Query, most: usize) -> Vec<Found> {
    if query.is_empty() || most == 0 {
        return Vec::new();
    }
    let all: Vec<Hits> = pieces.iter().map(|piece| hits(&piece.text, &query.words)).collect();
    let scale = Scale::of(&all, query.words.len());
    let mut ranked: Vec<(Tier, f64, usize)> = Vec::new();
    for (place, (_, hits)) in pieces.iter().zip(&all).enumerate().filter(|(_, (piece, _))| !is_echo(piece)) {
        let Some(tier) = Tier::of(hits, query.words.len()) else { continue };
        let score = match tier {
            Tier::Near | Tier::All if scale.all_tell() => scale.score(hits),
            // Without words that tell, the newest is as good as any.
            Tier::Near | Tier::All => 0.0,
            Tier::Some if scale.none_tells() => 0.0,
            Tier::Some if hits.found.iter().any(|hit| scale.tells(hit.word)) => scale.score(hits),
            Tier::Some => continue,
        };
        ranked.push((tier, score, place));
    }
    if ranked.is_empty() {
        let mut written = Written::new(most);
        let _ = pieces.iter().rev().try_for_each(|piece| written.look(piece, query).then_some(()));
        return written.best();
    }
    ranked.sort_by(|(tier, score, place), (other_tier, other_score, other_place)| {
        let by_score = other_score.partial_cmp(score).unwrap_or(Ordering::Equal);
        tier.cmp(other_tier).then(by_score).then(other_place.cmp(place))
    });
    ranked.iter().take(most).filter_map(|(_, _, place)| Some(found_by_words(pieces.get(*place)?, query))).collect()
}

/// How well a piece holds a query's words together; the first is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Near,
    All,
    Some,
}

impl Tier {
    /// None: no word is there.
    fn of(hits: &Hits, words: usize) -> Option<Tier> {
        if hits.found.is_empty() {
            return None;
        }
        let mut last_at: Vec<Option<usize>> = vec![None; words];
        let mut near = false;
        for (number, hit) in hits.found.iter().enumerate() {
            last_at[hit.word] = Some(number);
            // The narrowest passage that ends here has the latest of each word.
            if let Some(first) = last_at.iter().copied().min().flatten() {
                let between = hit.tokens.start.saturating_sub(hits.found[first].tokens.end);
                near |= between <= NEAR_WORDS;
            }
        }
        Some(if near {
            Tier::Near
        } else if last_at.iter().all(Option::is_some) {
            Tier::All
        } else {
            Tier::Some
        })
    }
}

/// BM25 as SQLite computes it: how telling a word is, and how long texts are.
struct Scale {
    words: Vec<Weight>,
    mean_length: f64,
}

/// What a word counts.
struct Weight {
    telling: f64,
    /// How many pieces have it.
    pieces: usize,
}

const K1: f64 = 1.2;
const B: f64 = 0.75;

#[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^52")]
impl Scale {
    fn of(all: &[Hits], words: usize) -> Self {
        let count = all.len() as f64;
        let weigh = |word| {
            let pieces = all.iter().filter(|hits| hits.found.iter().any(|hit| hit.word == word)).count();
            let with = pieces as f64;
            // A word that more than half of all pieces have tells next to nothing.
            Weight { telling: ((count - with + 0.5) / (with + 0.5)).ln().max(1e-6), pieces }
        };
        let mean_length = all.iter().map(|hits| hits.tokens as f64).sum::<f64>() / count.max(1.0);
        Self { words: (0..words).map(weigh).collect(), mean_length }
    }

    fn tells(&self, word: usize) -> bool {
        self.words.get(word).is_some_and(|weight| weight.pieces <= TELLING_MAX)
    }

    fn all_tell(&self) -> bool {
        (0..self.words.len()).all(|word| self.tells(word))
    }

    fn none_tells(&self) -> bool {
        !self.words.iter().any(|weight| (1..=TELLING_MAX).contains(&weight.pieces))
    }

    fn score(&self, hits: &Hits) -> f64 {
        let length = hits.tokens as f64 / self.mean_length.max(1.0);
        let of_word = |(word, weight): (usize, &Weight)| {
            let often = hits.found.iter().filter(|hit| hit.word == word).count() as f64;
            weight.telling * often * (K1 + 1.0) / (often + K1 * (1.0 - B + B * length))
        };
        self.words.iter().enumerate().filter(|(word, _)| self.tells(*word)).map(of_word).sum()
    }
}
