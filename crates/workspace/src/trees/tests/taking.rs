//! Taking snapshots: what is in one, what is not, and that it costs nothing twice.

use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn everything_a_tree_is_made_of_changes_its_id() {
    let world = World::new();
    world.write("a", "1");
    world.write("d/b", "2");
    world.link("nowhere", "l");
    let mut ids = vec![world.take()];
    assert_eq!(world.take(), ids[0]);
    let changes: &[&dyn Fn()] = &[
        &|| world.write("a", "3"),
        &|| world.chmod("a", 0o755),
        &|| world.chmod("d", 0o700),
        &|| world.chmod("", 0o711),
        &|| fs::create_dir(world.path("empty")).unwrap(),
        &|| {
            world.remove("l");
            world.link("elsewhere", "l");
        },
        &|| world.write(".hidden", ""),
        &|| fs::write(world.bytes(b"\xff\n"), "").unwrap(),
        &|| fs::rename(world.path("d/b"), world.path("d/c")).unwrap(),
        &|| world.remove("d"),
    ];
    for change in changes {
        change();
        let hash = world.store.hash(&world.root).unwrap().id;
        let id = world.take();
        assert_eq!(hash, id);
        assert!(!ids.contains(&id));
        ids.push(id);
    }
    let found = world.differences(&ids[0], ids.last().unwrap());
    let expected = ["~ .", "+ .hidden", "+ \\xff\\x0a", "~ a", "- d", "- d/b", "+ empty", "~ l"];
    let mut expected: Vec<_> = expected.map(str::to_owned).to_vec();
    expected.sort_by_key(|line| line[2..].to_owned());
    let mut found_sorted = found;
    found_sorted.sort_by_key(|line| line[2..].to_owned());
    assert_eq!(found_sorted, expected);
}

#[test]
fn an_id_depends_on_nothing_but_the_tree() {
    let (one, other) = (World::new(), World::new());
    for world in [&one, &other] {
        world.write("a", "1");
        world.write("d/b", "2");
    }
    other.write("x", "");
    other.take();
    other.remove("x");
    assert_eq!(one.take(), other.take());
    one.forget();
    assert_eq!(one.take(), other.take());
}

/// Nothing is read, and nothing written, that is known.
#[test]
fn an_unchanged_tree_adds_nothing() {
    let world = World::new();
    for number in 0..200 {
        world.write(&format!("d{}/{number}", number % 7), &format!("{number}"));
    }
    assert!(world.store.snapshot(&world.root).unwrap().added_bytes > 0);
    assert_eq!(world.store.snapshot(&world.root).unwrap().added_bytes, 0);
    world.forget();
    assert_eq!(world.store.snapshot(&world.root).unwrap().added_bytes, 0, "what is on the shelf is found there");
    world.write("d3/3", "three");
    let snapshot = world.store.snapshot(&world.root).unwrap();
    assert!(snapshot.added_bytes < 10_000, "a file, its folder and the root: {snapshot:?}");
    assert_eq!(snapshot.files, 200);
}

/// The same size, and the time set back: the kernel's own time of change tells.
#[test]
fn a_change_that_hides_its_time_is_seen() {
    let world = World::new();
    world.write("a", "one");
    let old = fs::metadata(world.path("a")).unwrap().modified().unwrap();
    std::thread::sleep(Duration::from_millis(80));
    let before = world.take();
    assert_eq!(world.take(), before);
    world.write("a", "two");
    File::options().write(true).open(world.path("a")).unwrap().set_modified(old).unwrap();
    assert_ne!(world.take(), before);
}

/// Written again and again within one tick of the kernel's clock.
#[test]
fn quick_changes_are_seen() {
    let world = World::new();
    let mut last = None;
    for number in 0..40 {
        world.write("a", &format!("{:03}", number % 2));
        let id = world.take();
        assert_ne!(Some(&id), last.as_ref(), "{number}");
        last = Some(id);
    }
}

#[test]
fn what_git_ignores_and_git_itself_are_no_part() {
    let world = World::new();
    world.write(".gitignore", "*.log\n/target/\n!keep.log\n");
    world.write(".git/info/exclude", "private\n");
    world.write("d/.gitignore", "*\n");
    world.write("sub/.git/HEAD", "x");
    world.write("keep.log", "");
    let before = world.take();
    for path in ["a.log", "target/x/y", "private", "d/anything", ".git/index", "sub/.git/config", "sub/b.log"] {
        world.write(path, "1");
        assert_eq!(world.take(), before, "{path}");
    }
    world.write("keep.log", "1");
    assert_ne!(world.take(), before);
    world.write("keep.log", "");
    world.write("d/.gitignore", "*\n!b\n");
    assert_ne!(world.take(), before, "an ignore file is a part whatever it says of itself");
}

#[test]
fn what_the_operator_includes_is_a_part_though_ignored() {
    let settings =
        TreeSettings { include: vec!["out/dist/**".to_owned(), "*.env".to_owned()], ..TreeSettings::default() };
    let world = World::with(settings);
    world.write(".gitignore", "out\n*.env\n");
    world.write("out/junk", "");
    let mut last = world.take();
    for path in ["out/dist/a", ".env"] {
        world.write(path, "1");
        let now = world.take();
        assert_ne!(now, last, "{path}");
        last = now;
    }
    world.write("out/junk", "2");
    assert_eq!(world.take(), last);
}

