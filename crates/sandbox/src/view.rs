//! Which folders a command sees, and where: the plan of its file system, worked out before there is a command.
//!
//! The view starts empty. System folders, tool chains and what the caller grants are bound into it; what must not be changed
//! or seen is laid over it. So what nobody named is not there at all.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::confine::{Confined, Sealed};
use crate::toolchain;

/// Folders of the system that every program may need. `/var` is not among them as a whole: mail, logs and spools are
/// people's.
pub(crate) const SYSTEM: [&str; 16] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/snap",
    "/sys",
    "/var/lib",
    "/var/cache",
    "/run/current-system",
];

/// Of those, what only root should read. Where we are root, file modes do not say so.
const SYSTEM_SECRETS: [&str; 10] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/longrein",
    "/var/lib/docker",
];

/// Device files that are as harmless as they are needed.
pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Folder,
    File,
}

/// What lies at a place of the view. Of two at one place the later variant counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Link {
        to: PathBuf,
    },
    /// Memory of its own, for files that are gone with the command.
    Memory,
    Read {
        source: PathBuf,
        shape: Shape,
    },
    /// A folder between what may be written and what may not: fixed in its place, so that nobody moves both away.
    Pin {
        source: PathBuf,
    },
    Write {
        source: PathBuf,
        shape: Shape,
    },
    Protect {
        source: PathBuf,
        shape: Shape,
    },
    Hide {
        shape: Shape,
    },
}

/// The places, parents before what lies in them.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) places: BTreeMap<PathBuf, Kind>,
    /// What a ruleset has to grant writing on: canonical, existing.
    pub(crate) writes: Vec<PathBuf>,
    pub(crate) reads: Vec<PathBuf>,
    pub(crate) hidden: Vec<PathBuf>,
    /// The private home, if there is one.
    pub(crate) home: Option<PathBuf>,
}

impl View {
    pub(crate) fn of(confined: &Confined, env: &[(String, String)]) -> io::Result<Self> {
        let mut view =
            Self { places: BTreeMap::new(), writes: Vec::new(), reads: Vec::new(), hidden: Vec::new(), home: None };
        let home = env.iter().rev().find(|(name, _)| name == "HOME").map(|(_, home)| PathBuf::from(home));
        for (from, to) in [("/var/tmp", "/tmp"), ("/var/run", "/run")] {
            view.put(PathBuf::from(from), Kind::Link { to: PathBuf::from(to) });
        }
        for path in SYSTEM.map(Path::new) {
            match path.read_link() {
                Ok(to) => view.put(path.to_owned(), Kind::Link { to }),
                Err(_) => view.grant(path, Kind::read)?,
            }
        }
        view.put(PathBuf::from("/tmp"), Kind::Memory);
        if let Some(scratch) = &confined.scratch {
            let scratch = real(scratch)?;
            let source = scratch.clone();
            view.put(PathBuf::from("/tmp"), Kind::Write { source, shape: Shape::Folder });
            view.writes.push(scratch);
        }
        for path in confined.reads.iter().cloned().chain(toolchain::needed(env)) {
            view.grant(&path, Kind::read)?;
        }
        for path in &confined.writes {
            if !path.exists() {
                let message = format!("{} is to be written and is not there", path.display());
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            }
            view.grant(path, Kind::write)?;
        }
        if let Some(home) = home.filter(|home| home.is_absolute() && home.parent().is_some()) {
            view.private_home(&home);
        }
        view.prune();
        // before what lies in them: what is open in a folder counts as a folder that may be written
        for Sealed { folder, open } in &confined.sealed {
            view.seal(folder, open)?;
        }
        for path in &confined.read_only {
            view.cover(path, |source, shape| Kind::Protect { source, shape })?;
        }
        for path in hidden(confined, env) {
            if let Ok(real) = path.canonicalize() {
                view.hidden.push(real);
            }
            view.cover(&path, |_, shape| Kind::Hide { shape })?;
        }
        Ok(view)
    }

    fn put(&mut self, place: PathBuf, kind: Kind) {
        match self.places.get(&place) {
            Some(there) if *there >= kind => {}
            Some(_) | None => {
                self.places.insert(place, kind);
            }
        }
    }

    /// Shows a path where it is, and where links lead to it. What is not there, or may not be looked at, is passed over.
    fn grant(&mut self, path: &Path, kind: fn(PathBuf, Shape) -> Kind) -> io::Result<()> {
        let Ok(there) = path.canonicalize() else { return Ok(()) };
        let Some(shape) = shape(&there) else { return Ok(()) };
        if there == Path::new("/") {
            let message = "the root folder as a whole cannot be granted: name what is needed of it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if path != there && is_plain(path) {
            self.put(path.to_owned(), Kind::Link { to: there.clone() });
        }
        let kind = kind(there.clone(), shape);
        match &kind {
            Kind::Write { .. } => self.writes.push(there.clone()),
            Kind::Link { .. }
            | Kind::Memory
            | Kind::Read { .. }
            | Kind::Pin { .. }
            | Kind::Protect { .. }
            | Kind::Hide { .. } => self.reads.push(there.clone()),
        }
        self.put(there, kind);
        Ok(())
    }

