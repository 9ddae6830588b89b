//! Paths: what a model writes leads where the kernel says, and nothing leads elsewhere afterwards.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use longrein_workspace::{Before, Error, Found, Located, Place, Range, ReadLimits, Root, Special};
use proptest::prelude::*;
use tempfile::TempDir;

/// A workspace `ws` and, beside it, `out`.
struct World {
    dir: TempDir,
    root: Root,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["ws/src", "out"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("ws/src/a.rs"), "a\n").unwrap();
        fs::write(dir.path().join("out/secret"), "secret\n").unwrap();
        let root = Root::open(&dir.path().join("ws")).unwrap();
        Self { dir, root }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(below)
    }

    fn link(&self, target: &str, at: &str) {
        symlink(target.replace("$W", self.path("").to_str().unwrap()), self.path(at)).unwrap();
    }

    fn locate(&self, written: &str) -> Result<Located, Error> {
        self.root.locate(&written.replace("$W", self.path("").to_str().unwrap()))
    }

    #[track_caller]
    fn inside(&self, written: &str, canonical: &str) {
        assert_eq!(self.locate(written).unwrap().place, Place::Inside(canonical.into()), "{written}");
    }

    #[track_caller]
    fn outside(&self, written: &str, canonical: &str) {
        assert_eq!(self.locate(written).unwrap().place, Place::Outside(self.path(canonical)), "{written}");
    }

    fn read(&self, place: &Place) -> Result<String, Error> {
        let limits = ReadLimits { max_bytes: 1000, max_lines: 10, max_line_bytes: 100 };
        self.root.read_lines(place, Range::ALL, limits).map(|lines| lines.text)
    }
}

#[test]
fn every_spelling_of_a_path_leads_to_its_one_name() {
    let world = World::new();
    for spelling in
        ["src/a.rs", "./src/a.rs", "src/./a.rs", "src//a.rs", "src/../src/a.rs", "../ws/src/a.rs", "$Wws/src/a.rs"]
    {
        world.inside(spelling, "src/a.rs");
    }
    for spelling in [".", "./", "src/..", "$Wws", "$Wws/"] {
        world.inside(spelling, "");
    }
    world.inside("src/", "src");
    world.inside("new/deep/file", "new/deep/file");
    world.inside("~/x", "~/x");
    world.outside("../out/secret", "out/secret");
    world.outside("$Wout/secret", "out/secret");
    world.outside("../wsless", "wsless");
}

#[test]
fn links_lead_where_they_lead() {
    let world = World::new();
    world.link("src", "ws/inner");
    world.link("../out", "ws/outer");
    world.link("$Wout/secret", "ws/file");
    world.link("$Wws/src/a.rs", "out/back");
    world.inside("inner/a.rs", "src/a.rs");
    world.inside("../out/back", "src/a.rs");
    world.outside("outer/secret", "out/secret");
    world.outside("outer/new", "out/new");
    world.outside("outer/../x", "x");
    world.outside("file", "out/secret");
}

#[test]
fn paths_that_lead_nowhere_say_at_which_part() {
    let world = World::new();
    world.link("loop", "ws/loop");
    world.link("../out/nothing", "ws/dangling");
    let shown = |path: &str| world.locate(path).unwrap_err().to_string();
    assert_eq!(shown(""), "the path is empty");
    assert_eq!(shown("a\0b"), "the path holds a NUL byte");
    assert_eq!(shown(&"a/".repeat(3000)), "the path, or a name in it, is longer than the kernel takes");
    assert_eq!(shown(&"a".repeat(300)), "the path, or a name in it, is longer than the kernel takes");
    assert_eq!(shown("src/a.rs/"), "src/a.rs is no folder");
    assert_eq!(shown("src/a.rs/b/c"), "src/a.rs is no folder");
    assert_eq!(shown("nowhere/../src"), "there is no nowhere");
    assert_eq!(shown("nowhere/"), "there is no nowhere");
    assert_eq!(shown("loop"), "loop leads through links in a circle, or through too many");
    assert_eq!(shown("dangling"), "dangling is a link to ../out/nothing, which does not exist");
    assert_eq!(shown("dangling/x"), "dangling is a link to ../out/nothing, which does not exist");
    assert!(matches!(world.locate("/proc/self/root"), Err(Error::MagicLink { .. })));
    assert!(matches!(world.locate("/proc/self/cwd"), Err(Error::MagicLink { .. })));
}

