//! Names that may have been meant by a name nobody knows.

/// The closest, at most three; all, where there are few.
pub fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut ranked: Vec<(usize, &str)> = known.into_iter().map(|known| (distance(name, known), known)).collect();
    ranked.sort_unstable();
    ranked.dedup();
    let few = ranked.len() <= NEAR_MAX;
    let close = |(distance, known): &(usize, &str)| few || *distance <= name.len().max(known.len()) / 2;
    ranked.into_iter().filter(close).take(NEAR_MAX).map(|(_, known)| known.to_owned()).collect()
}

/// Whether one was probably meant by the other.
pub(crate) fn are_close(one: &str, other: &str) -> bool {
    distance(one, other) <= other.len() / 3
}

/// How many letters must be changed, added or left out to make one word the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

pub(crate) const NEAR_MAX: usize = 3;
