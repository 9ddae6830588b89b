//! Going back: every byte as it was, nobody else's work touched, and again after a death.

use std::collections::BTreeSet;
use std::io;

use super::apply::Touch;
use super::*;

/// Two trees that differ in every way there is; answers both.
fn two_trees(world: &World) -> (TreeId, TreeId, Picture) {
    world.write("same", "same");
    world.write("changed", "one");
    world.write("removed", "gone");
    world.write("mode", "m");
    world.write("script", "#!/bin/sh\n");
    world.chmod("script", 0o755);
    world.write("folder/to/remove", "x");
    world.write("file-to-folder", "f");
    world.write("folder-to-file/a/b", "b");
    world.write("shut/in", "i");
    world.link("target", "link");
    world.link("one", "relink");
    world.link("x", "link-to-folder");
    fs::create_dir(world.path("folder-to-link")).unwrap();
    fs::create_dir(world.path("empty")).unwrap();
    fs::write(world.bytes(b"bytes\xff\n ~"), b"\0\xff").unwrap();
    world.chmod("shut", 0o555);
    world.write("opened/a", "a");
    world.chmod("opened", 0o500);
    world.write("closed/a", "a");
    world.write("shut-and-gone/a", "a");
    world.chmod("shut-and-gone", 0o555);
    world.write(".git/index", "the user's");
    let (to, before) = (world.take(), world.picture());

    world.write("changed", "two");
    world.remove("removed");
    world.chmod("mode", 0o600);
    world.chmod("script", 0o644);
    world.remove("folder");
    world.remove("file-to-folder");
    world.write("file-to-folder/deep/in", "new");
    world.remove("folder-to-file");
    world.write("folder-to-file", "now a file");
    world.chmod("shut", 0o755);
    world.write("shut/in", "j");
    world.chmod("shut", 0o555);
    world.chmod("opened", 0o755);
    world.write("opened/a", "b");
    world.chmod("closed", 0o500);
    world.remove("shut-and-gone");
    world.remove("link");
    world.write("link", "no link");
    world.remove("relink");
    world.link("two", "relink");
    world.remove("link-to-folder");
    world.write("link-to-folder/a", "a");
    world.remove("folder-to-link");
    world.link("..", "folder-to-link");
    world.remove("empty");
    fs::write(world.bytes(b"bytes\xff\n ~"), b"other").unwrap();
    world.write("new", "new");
    world.write("new-folder/a", "new");
    fs::create_dir(world.path("new-folder/empty")).unwrap();
    let left = world.take();
    (to, left, before)
}

#[test]
fn a_tree_comes_back_byte_for_byte_and_goes_forth_again() {
    let world = World::new();
    let (to, left, before) = two_trees(&world);
    let after = world.picture();
    let undone = world.undo(&to, &left).unwrap();
    assert_eq!(world.picture(), before);
    assert_eq!(world.take(), to);
    assert_eq!(undone.kept, [] as [&str; 0]);
    let mut paths: Vec<String> =
        world.store.differences(&to, &left).unwrap().into_iter().map(|(path, _)| path).collect();
    paths.sort();
    let mut told = undone.paths;
    told.sort();
    assert_eq!(told, paths);
    // what stood there is aside, where it was
    let aside = PathBuf::from(undone.aside.unwrap());
    assert_eq!(fs::read_to_string(aside.join("changed")).unwrap(), "two");
    assert_eq!(fs::read_to_string(aside.join("new-folder/a")).unwrap(), "new");
    assert_eq!(fs::read_to_string(aside.join("file-to-folder/deep/in")).unwrap(), "new");
    assert_eq!(fs::read_link(aside.join("relink")).unwrap(), Path::new("two"));
    world.undo(&left, &to).unwrap();
    assert_eq!(world.picture(), after);
}

/// Whether the file system can exchange two names in one step. Network file systems often cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Exchange,
    Move,
}

