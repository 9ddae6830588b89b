//! Listing and searching: sorted, bounded, with ignore rules, and never through a link.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use longrein_workspace::{
    Context, EntryKind, Error, Found, ListLimits, Listing, Place, Root, SearchLimits, Searched, Sought,
};
use tempfile::TempDir;

fn world(files: &[(&str, &str)]) -> (TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join("root").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = Root::open(&dir.path().join("root")).unwrap();
    (dir, root)
}

fn top() -> Place {
    Place::Inside("".into())
}

fn list(root: &Root, glob: Option<&str>, max_entries: usize) -> Listing {
    root.list(&top(), glob, ListLimits { max_entries, time: Duration::from_secs(30) }).unwrap()
}

fn paths(listing: &Listing) -> Vec<String> {
    let mark = |kind| if kind == EntryKind::Folder { "/" } else { "" };
    listing.entries.iter().map(|entry| format!("{}{}", entry.place, mark(entry.kind))).collect()
}

const LIMITS: SearchLimits =
    SearchLimits { max_matches: 100, max_bytes: 10_000, max_line_bytes: 100, time: Duration::from_secs(30) };

fn search(root: &Root, pattern: &str, glob: Option<&str>, context: usize, limits: SearchLimits) -> Searched {
    let sought = Sought { glob, context_lines: context, ..sought(pattern) };
    root.search(&top(), Found::Folder, sought, limits).unwrap()
}

/// Everywhere.
fn sought(pattern: &str) -> Sought<'_> {
    Sought { pattern, glob: None, context_lines: 0, leaves_out: &|_| false }
}

fn lines(searched: &Searched) -> Vec<String> {
    let mark = |context| if context == Context::Match { ':' } else { '-' };
    searched
        .hits
        .iter()
        .map(|hit| format!("{}{m}{}{m}{}", hit.place, hit.line, hit.text, m = mark(hit.context)))
        .collect()
}

#[test]
fn a_listing_is_sorted_and_leaves_out_what_is_hidden_or_ignored() {
    let (dir, root) = world(&[
        ("src/lib.rs", ""),
        ("src/a/b.rs", ""),
        ("README.md", ""),
        (".hidden/x", ""),
        (".github/ci.yml", ""),
        ("target/out", ""),
        (".gitignore", "target/\n*.log\n"),
        ("run.log", ""),
    ]);
    symlink("/etc", dir.path().join("root/etc")).unwrap();
    assert_eq!(paths(&list(&root, None, 100)), ["README.md", "etc", "src/", "src/a/", "src/a/b.rs", "src/lib.rs"]);
    assert_eq!(paths(&list(&root, Some("*.rs"), 100)), ["src/a/b.rs", "src/lib.rs"]);
    assert_eq!(paths(&list(&root, Some("src/*.rs"), 100)), ["src/lib.rs"]);
    assert_eq!(paths(&list(&root, Some("./src/**/*.{rs,md}"), 100)), ["src/a/b.rs", "src/lib.rs"]);
    assert_eq!(paths(&list(&root, Some(".github/**"), 100)), [".github/ci.yml"]);
    assert!(matches!(
        root.list(&top(), Some("a[b"), ListLimits { max_entries: 1, time: Duration::from_secs(1) }),
        Err(Error::Glob(_))
    ));
}

#[test]
fn what_is_ignored_or_hidden_is_found_by_who_names_it() {
    let (_dir, root) = world(&[(".gitignore", "/target\n"), ("target/out", "needle\n"), (".env/x", "needle\n")]);
    let limits = ListLimits { max_entries: 10, time: Duration::from_secs(30) };
    for (folder, file) in [("target", "target/out"), (".env", ".env/x")] {
        let place = Place::Inside(folder.into());
        assert_eq!(paths(&root.list(&place, None, limits).unwrap()), [file]);
        let found = root.search(&place, Found::Folder, sought("needle"), LIMITS).unwrap();
        assert_eq!(lines(&found), [format!("{file}:1:needle")]);
        let found =
            root.search(&Place::Inside(file.into()), Found::File { bytes: 7 }, sought("needle"), LIMITS).unwrap();
        assert_eq!(found.matches, 1);
    }
}

