//! Which known names somebody may have meant.

/// A suggestion is help; a catalogue is not.
const NEAR_MAX: usize = 3;

/// At most three of `names`, nearest first: few edits apart, or one containing the other.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // a name is never this long, and the distance costs the product of both lengths
    if word.len() > 200 {
        return Vec::new();
    }
    let folded = word.to_lowercase();
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let other = name.to_lowercase();
            let apart = distance(&folded, &other);
            let contains =
                folded.len() >= 3 && (other.contains(&folded) || folded.contains(&other) && other.len() >= 3);
            (contains || apart <= (word.len().max(name.len()) / 3).max(1)).then_some((apart, name))
        })
        .collect();
    near.sort_unstable();
    near.into_iter().take(NEAR_MAX).map(|(_, name)| name).collect()
}

/// Levenshtein's: insertions, deletions and replacements of characters.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions() {
        let names = ["read_metrics", "read_file", "error_rate", "pay", "ship"];
        assert_eq!(nearest("read_metric", names), ["read_metrics"]);
        assert_eq!(nearest("Error-Rate", names), ["error_rate"]);
        assert_eq!(nearest("payment", names), ["pay"]);
        assert!(nearest("zzz", names).is_empty());
        assert_eq!(nearest("tool", (0..500).map(|_| "tool1").collect::<Vec<_>>()).len(), 3);
    }
}
