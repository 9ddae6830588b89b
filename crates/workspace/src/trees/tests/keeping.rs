//! The store: what is collected, what is found damaged, and many at a time.

use super::*;

fn age(folder: &Path, by: Duration) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        File::open(path).unwrap().set_modified(SystemTime::now() - by).unwrap();
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn collecting_keeps_what_is_kept_and_what_is_young() {
    let world = World::new();
    world.write("same", &"s".repeat(1_000));
    world.write("a", &"a".repeat(100_000));
    world.write("large", &"l".repeat(2 << 20));
    let one = world.take();
    world.write("a", &"b".repeat(100_000));
    world.remove("large");
    let two = world.take();
    world.write("a", &"c".repeat(100_000));
    let three = world.take();
    for folder in ["packs", "large", "snapshots"] {
        age(&world.store.shelf.at(folder), 2 * DAY);
    }
    // the third is taken again: it is young, though all its objects are old
    assert_eq!(world.take(), three);
    let collected = world.store.collect(std::slice::from_ref(&two), DAY).unwrap();
    assert_eq!((collected.snapshots_kept, collected.snapshots_removed, collected.missing), (2, 1, 0));
    assert!(collected.bytes_before - collected.bytes_after > (2 << 20) + 90_000, "{collected:?}");
    assert!(matches!(world.undo(&one, &three), Err(TreesError::Unknown(_))));
    world.undo(&two, &three).unwrap();
    assert_eq!(world.read("a"), "b".repeat(100_000));
    // what was known of stored files does not outlive them
    world.write("a", &"a".repeat(100_000));
    world.write("large", &"l".repeat(2 << 20));
    let again = world.take();
    assert_eq!(again, one);
    world.remove("a");
    let left = world.take();
    world.undo(&again, &left).unwrap();
    assert_eq!(world.read("a"), "a".repeat(100_000));
}

#[test]
fn nothing_that_may_be_in_use_is_collected() {
    let world = World::new();
    world.write("a", "a");
    world.take();
    let collected = world.store.collect(&[], DAY).unwrap();
    assert_eq!((collected.snapshots_kept, collected.snapshots_removed), (1, 0));
    let _someone = world.store.shelf.share().unwrap();
    assert!(matches!(world.store.collect(&[], DAY), Err(TreesError::Busy(_))));
}

#[test]
fn many_small_packs_become_one() {
    let world = World::new();
    let mut all = Vec::new();
    for number in 0..120 {
        world.write("a", &format!("{number}"));
        all.push(world.take());
    }
    let packs = world.store.sizes().unwrap().packs;
    assert!(packs <= 50, "{packs}");
    for (number, id) in all.iter().enumerate().step_by(17) {
        let now = world.take();
        world.undo(id, &now).unwrap();
        assert_eq!(world.read("a"), number.to_string());
    }
}

#[test]
fn damage_is_told_and_nothing_is_touched_for_it() {
    let world = World::new();
    world.write("a", &"a".repeat(100));
    let to = world.take();
    world.write("a", "other");
    let left = world.take();
    let before = world.picture();
    let packs = world.store.shelf.at("packs");
    let oldest = fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let whole = fs::read(&oldest).unwrap();
    for at in [20, whole.len() - 60, whole.len() - 10] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&oldest, &bytes).unwrap();
        let refused = world.undo(&to, &left).unwrap_err();
        let source = if let TreesError::Partly { done, source, .. } = refused {
            assert!(done.is_empty());
            *source
        } else {
            refused
        };
        assert!(matches!(source, TreesError::Damaged(_) | TreesError::Io { .. }), "{at}: {source}");
        assert_eq!(world.read("a"), "other");
        for name in fs::read_dir(world.path("")).unwrap() {
            let name = name.unwrap().file_name();
            assert!(name == "a" || undo::is_temporary(name.as_bytes()), "{name:?}");
        }
    }
    fs::write(&oldest, &whole).unwrap();
    world.undo(&to, &left).unwrap();
    world.undo(&left, &to).unwrap();
    assert_eq!(world.picture(), before);
    fs::remove_file(&oldest).unwrap();
    assert!(matches!(world.undo(&to, &left), Err(TreesError::Unknown(_))));
    assert_eq!(world.take(), left, "a snapshot that can be taken is whole");
}

/// Packs that were deleted by hand: nothing is believed to be stored that is not.
#[test]
fn a_store_that_lost_its_objects_is_filled_again() {
    let world = World::new();
    world.write("a", "a");
    std::thread::sleep(Duration::from_millis(80));
    let id = world.take();
    assert_eq!(world.take(), id);
    for entry in fs::read_dir(world.store.shelf.at("packs")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(world.take(), id);
    world.remove("a");
    let left = world.take();
    world.undo(&id, &left).unwrap();
    assert_eq!(world.read("a"), "a");
}

/// A hash keeps nothing, and what it learns is not mistaken for kept.
#[test]
fn a_hash_stores_nothing() {
    let world = World::new();
    world.write("a", "a");
    std::thread::sleep(Duration::from_millis(80));
    let hash = world.store.hash(&world.root).unwrap();
    assert_eq!((hash.added_bytes, world.store.sizes().unwrap().objects_bytes), (0, 0));
    assert_eq!(world.store.hash(&world.root).unwrap(), hash);
    let id = world.take();
    assert_eq!(id, hash.id);
    world.remove("a");
    let left = world.take();
    world.undo(&id, &left).unwrap();
    assert_eq!(world.read("a"), "a");
}

#[test]
fn many_write_to_one_store_at_a_time() {
    let worlds: Vec<World> = (0..4).map(|_| World::new()).collect();
    let store = worlds[0].dir.path().join("home/trees");
    std::thread::scope(|scope| {
        for (at, world) in worlds.iter().enumerate() {
            let store = &store;
            scope.spawn(move || {
                let store = TreeStore::open(store, TreeSettings::default()).unwrap();
                for number in 0..30 {
                    world.write("shared", &format!("{number}"));
                    world.write("own", &format!("{at}"));
                    let id = store.snapshot(&world.root).unwrap().id;
                    world.write("shared", "x");
                    world.remove("own");
                    let left = store.snapshot(&world.root).unwrap().id;
                    store.undo(&world.root, &id, &left, None).unwrap();
                    assert_eq!((world.read("shared"), world.read("own")), (number.to_string(), at.to_string()));
                    match store.collect(&[], DAY) {
                        Ok(_) | Err(TreesError::Busy(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}

#[test]
fn the_store_is_its_owners_alone() {
    let world = World::new();
    world.write("a", "a");
    world.write("large", &"l".repeat(2 << 20));
    let to = world.take();
    world.remove("a");
    let left = world.take();
    world.undo(&to, &left).unwrap();
    world.undo(&left, &to).unwrap();
    for (path, found) in picture(&world.dir.path().join("home/trees")) {
        // what was moved aside has the mode it had, inside folders that are closed
        let open = found.starts_with("folder") && !found.ends_with("40700")
            || found.starts_with("file") && !found.starts_with("file 100600") && !path.starts_with("aside/");
        assert!(!open, "{path}: {}", &found[..20.min(found.len())]);
    }
}