#[test]
fn only_regular_files_of_a_disk_are_opened_and_nothing_blocks() {
    let world = World::new();
    rustix_fifo(&world.path("ws/fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(world.path("ws/socket")).unwrap();
    for (path, found) in [
        ("fifo", Special::Fifo),
        ("socket", Special::Socket),
        ("/dev/zero", Special::CharacterDevice),
        ("/dev/tty", Special::CharacterDevice),
        ("/proc/self/environ", Special::Pseudo),
        ("/proc/kmsg", Special::Pseudo),
        ("/sys/kernel/uevent_seqnum", Special::Pseudo),
    ] {
        let Ok(located) = world.locate(path) else { continue };
        assert_eq!(located.found, Found::Special(found), "{path}");
        assert!(matches!(world.read(&located.place), Err(Error::Special { kind, .. }) if kind == found), "{path}");
        let error = world.root.replace(&located.place, &Before::Absent, b"x").unwrap_err();
        assert!(!matches!(error, Error::NotWritten { .. }), "{path}: {error}");
    }
    assert!(matches!(world.read(&Place::Inside("src".into())), Err(Error::Folder { .. })));
}

fn rustix_fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
}

#[test]
fn a_link_swapped_in_after_the_ruling_leads_nowhere() {
    let world = World::new();
    let file = world.locate("src/a.rs").unwrap().place;
    let new = world.locate("src/new").unwrap().place;
    // the folder on the way
    fs::rename(world.path("ws/src"), world.path("ws/real")).unwrap();
    fs::create_dir(world.path("out/src")).unwrap();
    fs::write(world.path("out/src/a.rs"), "theirs").unwrap();
    world.link("../out/src", "ws/src");
    assert!(matches!(world.read(&file), Err(Error::Moved { .. })));
    assert!(matches!(world.root.replace(&new, &Before::Absent, b"x"), Err(Error::Moved { .. })));
    assert_eq!(fs::read_dir(world.path("out/src")).unwrap().count(), 1);
    // the file itself, even by a link that stays inside: another file was ruled on
    fs::remove_file(world.path("ws/src")).unwrap();
    fs::create_dir(world.path("ws/src")).unwrap();
    world.link("../real/a.rs", "ws/src/a.rs");
    assert!(matches!(world.read(&file), Err(Error::Moved { .. })));
    let before = Before::Content(longrein_core::ids::Digest::of(b"a\n"));
    assert!(matches!(world.root.replace(&file, &before, b"x"), Err(Error::Moved { .. })));
    assert_eq!(fs::read(world.path("ws/real/a.rs")).unwrap(), b"a\n");
}

#[test]
fn a_root_that_is_a_link_or_moves_away_is_still_the_root() {
    let world = World::new();
    world.link("ws", "alias");
    let alias = Root::open(&world.path("alias")).unwrap();
    assert_eq!(
        alias.locate(world.path("alias/src/a.rs").to_str().unwrap()).unwrap().place,
        Place::Inside("src/a.rs".into())
    );
    fs::rename(world.path("ws"), world.path("moved")).unwrap();
    assert_eq!(world.read(&world.locate("src/a.rs").unwrap().place).unwrap(), "a\n");
    world.inside("$Wmoved/src/a.rs", "src/a.rs");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Against the standard library's own resolution, over random links and random spellings.
    #[test]
    fn a_path_is_where_the_kernel_says_and_writing_touches_nothing_else(
        links in prop::collection::vec((0usize..4, 0usize..8), 0..5),
        steps in prop::collection::vec(0usize..9, 1..6),
    ) {
        let world = World::new();
        let targets = ["src", "..", "../out", "../out/secret", "src/a.rs", "l0", "l1/..", "nowhere"];
        for (name, target) in links {
            let _taken = symlink(targets[target], world.path(&format!("ws/l{name}")));
        }
        let names = ["src", "..", ".", "a.rs", "l0", "l1", "l2", "l3", "out"];
        let written: Vec<&str> = steps.iter().map(|step| names[*step]).collect();
        let written = written.join("/");
        let expected = fs::canonicalize(world.path("ws").join(&written)).ok();
        let located = world.root.locate(&written).ok();
        let full = |place: &Place| match place {
            Place::Inside(path) => world.path("ws").join(path),
            Place::Outside(path) => path.clone(),
        };
        let found = located.as_ref().filter(|located| located.found != Found::Nothing);
        // canonicalize strips a trailing slash, but so does joining
        prop_assert_eq!(found.map(|located| full(&located.place).components().collect::<PathBuf>()), expected);
        let Some(located) = located else { return Ok(()) };
        // writing a place inside never changes anything outside
        if let Place::Inside(path) = &located.place && located.found == Found::Nothing {
            prop_assert!(!path.starts_with(".."));
            let made = world.root.replace(&located.place, &Before::Absent, b"made\n");
            if made.is_ok() {
                prop_assert_eq!(fs::read(full(&located.place)).unwrap(), b"made\n");
            }
            let out: Vec<_> = fs::read_dir(world.path("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            prop_assert_eq!(out, vec!["secret"]);
            prop_assert_eq!(fs::read(world.path("out/secret")).unwrap(), b"secret\n");
        }
    }
}