    /// An empty home, so that programs which keep something there work, unless the home itself may be written.
    fn private_home(&mut self, home: &Path) {
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        let is_granted = self.writes.iter().any(|write| home.starts_with(write));
        let is_system = SYSTEM.iter().any(|system| home.starts_with(system) && !home.is_dir());
        if !is_granted && !is_system && home != Path::new("/tmp") {
            self.put(home.clone(), Kind::Memory);
            self.home = Some(home);
        }
    }

    /// What is already there through a folder above it needs no place of its own.
    fn prune(&mut self) {
        let places = std::mem::take(&mut self.places);
        for (place, kind) in places {
            let around = self.around(&place).map(|(_, kind)| kind);
            let is_shown = match (&kind, around) {
                (Kind::Read { source, .. }, Some(Kind::Read { .. } | Kind::Write { .. })) => self.shows(&place, source),
                (Kind::Write { source, .. }, Some(Kind::Write { .. })) => self.shows(&place, source),
                // a link is bound with the folder it is in
                (Kind::Link { .. }, Some(Kind::Read { .. } | Kind::Write { .. })) => self.shows(&place, &place),
                (Kind::Read { .. } | Kind::Write { .. } | Kind::Link { .. }, _)
                | (Kind::Memory | Kind::Pin { .. } | Kind::Protect { .. } | Kind::Hide { .. }, _) => false,
            };
            if !is_shown {
                self.places.insert(place, kind);
            }
        }
    }

    /// Whether the folder around a place shows there what lies at `source`.
    fn shows(&self, place: &Path, source: &Path) -> bool {
        self.around(place).is_some_and(|(around, kind)| {
            let of = match kind {
                Kind::Read { source, .. }
                | Kind::Write { source, .. }
                | Kind::Pin { source }
                | Kind::Protect { source, .. } => source,
                Kind::Link { .. } | Kind::Memory | Kind::Hide { .. } => return false,
            };
            place.strip_prefix(around).is_ok_and(|rest| of.join(rest) == source)
        })
    }

    /// The nearest place above this one.
    pub(crate) fn around(&self, place: &Path) -> Option<(&Path, &Kind)> {
        place
            .ancestors()
            .skip(1)
            .find_map(|above| self.places.get_key_value(above).map(|(above, kind)| (above.as_path(), kind)))
    }

    /// Makes a folder read-only where it could be written, and what is open in it writable again.
    fn seal(&mut self, folder: &Path, open: &[PathBuf]) -> io::Result<()> {
        let Ok(there) = folder.canonicalize() else { return Ok(()) };
        let around = self.around(&there).map(|(_, around)| around.clone());
        let Some(Kind::Write { .. } | Kind::Pin { .. }) = around else { return Ok(()) };
        self.cover(&there, |source, shape| Kind::Protect { source, shape })?;
        for inside in open.iter().filter_map(|path| path.canonicalize().ok()) {
            if inside.starts_with(&there) && inside != there && inside.is_dir() && self.shows(&inside, &inside) {
                self.put(inside.clone(), Kind::Write { source: inside, shape: Shape::Folder });
            }
        }
        Ok(())
    }

    /// Lays something over what is visible of a path, and fixes the folders on the way where they could be moved.
    fn cover(&mut self, path: &Path, kind: fn(PathBuf, Shape) -> Kind) -> io::Result<()> {
        let Ok(there) = path.canonicalize() else { return Ok(()) };
        let Some(shape) = shape(&there) else { return Ok(()) };
        // Only what a folder around it shows anyway is fixed on the way: another folder of that name must not come in by it.
        let around = self.around(&there).map(|(above, around)| (above.to_owned(), around.clone()));
        let Some((above, around)) = around.filter(|_| self.shows(&there, &there)) else {
            if self.places.contains_key(&there) {
                self.put(there.clone(), kind(there, shape));
            }
            return Ok(());
        };
        if matches!(around, Kind::Write { .. } | Kind::Pin { .. }) {
            for between in there.ancestors().skip(1).take_while(|between| *between != above) {
                self.put(between.to_owned(), Kind::Pin { source: between.to_owned() });
            }
        }
        self.put(there.clone(), kind(there, shape));
        Ok(())
    }
}