/// What protects tests wherever they lie looks into ignored folders, and that alone makes no folder a part.
#[test]
fn an_ignored_folder_is_a_part_only_with_something_included_in_it() {
    let include = vec!["**/check_*".to_owned(), "test_*".to_owned()];
    let world = World::with(TreeSettings { include, ..TreeSettings::default() });
    world.write(".gitignore", "out\n");
    world.write("src/a", "1");
    let before = world.take();
    for path in ["out/a/b", "out/test_a", "__pycache__/a.pyc", "src/__pycache__/b.pyc", "src/out/c"] {
        world.write(path, "1");
        assert_eq!(world.take(), before, "{path}");
        assert_eq!(world.take(), before, "{path}, once more");
    }
    world.write("out/a/check_1", "1");
    let with = world.take();
    assert_ne!(with, before);
    assert_eq!(world.take(), with);
    world.write("out/a/check_1", "2");
    assert_ne!(world.take(), with);
}

#[test]
fn what_has_no_content_to_keep_is_named() {
    let world = World::with(TreeSettings { file_max_bytes: 2 << 20, ..TreeSettings::default() });
    File::create(world.path("huge")).unwrap().set_len((2 << 20) + 1).unwrap();
    world.write("large", &"x".repeat((1 << 20) + 5));
    let _listener = UnixListener::bind(world.path("socket")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, world.path("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let snapshot = world.store.snapshot(&world.root).unwrap();
    let named = [("fifo", LeftOut::Special), ("huge", LeftOut::TooLarge), ("socket", LeftOut::Special)];
    assert_eq!(snapshot.left_out, named.map(|(path, why)| (path.to_owned(), why)));
    assert_eq!(snapshot.files, 1);
    assert_eq!(world.store.sizes().unwrap().snapshots, 1);
    assert_eq!(fs::read_dir(world.store.shelf.at("large")).unwrap().count(), 1);
}

#[test]
fn a_workspace_beyond_its_limits_says_what_to_do() {
    let world = World::with(TreeSettings { entries_max: 10, ..TreeSettings::default() });
    for number in 0..11 {
        world.write(&format!("{number}"), "");
    }
    let refused = world.store.snapshot(&world.root).unwrap_err();
    assert!(matches!(&refused, TreesError::TooLarge(text) if text.contains(".gitignore")), "{refused}");

    let world = World::with(TreeSettings { store_max_bytes: 4_000, ..TreeSettings::default() });
    world.write("small", "x");
    let kept = world.take();
    world.write("large", &"y".repeat(5_000));
    let refused = world.store.snapshot(&world.root).unwrap_err();
    assert!(matches!(&refused, TreesError::TooLarge(text) if text.contains("longrein gc")), "{refused}");
    assert_eq!(fs::read_dir(world.store.shelf.at("temporary")).unwrap().count(), 0);
    world.remove("large");
    assert_eq!(world.take(), kept, "what is there already needs no room");
}

#[test]
fn a_store_inside_the_workspace_is_refused() {
    let world = World::new();
    let store = TreeStore::open(&world.path("store"), TreeSettings::default()).unwrap();
    assert!(matches!(store.snapshot(&world.root), Err(TreesError::Inside { .. })));
    let root = Root::open(&world.dir.path().join("home/trees/packs")).unwrap();
    assert!(matches!(world.store.hash(&root), Err(TreesError::Inside { .. })));
}

#[test]
fn a_trap_of_folders_is_left_out_and_named() {
    let world = World::new();
    let mut folder: rustix::fd::OwnedFd = File::open(world.path("")).unwrap().into();
    for _ in 0..300 {
        rustix::fs::mkdirat(&folder, "d", rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        folder = rustix::fs::openat(&folder, "d", OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    }
    let snapshot = world.store.snapshot(&world.root).unwrap();
    assert_eq!(snapshot.left_out.len(), 1);
    assert_eq!(snapshot.left_out[0].1, LeftOut::TooDeep);
}

/// By nightly: fifty thousand files, and what an unchanged snapshot costs beside the first one.
#[test]
fn an_unchanged_large_tree_costs_a_fraction() {
    if std::env::var_os("LONGREIN_NIGHTLY").is_none() {
        eprintln!("skipped: LONGREIN_NIGHTLY is not set");
        return;
    }
    let world = World::new();
    world.write(".gitignore", "*.log\n/target/\nnode_modules\n");
    for number in 0..50_000 {
        let content: String = format!("{number:08}").repeat(512);
        world.write(&format!("d{}/f{}", number / 100, number % 100), &content);
    }
    std::thread::sleep(Duration::from_millis(100));
    let time = |what: &str| {
        let (cpu, began) = (cpu(), std::time::Instant::now());
        let snapshot = world.store.snapshot(&world.root).unwrap();
        let took = super::cpu() - cpu;
        eprintln!("{what}: {} ms, CPU {} ms", began.elapsed().as_millis(), took.as_millis());
        (snapshot.id, took)
    };
    let (id, first) = time("first");
    assert_eq!(time("second").0, id);
    let least = (0..10).map(|_| time("unchanged").1).min().unwrap();
    assert!(least * 3 < first, "{least:?} beside {first:?}");
}
