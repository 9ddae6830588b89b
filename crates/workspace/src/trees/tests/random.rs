//! Any tree, any change to it, and back: byte for byte, with the user's `.git` as it was.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Act {
    Write(usize, u8, u32),
    Folder(usize, u32),
    Link(usize, u8),
    Remove(usize),
    Mode(usize, u32),
    Rename(usize, usize),
}

/// Few enough to meet often, strange enough to hurt.
const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"a/x",
    b"a/y",
    b"a/x/z",
    b"b/\xff\xfe",
    b"b/\xff\xfe/n",
    b" sp ace",
    b"new\nline",
    b"new\nline/\t",
    b"-rf",
    b"a-b",
    b"a.b/c",
    b"\xc3\xa9",
    b".hidden/..x",
    b"~/..y",
    b"\\x41",
    b"*/?",
];
const MODES: &[u32] = &[0o644, 0o600, 0o755, 0o777, 0o444, 0o4755, 0o2750, 0o1777];
const TARGETS: &[&[u8]] = &[b"a", b"../..", b"dangling", b"/etc/passwd", b"b/\xff", b"."];

fn act() -> impl Strategy<Value = Act> {
    let name = || 0..NAMES.len();
    let mode = || (0..MODES.len()).prop_map(|at| MODES[at]);
    prop_oneof![
        4 => (name(), any::<u8>(), mode()).prop_map(|(at, content, mode)| Act::Write(at, content % 5, mode)),
        2 => (name(), mode()).prop_map(|(at, mode)| Act::Folder(at, mode)),
        2 => (name(), any::<u8>()).prop_map(|(at, target)| Act::Link(at, target)),
        3 => name().prop_map(Act::Remove),
        1 => (name(), mode()).prop_map(|(at, mode)| Act::Mode(at, mode)),
        1 => (name(), name()).prop_map(|(from, to)| Act::Rename(from, to)),
    ]
}

fn clear(path: &Path) {
    if let Ok(metadata) = path.symlink_metadata() {
        if metadata.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

/// Makes room for a path: what is no folder on the way goes.
fn way(world: &World, name: &[u8]) -> PathBuf {
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
    let mut path = world.path("");
    for part in &parts[..parts.len() - 1] {
        path.push(OsStr::from_bytes(part));
        if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            clear(&path);
            fs::create_dir(&path).unwrap();
        }
    }
    path.join(OsStr::from_bytes(parts[parts.len() - 1]))
}

fn perform(world: &World, acts: &[Act]) {
    for act in acts {
        match act {
            Act::Write(at, content, mode) => {
                let path = way(world, NAMES[*at]);
                clear(&path);
                let content = [b"", b"\0".as_slice(), b"text\n", b"\xff\r\n", &[b'x'; 5_000]][usize::from(*content)];
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(*mode)).unwrap();
            }
            Act::Folder(at, mode) => {
                let path = way(world, NAMES[*at]);
                if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                    clear(&path);
                    fs::create_dir(&path).unwrap();
                }
                fs::set_permissions(&path, Permissions::from_mode(*mode | 0o700)).unwrap();
            }
            Act::Link(at, target) => {
                let path = way(world, NAMES[*at]);
                clear(&path);
                symlink(OsStr::from_bytes(TARGETS[usize::from(*target) % TARGETS.len()]), path).unwrap();
            }
            Act::Remove(at) => clear(&world.bytes(NAMES[*at])),
            Act::Mode(at, mode) => {
                let path = world.bytes(NAMES[*at]);
                if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_symlink()) {
                    fs::set_permissions(&path, Permissions::from_mode(*mode | 0o700)).unwrap();
                }
            }
            Act::Rename(from, to) => {
                let (from, to) = (world.bytes(NAMES[*from]), world.bytes(NAMES[*to]));
                let _impossible = fs::rename(from, to);
            }
        }
    }
}

fn cases() -> ProptestConfig {
    let nightly = std::env::var_os("LONGREIN_NIGHTLY").is_some();
    ProptestConfig { cases: if nightly { 2_000 } else { 48 }, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_tree_comes_back(
        first in prop::collection::vec(act(), 0..30),
        then in prop::collection::vec(act(), 1..30),
        stop in 0_usize..60,
        foreign in prop::collection::vec(act(), 1..3),
    ) {
        let world = World::new();
        world.write(".git/HEAD", "ref: refs/heads/main\n");
        world.write(".git/index", "binary");
        perform(&world, &first);
        let (to, before) = (world.take(), world.picture());
        perform(&world, &then);
        world.write(".git/index", "staged meanwhile");
        let (left, after) = (world.take(), world.picture());

        // a change of somebody else: refused as a whole, or it lies elsewhere and stays
        perform(&world, &foreign);
        let changed = world.picture();
        if changed != after {
            match world.undo(&to, &left) {
                Err(TreesError::Changed(_)) => prop_assert_eq!(&world.picture(), &changed),
                Ok(undone) => {
                    let now = world.picture();
                    for (path, what) in &changed {
                        let is_foreign = after.get(path) != Some(what) && before.get(path) != Some(what);
                        if is_foreign {
                            prop_assert_eq!(now.get(path), Some(what), "{} is lost; {:?}", path, undone);
                        }
                    }
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
            let now = world.take();
            world.undo(&left, &now).unwrap();
        }
        prop_assert_eq!(world.take(), left.clone());

        // it dies on the way, and is asked again
        let mut count = 0;
        let _died = world.store.undo_tapped(&world.root, &to, &left, None, &mut |_| {
            count += 1;
            if count > stop { Err(std::io::Error::other("died")) } else { Ok(()) }
        });
        let undone = world.undo(&to, &left).unwrap();
        prop_assert_eq!(&undone.kept, &[] as &[String]);
        let mut expected = before;
        expected.insert(".git/index".to_owned(), after[".git/index"].clone());
        prop_assert_eq!(world.picture(), expected);
        prop_assert_eq!(world.take(), to);
    }
}
