//! Finding without an index: reads every piece. Ranks as the index does, so that both give the same answers.

use std::cmp::Ordering;

use longrein_ports::{Found, Piece};

use super::excerpt::{Hits, hits};
use super::query::Query;
use super::{Written, found_by_words, is_echo};

/// Pieces whose words of a query stand in one passage, with at most so many other words between them, come first.
pub(crate) const NEAR_WORDS: usize = 20;

/// The pieces that fit best. `pieces` are in the order of their first event.
pub(crate) fn find(pieces: &[Piece], query: &Query, most: usize) -> Vec<Found> {
    if query.is_empty() || most == 0 {
        return Vec::new();
    }
    let all: Vec<Hits> = pieces.iter().map(|piece| hits(&piece.text, &query.words)).collect();
    let scale = Scale::of(&all, query.words.len());
    let mut ranked: Vec<(Rank, f64, usize)> = all
        .iter()
        .enumerate()
        .zip(pieces)
        .filter(|((_, hits), _)| !hits.found.is_empty())
        .map(|((place, hits), piece)| ((is_echo(piece), Tier::of(hits, query.words.len())), scale.score(hits), place))
        .collect();
    if ranked.is_empty() {
        let mut written = Written::new(most);
        let _ = pieces.iter().rev().try_for_each(|piece| written.look(piece, query).then_some(()));
        return written.best();
    }
    ranked.sort_by(|(rank, score, place), (other_rank, other_score, other_place)| {
        let by_score = other_score.partial_cmp(score).unwrap_or(Ordering::Equal);
        rank.cmp(other_rank).then(by_score).then(other_place.cmp(place))
    });
    ranked.iter().take(most).filter_map(|(_, _, place)| Some(found_by_words(pieces.get(*place)?, query))).collect()
}

/// Echoes come last.
type Rank = (bool, Tier);

/// How well a piece holds a query's words together; the first is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Near,
    All,
    Some,
}

impl Tier {
    fn of(hits: &Hits, words: usize) -> Tier {
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
        if near {
            Tier::Near
        } else if last_at.iter().all(Option::is_some) {
            Tier::All
        } else {
            Tier::Some
        }
    }
}

/// BM25 as SQLite computes it: how telling a word is, and how long texts are.
struct Scale {
    telling: Vec<f64>,
    mean_length: f64,
}

const K1: f64 = 1.2;
const B: f64 = 0.75;

#[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^52")]
impl Scale {
    fn of(all: &[Hits], words: usize) -> Self {
        let count = all.len() as f64;
        let telling = (0..words)
            .map(|word| {
                let with = all.iter().filter(|hits| hits.found.iter().any(|hit| hit.word == word)).count() as f64;
                // A word that more than half of all pieces have tells next to nothing.
                ((count - with + 0.5) / (with + 0.5)).ln().max(1e-6)
            })
            .collect();
        let mean_length = all.iter().map(|hits| hits.tokens as f64).sum::<f64>() / count.max(1.0);
        Self { telling, mean_length }
    }

    fn score(&self, hits: &Hits) -> f64 {
        let length = hits.tokens as f64 / self.mean_length.max(1.0);
        let of_word = |(word, telling): (usize, &f64)| {
            let often = hits.found.iter().filter(|hit| hit.word == word).count() as f64;
            telling * often * (K1 + 1.0) / (often + K1 * (1.0 - B + B * length))
        };
        self.telling.iter().enumerate().map(of_word).sum()
    }
}