/// Every path whose place, kind or absence a view depends on. What leads to them is not named.
pub(crate) fn looked_at(confined: &Confined, env: &[(String, String)]) -> Vec<PathBuf> {
    let home = env.iter().filter(|(name, _)| name == "HOME").map(|(_, home)| PathBuf::from(home));
    let system = SYSTEM.into_iter().map(PathBuf::from);
    let named = [&confined.reads, &confined.writes, &confined.read_only].into_iter().flatten().cloned();
    let sealed = confined.sealed.iter().flat_map(|sealed| std::iter::once(&sealed.folder).chain(&sealed.open)).cloned();
    let scratch = confined.scratch.iter().cloned();
    let devices = DEVICES.into_iter().map(|device| Path::new("/dev").join(device));
    let rest =
        system.chain(devices).chain(home).chain(toolchain::needed(env)).chain(named).chain(sealed).chain(scratch);
    rest.chain(hidden(confined, env)).filter(|path| path.is_absolute()).collect()
}

fn hidden(confined: &Confined, env: &[(String, String)]) -> impl Iterator<Item = PathBuf> {
    let named = confined.hidden.clone().into_iter();
    named.chain(toolchain::credentials(env)).chain(SYSTEM_SECRETS.map(PathBuf::from))
}

impl Kind {
    fn read(source: PathBuf, shape: Shape) -> Self {
        Self::Read { source, shape }
    }

    fn write(source: PathBuf, shape: Shape) -> Self {
        Self::Write { source, shape }
    }
}

/// Absolute, and without parts that mean another place.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