#[test]
fn a_large_listing_shows_what_is_near_the_top_and_counts_the_rest() {
    let files: Vec<String> = (0..50).map(|n| format!("deep/er/{n:02}")).chain(["z".to_owned()]).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|path| (path.as_str(), "")).collect();
    let (_dir, root) = world(&files);
    let listing = list(&root, None, 4);
    assert_eq!(paths(&listing), ["deep/", "deep/er/", "deep/er/00", "z"]);
    assert_eq!(listing.left_out, 49);
}

#[test]
fn a_search_shows_lines_with_context_by_path_and_line() {
    let (_dir, root) = world(&[("b.txt", "one\ntwo\nthree\n"), ("a.txt", "two\r\nx\r\n"), ("c.md", "two\n")]);
    let found = search(&root, "^two$", Some("*.txt"), 1, LIMITS);
    assert_eq!(lines(&found), ["a.txt:1:two", "a.txt-2-x", "b.txt-1-one", "b.txt:2:two", "b.txt-3-three"]);
    assert_eq!((found.matches, found.files_searched, found.files_matched, found.unfinished), (2, 2, 2, false));
}

#[test]
fn a_search_passes_over_binary_files_links_and_what_is_ignored() {
    let (dir, root) = world(&[("a", "needle\n"), (".ignore", "skipped\n"), ("skipped", "needle\n")]);
    fs::write(dir.path().join("root/bin"), b"needle\0").unwrap();
    fs::write(dir.path().join("root/late"), [&b"needle\n".repeat(30_000)[..], &[0]].concat()).unwrap();
    fs::write(dir.path().join("out"), "needle\n").unwrap();
    symlink("../out", dir.path().join("root/link")).unwrap();
    symlink("..", dir.path().join("root/up")).unwrap();
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain("needle".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    fs::write(dir.path().join("root/wide"), utf16).unwrap();
    let many = SearchLimits { max_matches: 100_000, max_bytes: 10 << 20, ..LIMITS };
    assert_eq!(lines(&search(&root, "needle", None, 0, many)), ["a:1:needle", "wide:1:needle"]);
}

#[test]
fn a_search_is_bounded_in_matches_bytes_and_line_length() {
    let (_dir, root) =
        world(&[("a", &"needle\n".repeat(1000)), ("b", &format!("{}needle{}", "x".repeat(3 << 20), "y".repeat(99)))]);
    let found = search(&root, "needle", None, 0, SearchLimits { max_matches: 7, ..LIMITS });
    assert_eq!((found.matches, found.unfinished), (7, true));
    let found = search(&root, "needle", None, 0, SearchLimits { max_bytes: 20, ..LIMITS });
    assert_eq!((found.matches, found.unfinished), (3, true));
    let found = search(&root, "needle", Some("b"), 0, LIMITS);
    let hit = &found.hits[0].text;
    assert!(hit.len() <= 100 + 2 * '…'.len_utf8() && hit.starts_with("…xxx") && hit.contains("needle"), "{hit}");
    let none = search(&root, "nothing", None, 0, SearchLimits { time: Duration::ZERO, ..LIMITS });
    assert!(none.unfinished);
}

#[test]
fn a_pattern_that_is_none_says_why() {
    let (_dir, root) = world(&[("a", "")]);
    for pattern in ["a(b", "(?=x)", "a\nb", "(\\w{1000}){1000}"] {
        let error = root.search(&top(), Found::Folder, sought(pattern), LIMITS).unwrap_err();
        assert!(matches!(&error, Error::Pattern(why) if !why.is_empty()), "{pattern}: {error}");
    }
}

#[test]
fn files_that_are_left_out_are_counted_and_not_looked_into() {
    let (_dir, root) = world(&[("a", "needle\n"), ("keys/b", "needle\n"), ("c", "needle\n")]);
    let leaves_out = |place: &Place| place.path().starts_with("keys");
    let found =
        root.search(&top(), Found::Folder, Sought { leaves_out: &leaves_out, ..sought("needle") }, LIMITS).unwrap();
    assert_eq!(lines(&found), ["a:1:needle", "c:1:needle"]);
    assert_eq!((found.files_searched, found.files_left_out), (2, 1));
}
