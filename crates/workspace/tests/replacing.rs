//! Writing: all or nothing, and everything about the file that is not its content stays.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use longrein_core::ids::Digest;
use longrein_workspace::{Before, Error, Kept, Newline, Place, Root, carry};
use tempfile::TempDir;

fn world() -> (TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

fn inside(path: &str) -> Place {
    Place::Inside(path.into())
}

fn content(bytes: &[u8]) -> Before {
    Before::Content(Digest::of(bytes))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_new_file_brings_its_folders_and_leaves_nothing_beside_it() {
    let (dir, root) = world();
    let written = root.replace(&inside("a/b/c.txt"), &Before::Absent, b"new").unwrap();
    assert_eq!(written.digest, Digest::of(b"new"));
    assert_eq!(fs::read(dir.path().join("a/b/c.txt")).unwrap(), b"new");
    assert_eq!(names(&dir.path().join("a/b")), ["c.txt"]);
}

/// Root may write anything; that a file is read-only still means something.
#[test]
fn a_read_only_file_is_left_alone() {
    let (dir, root) = world();
    let path = dir.path().join("f");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let refused = root.replace(&inside("f"), &content(b"old"), b"new");
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

#[test]
fn a_file_that_is_not_as_it_was_is_left_alone() {
    let (dir, root) = world();
    let path = dir.path().join("f");
    fs::write(&path, "theirs").unwrap();
    for before in [Before::Absent, content(b"other")] {
        assert!(matches!(root.replace(&inside("f"), &before, b"mine"), Err(Error::Changed { .. })), "{before:?}");
    }
    assert!(matches!(root.replace(&inside("gone"), &content(b"x"), b"mine"), Err(Error::Changed { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(names(dir.path()), ["f"]);
    // nobody asked for the folder either
    assert!(root.replace(&inside("no/f"), &content(b"x"), b"mine").is_err());
    assert_eq!(names(dir.path()), ["f"]);
}

#[test]
fn mode_and_owner_stay() {
    let (dir, root) = world();
    let path = dir.path().join("run.sh");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let owner = fs::metadata(&path).unwrap().uid();
    root.replace(&inside("run.sh"), &content(b"old"), b"new").unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.permissions().mode() & 0o7777, after.uid()), (0o4751, owner));
}

#[test]
fn other_names_of_a_file_keep_what_they_had() {
    let (dir, root) = world();
    let store = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
    fs::write(store.path().join("shared"), "old").unwrap();
    fs::hard_link(store.path().join("shared"), dir.path().join("f")).unwrap();
    let written = root.replace(&inside("f"), &content(b"old"), b"new").unwrap();
    assert_eq!(written.other_names, 1);
    assert_eq!(fs::read(store.path().join("shared")).unwrap(), b"old", "it is outside the workspace");
    assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"new");
}

#[test]
fn a_link_inside_stays_a_link() {
    let (dir, root) = world();
    fs::write(dir.path().join("real"), "old").unwrap();
    symlink("real", dir.path().join("link")).unwrap();
    let place = root.locate("link").unwrap().place;
    root.replace(&place, &content(b"old"), b"new").unwrap();
    assert_eq!(fs::read_link(dir.path().join("link")).unwrap(), Path::new("real"));
    assert_eq!(fs::read(dir.path().join("real")).unwrap(), b"new");
}

#[test]
fn a_name_that_is_not_utf8_is_written_and_shown_escaped() {
    use std::os::unix::ffi::OsStrExt;
    let (dir, root) = world();
    let name = std::ffi::OsStr::from_bytes(b"na\xefve");
    let place = Place::Inside(name.into());
    root.replace(&place, &Before::Absent, b"x").unwrap();
    assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"x");
    assert_eq!(place.to_string(), "na\\xefve");
}

#[test]
fn the_root_itself_is_no_file() {
    let (_dir, root) = world();
    assert!(matches!(root.replace(&inside(""), &Before::Absent, b"x"), Err(Error::Folder { .. })));
}

#[test]
fn a_rewritten_file_keeps_the_marks_that_reading_does_not_show() {
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain("a\r\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let carried = carry(&utf16, "ä\nb");
    let expected: Vec<u8> =
        [0xff, 0xfe].into_iter().chain("ä\r\nb".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    assert_eq!(carried.bytes, expected);
    assert_eq!(carry("\u{feff}a".as_bytes(), "b").bytes, "\u{feff}b".as_bytes());
    assert_eq!(carry("\u{feff}a".as_bytes(), "\u{feff}b").bytes, "\u{feff}b".as_bytes());
    assert_eq!(carry(b"a\r\nb\r\n", "c\nd").bytes, b"c\r\nd");
    assert_eq!(carry(b"a\r\nb\r\n", "c\nd").kept, Kept { encoding: None, newline: Some(Newline::CrLf) });
    assert_eq!(carry(b"a\r\nb\n", "c\nd\n").bytes, b"c\nd\n", "mixed: as written");
    assert_eq!(carry(b"a\nb\n", "c\r\nd\n").bytes, b"c\r\nd\n", "as written");
    assert_eq!(carry(b"caf\xe9", "café").bytes, "café".as_bytes());
    assert_eq!(carry(b"\0\0", "x").bytes, b"x");
}