/// Stopped before every single thing it does, each time from the beginning, then asked again.
fn die_everywhere(names: Names) -> BTreeSet<Touch> {
    let mut seen = BTreeSet::new();
    for stop in 0.. {
        let world = World::new();
        let (to, left, before) = two_trees(&world);
        let mut try_once = |stop: usize| {
            let mut count = 0;
            world.store.undo_tapped(&world.root, &to, &left, None, &mut |touch| {
                seen.insert(touch);
                count += 1;
                match (touch, names) {
                    _ if count > stop => Err(io::Error::other("died")),
                    (Touch::Exchange, Names::Move) => Err(io::ErrorKind::Unsupported.into()),
                    _ => Ok(()),
                }
            })
        };
        match try_once(stop) {
            Ok(_) => {
                assert_eq!(world.picture(), before);
                assert!(stop > 40, "only {stop} steps");
                break;
            }
            Err(TreesError::Partly { done, of, .. }) => assert!(done.len() < of, "{stop}"),
            Err(error) => panic!("{stop}: {error}"),
        }
        // a second death, in the middle of the second try
        let _again = try_once(3);
        let undone = try_once(usize::MAX).unwrap_or_else(|error| panic!("{stop}: {error}"));
        assert_eq!(world.picture(), before, "{stop}");
        assert_eq!(undone.paths.len(), world.differences(&to, &left).len(), "{stop}");
    }
    seen
}

#[test]
fn a_restore_that_dies_anywhere_is_finished_by_the_next() {
    use Touch::*;
    let all = [Sweep, TakeAway, RemoveFolder, Make, Fill, Name, Exchange, MoveAside, SetMode];
    assert_eq!(die_everywhere(Names::Exchange), BTreeSet::from(all), "every kind of step was tried");
}

#[test]
fn it_is_finished_where_names_cannot_be_exchanged_too() {
    die_everywhere(Names::Move);
}

/// The store on another file system: what is moved aside has to be copied.
#[test]
fn a_store_on_another_file_system_will_do() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new();
    let shared = Path::new("/dev/shm");
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if device(shared).is_none() || device(shared) == device(world.dir.path()) {
        eprintln!("skipped: there is no second file system here");
        return;
    }
    let home = tempfile::tempdir_in(shared).unwrap();
    let store = TreeStore::open(&home.path().join("trees"), TreeSettings::default()).unwrap();
    let world = World { store, ..world };
    let (to, left, before) = two_trees(&world);
    let undone = world.undo(&to, &left).unwrap();
    assert_eq!(world.picture(), before);
    let aside = PathBuf::from(undone.aside.unwrap());
    assert_eq!(fs::read_to_string(aside.join("changed")).unwrap(), "two");
    assert_eq!(fs::read_link(aside.join("folder-to-link")).unwrap(), Path::new(".."));
}

