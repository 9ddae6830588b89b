//! Patterns over paths of a workspace, as a task writes them: `*` within a segment, `**` over several; a plain name means
//! what has it and all that lies below.

use globset::{GlobBuilder, GlobMatcher};

use crate::error::Error;

/// Some patterns.
#[derive(Debug)]
pub struct Patterns(Vec<GlobMatcher>);

impl Patterns {
    pub fn new(written: &[String]) -> Result<Self, Error> {
        let matcher = |pattern: &String| {
            let pattern = pattern.trim_start_matches("./").trim_matches('/');
            let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
            glob.map(|glob| glob.compile_matcher()).map_err(|error| Error::Glob(error.to_string()))
        };
        written.iter().map(matcher).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a path below the workspace, with slashes, is meant by one of them: it, or a folder it lies in.
    pub fn matches(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        let mut folders = ends.filter_map(|end| path.get(..end));
        folders.any(|folder| self.0.iter().any(|glob| glob.is_match(folder)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_it_names_and_all_below() {
        let matches = |pattern: &str, path: &str| Patterns::new(&[pattern.to_owned()]).unwrap().matches(path);
        for (pattern, path) in [
            ("tests/**", "tests/a/b.rs"),
            ("tests", "tests/a/b.rs"),
            ("tests/", "tests/a"),
            ("./Cargo.toml", "Cargo.toml"),
            ("*/tests", "core/tests/x"),
            ("**/*.snap", "a/b/c.snap"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in
            [("tests/**", "src/tests.rs"), ("tests", "src/tests"), ("*.toml", "a/b.toml"), ("a", "ab")]
        {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        assert!(Patterns::new(&["a[".to_owned()]).is_err());
    }
}