pub(crate) fn real(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn shape(path: &Path) -> Option<Shape> {
    let data = path.symlink_metadata().ok()?;
    Some(if data.is_dir() { Shape::Folder } else { Shape::File })
}

/// `roots` without what is hidden: a hidden path splits the folders around it into what else they hold. For rules that know
/// no exceptions; a name that is new later is not seen.
pub(crate) fn without(roots: &[PathBuf], hidden: &[PathBuf]) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    let mut open: Vec<PathBuf> = roots.to_vec();
    let mut seen = BTreeSet::new();
    while let Some(root) = open.pop() {
        if !seen.insert(root.clone()) || hidden.contains(&root) {
            continue;
        }
        if hidden.iter().any(|hidden| hidden.starts_with(&root)) {
            let entries = root.read_dir().into_iter().flatten().flatten();
            open.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
                    .map(|entry| entry.path()),
            );
        } else {
            kept.push(root);
        }
    }
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine::Way;

    #[test]
    fn a_view_of_a_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["home/.cargo/bin", "home/.ssh", "home/proj/.git/hooks", "home/proj/a/b", "other"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        for path in ["home/.cargo/credentials.toml", "home/proj/.git/config", "home/proj/a/b/.env"] {
            std::fs::write(root.join(path), "x").unwrap();
        }
        std::os::unix::fs::symlink(root.join("home/proj"), root.join("link")).unwrap();
        let at = |path: &str| root.join(path);
        let env = [
            ("HOME".to_owned(), at("home").to_str().unwrap().to_owned()),
            ("PATH".to_owned(), format!("{}:/usr/bin", at("home/.cargo/bin").display())),
        ];
        let mut confined = Confined::new(Way::UserNamespace);
        confined.writes = vec![at("link")];
        confined.read_only = vec![at("home/proj/.git/hooks"), at("home/proj/.git/config"), at("home/proj/.none")];
        confined.hidden = vec![at("home/proj/a/b/.env"), at("other")];
        let view = View::of(&confined, &env).unwrap();
        let kind = |path: &str| view.places.get(&at(path));
        let write = |path: &str| Kind::Write { source: at(path), shape: Shape::Folder };
        let pin = |path: &str| Kind::Pin { source: at(path) };
        assert_eq!(kind("home"), Some(&Kind::Memory));
        assert_eq!(kind("link"), Some(&Kind::Link { to: at("home/proj") }));
        assert_eq!(kind("home/proj"), Some(&write("home/proj")));
        assert_eq!(kind("home/proj/.git"), Some(&pin("home/proj/.git")));
        let hooks = Kind::Protect { source: at("home/proj/.git/hooks"), shape: Shape::Folder };
        assert_eq!(kind("home/proj/.git/hooks"), Some(&hooks));
        assert_eq!(kind("home/proj/a"), Some(&pin("home/proj/a")));
        assert_eq!(kind("home/proj/a/b"), Some(&pin("home/proj/a/b")));
        assert_eq!(kind("home/proj/a/b/.env"), Some(&Kind::Hide { shape: Shape::File }));
        assert_eq!(kind("home/.cargo"), Some(&Kind::Read { source: at("home/.cargo"), shape: Shape::Folder }));
        assert_eq!(kind("home/.cargo/credentials.toml"), Some(&Kind::Hide { shape: Shape::File }));
        // not in the view at all: nothing to lay anything over
        for path in ["home/.ssh", "other", "home/proj/.none"] {
            assert_eq!(kind(path), None, "{path}");
        }
    }

    #[test]
    fn a_sealed_folder_is_read_only_but_for_what_is_open_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["proj/.git/modules/a/hooks", "proj/.git/modules/b/c", "elsewhere"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        let at = |path: &str| root.join(path);
        let mut confined = Confined::new(Way::UserNamespace);
        let open = ["proj/.git/modules/a", "proj/.git/modules/b/c", "elsewhere", "proj"].map(at).into();
        confined.sealed = vec![Sealed { folder: at("proj/.git/modules"), open }];
        confined.read_only = vec![at("proj/.git/modules/a/hooks")];
        // what cannot be written anyway stays so
        confined.reads = vec![at("proj")];
        let kinds = |confined: &Confined| {
            let view = View::of(confined, &[]).unwrap();
            let names = view.places.into_iter().filter(|(place, _)| place.starts_with(&root));
            let kinds = names.map(|(place, kind)| {
                let name = place.strip_prefix(&root).unwrap().display().to_string();
                let kind = match kind {
                    Kind::Read { .. } => "read",
                    Kind::Write { .. } => "write",
                    Kind::Protect { .. } => "protect",
                    Kind::Pin { .. } => "pin",
                    Kind::Link { .. } | Kind::Memory | Kind::Hide { .. } => "other",
                };
                format!("{name} {kind}")
            });
            kinds.collect::<Vec<_>>()
        };
        assert_eq!(kinds(&confined), ["proj read", "proj/.git/modules/a/hooks protect"]);
        confined.writes = vec![at("proj")];
        assert_eq!(
            kinds(&confined),
            [
                "proj write",
                "proj/.git pin",
                "proj/.git/modules protect",
                "proj/.git/modules/a write",
                "proj/.git/modules/a/hooks protect",
                "proj/.git/modules/b/c write",
            ]
        );
    }

    #[test]
    fn nothing_comes_into_view_that_was_not_granted() {
        let folder = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["proj/.git/hooks", "proj/out", "proj/sub", "neighbour", "scratch", "home"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        for path in ["proj/.env", "proj/sub/.env", "proj/out/.env", "neighbour/secret", "proj/.git/config"] {
            std::fs::write(root.join(path), "x").unwrap();
        }
        let at = |path: &str| root.join(path);
        let grants = ["proj", "proj/.env", "proj/sub", "proj/sub/.env", "proj/out"];
        let env = [("HOME".to_owned(), at("home").display().to_string())];
        for chosen in 0..1_u32 << (2 * grants.len() + 2) {
            let has = |bit: usize| chosen >> bit & 1 == 1;
            let pick =
                |from: usize| (0..grants.len()).filter(|bit| has(from + bit)).map(|bit| at(grants[bit])).collect();
            let mut confined = Confined::new(Way::UserNamespace);
            confined.reads = pick(0);
            confined.writes = pick(grants.len());
            confined.scratch = has(2 * grants.len()).then(|| at("scratch"));
            if has(2 * grants.len() + 1) {
                confined.hidden = ["proj/.env", "proj/sub/.env", "proj/out/.env", "neighbour"].map(at).into();
                confined.read_only = ["proj/.git/hooks", "proj/.git/config", "proj/out"].map(at).into();
            }
            let view = View::of(&confined, &env).unwrap();
            let granted = confined.reads.iter().chain(&confined.writes).chain(&confined.scratch);
            let granted: Vec<_> = granted.collect();
            for (place, kind) in &view.places {
                let (Kind::Read { source, .. }
                | Kind::Write { source, .. }
                | Kind::Pin { source }
                | Kind::Protect { source, .. }) = kind
                else {
                    continue;
                };
                let is_granted = granted.iter().any(|granted| source.starts_with(granted));
                assert!(is_granted || !source.starts_with(&root), "{}: {kind:?} by {confined:?}", place.display());
                let written = confined.writes.iter().chain(&confined.scratch).any(|write| source.starts_with(write));
                assert!(
                    written || !matches!(kind, Kind::Write { .. } | Kind::Pin { .. }) || !source.starts_with(&root)
                );
            }
        }
    }

    #[test]
    fn hidden_paths_split_what_is_around_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in ["a/b/c", "a/d", "e"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        let left = without(&[root.to_owned(), root.join("e")], &[root.join("a/b"), root.join("zz")]);
        assert_eq!(left, [root.join("a/d"), root.join("e")]);
        assert_eq!(without(&[root.join("a/b/c")], &[root.join("a/b")]), [root.join("a/b/c")]);
    }
}