#[test]
fn one_foreign_change_refuses_everything_before_anything_is_touched() {
    type Change = fn(&World);
    let changes: &[(&str, Change)] = &[
        ("changed", |world| world.write("changed", "by a person")),
        ("changed", |world| world.chmod("changed", 0o640)),
        ("changed", |world| world.remove("changed")),
        ("removed", |world| world.write("removed", "by a person")),
        ("new", |world| {
            world.remove("new");
            world.link("elsewhere", "new");
        }),
        ("new-folder", |world| world.chmod("new-folder", 0o700)),
        ("relink", |world| {
            world.remove("relink");
            world.write("relink/a", "");
        }),
        ("folder", |world| world.write("folder", "a file where a folder comes back")),
        ("file-to-folder/mine", |world| world.write("file-to-folder/mine", "in the way of a file")),
        ("new", |world| {
            world.remove("new");
            rustix::fs::mkfifoat(rustix::fs::CWD, world.path("new"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        }),
    ];
    for (path, change) in changes {
        let world = World::new();
        let (to, left, _) = two_trees(&world);
        change(&world);
        let before = world.picture();
        let refused = world.undo(&to, &left).unwrap_err();
        let TreesError::Changed(paths) = &refused else { panic!("{path}: {refused}") };
        assert!(paths.iter().any(|found| found == path), "{path}: {paths:?}");
        assert_eq!(world.picture(), before, "{path}");
        assert_eq!(fs::read_dir(world.store.shelf.at("aside")).unwrap().count(), 0);
    }
}

#[test]
fn what_a_person_did_elsewhere_stays() {
    let world = World::new();
    let (to, left, _) = two_trees(&world);
    world.write("same", "edited by a person");
    world.write("theirs/file", "new");
    world.write("new-folder/theirs", "put into a folder that goes");
    let undone = world.undo(&to, &left).unwrap();
    assert_eq!(world.read("same"), "edited by a person");
    assert_eq!(world.read("theirs/file"), "new");
    assert_eq!(world.read("new-folder/theirs"), "put into a folder that goes");
    assert_eq!(undone.kept, ["new-folder"]);
    assert!(!world.path("new-folder/a").exists());
}

#[test]
fn only_what_lies_within_is_undone() {
    let world = World::new();
    let (to, left, _) = two_trees(&world);
    let within = ["changed".to_owned(), "folder/**".to_owned(), "new-folder/*".to_owned()];
    let undone = world.store.undo(&world.root, &to, &left, Some(&within)).unwrap();
    let paths = ["changed", "folder", "folder/to", "folder/to/remove", "new-folder/a", "new-folder/empty"];
    assert_eq!(undone.paths, paths);
    assert_eq!(world.read("folder/to/remove"), "x");
    assert!(world.path("new-folder").is_dir() && world.path("new").exists() && !world.path("removed").exists());
}

/// A deep file alone: the folders it is in come back with it.
#[test]
fn folders_on_the_way_are_made() {
    let world = World::new();
    world.write("a/b/c", "c");
    world.write("a/b/d", "d");
    world.chmod("a/b", 0o750);
    let to = world.take();
    world.remove("a");
    let left = world.take();
    world.store.undo(&world.root, &to, &left, Some(&["a/b/c".to_owned()])).unwrap();
    assert_eq!(world.read("a/b/c"), "c");
    assert!(!world.path("a/b/d").exists());
    assert_eq!(fs::metadata(world.path("a/b")).unwrap().permissions().mode() & 0o777, 0o750);
}

#[test]
fn a_folder_that_became_a_link_leads_nowhere() {
    let world = World::new();
    world.write("d/same", "s");
    world.write("d/f", "one");
    let to = world.take();
    world.write("d/f", "two");
    world.write("d/new", "n");
    let left = world.take();
    let outside = world.dir.path().join("outside");
    fs::rename(world.path("d"), &outside).unwrap();
    world.link(outside.to_str().unwrap(), "d");
    let before = picture(&outside);
    assert!(matches!(world.undo(&to, &left), Err(TreesError::Changed(paths)) if paths == ["d/f"]));
    assert_eq!(picture(&outside), before);
    // and swapped in the very middle, before each step that touches a name
    for stop in 0..20 {
        let world = World::new();
        world.write("d/f", "one");
        world.write("d/gone", "g");
        let to = world.take();
        world.write("d/f", "two");
        world.remove("d/gone");
        world.write("d/new", "n");
        let left = world.take();
        let outside = world.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("f"), "two").unwrap();
        fs::write(outside.join("new"), "n").unwrap();
        let before = picture(&outside);
        let mut count = 0;
        let _whatever = world.store.undo_tapped(&world.root, &to, &left, None, &mut |_| {
            if count == stop {
                fs::rename(world.path("d"), world.path("moved")).unwrap();
                symlink(&outside, world.path("d")).unwrap();
            }
            count += 1;
            Ok(())
        });
        assert_eq!(picture(&outside), before, "{stop}");
    }
}

/// The last moment: changed between the look and the exchange.
#[test]
fn what_is_written_in_the_last_moment_is_not_lost() {
    let world = World::new();
    world.write("f", "one");
    world.write("g", "one");
    let to = world.take();
    world.write("f", "two");
    world.remove("g");
    let left = world.take();
    let stopped = world.store.undo_tapped(&world.root, &to, &left, None, &mut |touch| {
        if touch == Touch::Exchange {
            world.write("f", "by a person");
        }
        Ok(())
    });
    assert!(matches!(stopped, Err(TreesError::Partly { source, .. }) if matches!(*source, TreesError::Changed(_))));
    assert_eq!(world.read("f"), "by a person");

    let world = World::new();
    let to = world.take();
    world.write("new", "by the step");
    let left = world.take();
    let stopped = world.store.undo_tapped(&world.root, &to, &left, None, &mut |touch| {
        if touch == Touch::TakeAway {
            world.remove("new");
            world.write("new", "by a person");
        }
        Ok(())
    });
    assert!(matches!(stopped, Err(TreesError::Partly { .. })));
    assert_eq!(world.read("new"), "by a person");
}

/// The step that hides a file by ignoring it, and the one that shows what was ignored.
#[test]
fn an_edited_ignore_file_hides_nothing_and_destroys_nothing() {
    let world = World::new();
    world.write("a", "one");
    world.write("d/b", "one");
    let (to, before) = (world.take(), world.picture());
    world.write(".gitignore", "a\nd\n");
    world.write("a", "two");
    world.write("d/b", "two");
    let left = world.take();
    assert_eq!(world.differences(&to, &left), ["+ .gitignore", "~ a", "~ d/b"]);
    world.undo(&to, &left).unwrap();
    assert_eq!(world.picture(), before);

    let world = World::new();
    world.write(".gitignore", ".env\nnode_modules\n*.tmp\n!keep.tmp\n");
    world.write("d/.gitignore", "*\n");
    world.write("d/x/data", "precious");
    world.write(".env", "SECRET");
    world.write("node_modules/m/index.js", "1");
    let (to, before) = (world.take(), world.picture());
    world.remove(".gitignore");
    world.remove("d/.gitignore");
    world.write("keep.tmp", "new, and would have been seen");
    let left = world.take();
    assert!(world.differences(&to, &left).contains(&"+ node_modules/m/index.js".to_owned()));
    let undone = world.undo(&to, &left).unwrap();
    assert_eq!(world.picture(), before);
    assert!(undone.kept.contains(&".env".to_owned()) && undone.kept.contains(&"d/x/data".to_owned()), "{undone:?}");
    assert!(undone.paths.contains(&"keep.tmp".to_owned()));
}

/// Where it is not known any more what was in reach, what is there now is somebody's.
#[test]
fn what_became_ignored_and_forgotten_is_not_overwritten() {
    let world = World::new();
    world.write("a", "one");
    let to = world.take();
    world.write(".gitignore", "a\n");
    world.write("a", "two");
    world.forget();
    let left = world.take();
    assert!(matches!(world.undo(&to, &left), Err(TreesError::Changed(paths)) if paths == ["a"]));
    assert_eq!(world.read("a"), "two");
}

#[test]
fn what_no_snapshot_holds_is_left_alone_and_named() {
    let world = World::with(TreeSettings { file_max_bytes: 100, ..TreeSettings::default() });
    world.write("grows", "small");
    world.write("d/a", "a");
    let to = world.take();
    world.write("grows", &"x".repeat(200));
    world.write("d/a", "b");
    rustix::fs::mkfifoat(rustix::fs::CWD, world.path("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let left = world.take();
    let undone = world.undo(&to, &left).unwrap();
    assert_eq!(undone.kept, ["fifo", "grows"]);
    assert_eq!((world.read("d/a").as_str(), world.read("grows").len()), ("a", 200));
}

#[test]
fn a_snapshot_that_is_not_kept_is_unknown() {
    let world = World::new();
    let id = world.take();
    for other in [TreeId::new("../../etc/passwd"), TreeId::new("0".repeat(64))] {
        assert!(matches!(world.undo(&id, &other), Err(TreesError::Unknown(found)) if found == other));
        assert!(matches!(world.store.differences(&other, &id), Err(TreesError::Unknown(_))));
    }
}

/// A person's file deep in a folder that was a file before: the restore is refused, and not begun.
#[test]
fn what_lies_deep_in_a_folder_that_gives_way_is_seen_before_anything_is_touched() {
    let world = World::new();
    world.write("a", "a file");
    let to = world.take();
    world.remove("a");
    std::fs::create_dir_all(world.path("a/x/y")).unwrap();
    let left = world.take();
    world.write("a/x/y/mine", "of a person");
    let before = world.picture();
    let refused = world.undo(&to, &left).unwrap_err();
    assert!(matches!(&refused, TreesError::Changed(paths) if paths == &["a/x/y/mine".to_owned()]), "{refused}");
    assert_eq!(world.picture(), before);
}
