//! From a view to the steps that lay it out.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::confine::Confined;
use crate::drawn::{Drawn, LINKS_MAX};
use crate::laid::Slot;
use crate::landlock::{self, Grant};
use crate::plan::{Grab, Laying, NO_DEVICES, NO_SET_ID, Need, READ_ONLY, c};
use crate::view::{DEVICES, Kind, Shape, View, real};

/// What has been laid so far.
#[derive(Default)]
pub(crate) struct Layout {
    grabs: Vec<Grab>,
    steps: Vec<Laying>,
    made: BTreeSet<PathBuf>,
    private_bytes: u64,
}

impl Layout {
    pub(crate) fn of(confined: &Confined, view: View) -> io::Result<Drawn> {
        let mut layout = Self { private_bytes: confined.limits.private_bytes, ..Self::default() };
        layout.lay(&view)?;
        layout.system()?;
        let Self { grabs, steps, made: _, private_bytes: _ } = layout;
        let own = own(&view, &steps);
        let rules = rules(confined, &view)?;
        Ok(Drawn { view, grabs, steps, own, rules, laid: Slot::default() })
    }

    fn lay(&mut self, view: &View) -> io::Result<()> {
        for (place, kind) in &view.places {
            let is_new = self.reach(view, place)?;
            match kind {
                Kind::Link { to } => {
                    self.steps.push(Laying::Link { at: relative(place)?, to: c(to.as_os_str().as_bytes())? });
                }
                Kind::Memory => {
                    self.folder(place, is_new)?;
                    let mode = if place == Path::new("/tmp") { "1777" } else { "755" };
                    let options = c(format!("mode={mode},size={}", self.private_bytes))?;
                    self.steps.push(Laying::Memory { at: relative(place)?, options });
                }
                Kind::Read { source, shape } => {
                    self.place(place, source, *shape, READ_ONLY | NO_DEVICES | NO_SET_ID, is_new)?
                }
                Kind::Protect { source, shape } => {
                    self.place(place, source, *shape, READ_ONLY | NO_DEVICES | NO_SET_ID, is_new)?;
                }
                Kind::Write { source, shape } => self.place(place, source, *shape, NO_DEVICES | NO_SET_ID, is_new)?,
                Kind::Pin { source } => self.place(place, source, Shape::Folder, NO_DEVICES | NO_SET_ID, is_new)?,
                Kind::Hide { shape: Shape::Folder } => {
                    self.folder(place, is_new)?;
                    self.steps.push(Laying::Nothing { at: relative(place)? });
                }
                // a device on which no devices are allowed: it cannot be opened
                Kind::Hide { shape: Shape::File } => {
                    self.place(place, Path::new("/dev/null"), Shape::File, READ_ONLY | NO_DEVICES, is_new)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the folders on the way that are not there by themselves. True: the place itself is not either.
    fn reach(&mut self, view: &View, place: &Path) -> io::Result<bool> {
        let around = view.around(place);
        let is_there = match around {
            Some((
                above,
                Kind::Read { source, .. }
                | Kind::Write { source, .. }
                | Kind::Pin { source }
                | Kind::Protect { source, .. },
            )) => above == source,
            Some((_, Kind::Link { .. } | Kind::Memory | Kind::Hide { .. })) | None => false,
        };
        if !is_there {
            let top = around.map_or(Path::new("/"), |(above, _)| above);
            let mut way: Vec<&Path> = place.ancestors().skip(1).take_while(|above| *above != top).collect();
            way.reverse();
            for folder in way {
                self.folder(folder, true)?;
            }
        }
        Ok(!is_there)
    }

    fn folder(&mut self, place: &Path, is_new: bool) -> io::Result<()> {
        if is_new && self.made.insert(place.to_owned()) {
            self.steps.push(Laying::Folder(relative(place)?));
        }
        Ok(())
    }

    fn place(&mut self, place: &Path, source: &Path, shape: Shape, attributes: u64, is_new: bool) -> io::Result<()> {
        match shape {
            Shape::Folder => self.folder(place, is_new)?,
            Shape::File if is_new => self.steps.push(Laying::File(relative(place)?)),
            Shape::File => {}
        }
        let source = c(source.as_os_str().as_bytes())?;
        self.steps.push(Laying::Place { grab: self.grabs.len(), at: relative(place)? });
        self.grabs.push(Grab::new(source, attributes, Need::Must));
        Ok(())
    }

    /// What a Unix program expects beside folders with files in them.
    fn system(&mut self) -> io::Result<()> {
        self.steps.push(Laying::Folder(c("run")?));
        self.steps.push(Laying::Folder(c("dev")?));
        for device in DEVICES {
            let at = c(format!("dev/{device}"))?;
            self.steps.push(Laying::File(at.clone()));
            self.steps.push(Laying::Place { grab: self.grabs.len(), at });
            let source = c(format!("/dev/{device}"))?;
            self.grabs.push(Grab::new(source, NO_SET_ID, Need::May));
        }
        for (at, to) in [
            ("dev/fd", "/proc/self/fd"),
            ("dev/stdin", "/proc/self/fd/0"),
            ("dev/stdout", "/proc/self/fd/1"),
            ("dev/stderr", "/proc/self/fd/2"),
            ("dev/ptmx", "pts/ptmx"),
        ] {
            self.steps.push(Laying::Link { at: c(at)?, to: c(to)? });
        }
        self.steps.push(Laying::Folder(c("dev/pts")?));
        self.steps.push(Laying::Terminals { at: c("dev/pts")? });
        self.steps.push(Laying::Folder(c("dev/shm")?));
        self.steps.push(Laying::Memory { at: c("dev/shm")?, options: c("mode=1777,size=256m")? });
        self.steps.push(Laying::ReadOnly { at: c(".")? });
        Ok(())
    }
}

/// Of the steps those that are done for every command, where the rest was done once for all of them: memory, and what lies
/// in it.
fn own(view: &View, steps: &[Laying]) -> Vec<Laying> {
    let is_own = |step: &&Laying| match step {
        Laying::Memory { .. } | Laying::Terminals { .. } => true,
        Laying::Folder(at)
        | Laying::File(at)
        | Laying::Link { at, .. }
        | Laying::Nothing { at }
        | Laying::Place { at, .. }
        | Laying::Lift { at, .. }
        | Laying::ReadOnly { at } => is_in_memory(view, at),
    };
    let own: Vec<&Laying> = steps.iter().filter(is_own).collect();
    let lifts = own.iter().filter_map(|step| match step {
        Laying::Place { grab, at } => Some(Laying::Lift { grab: *grab, at: at.clone() }),
        Laying::Folder(_)
        | Laying::File(_)
        | Laying::Link { .. }
        | Laying::Memory { .. }
        | Laying::Nothing { .. }
        | Laying::Terminals { .. }
        | Laying::Lift { .. }
        | Laying::ReadOnly { .. } => None,
    });
    lifts.chain(own.iter().map(|step| (*step).clone())).collect()
}

/// Whether nothing but memory is around it. What lies in a folder that lies in memory comes along with that folder.
fn is_in_memory(view: &View, at: &CStr) -> bool {
    let mut place = Path::new("/").join(OsStr::from_bytes(at.to_bytes()));
    for _ in 0..LINKS_MAX {
        match view.around(&place) {
            Some((_, Kind::Memory)) => return true,
            Some((link, Kind::Link { to })) => {
                let leads = link.parent().unwrap_or(Path::new("/")).join(to);
                let rest = place.strip_prefix(link).unwrap_or(Path::new(""));
                place = leads.join(rest);
            }
            Some((
                _,
                Kind::Read { .. } | Kind::Pin { .. } | Kind::Write { .. } | Kind::Protect { .. } | Kind::Hide { .. },
            ))
            | None => return false,
        }
    }
    false
}

/// Rules for a view of its own: it shows only what may be read, so that reading needs one rule.
fn rules(confined: &Confined, view: &View) -> io::Result<Vec<(CString, u64)>> {
    let Some(version) = landlock::version_inside().filter(|_| confined.way.has_namespaces()) else {
        return Ok(Vec::new());
    };
    let rights = |grant, is_folder| landlock::rights(version, grant, is_folder);
    let mut rules = vec![(c("/")?, rights(Grant::Read, true))];
    for path in ["/tmp", "/dev/shm"] {
        rules.push((c(path)?, rights(Grant::Write, true)));
    }
    rules.push((c("/dev")?, rights(Grant::Device, true)));
    let scratch = confined.scratch.as_ref().map(|scratch| real(scratch)).transpose()?;
    let named: BTreeSet<&PathBuf> = view.writes.iter().chain(&view.home).collect();
    for path in named {
        // the folder of the run is at /tmp
        if Some(path) == scratch.as_ref() {
            continue;
        }
        let is_folder = view.home.as_ref() == Some(path) || path.is_dir();
        rules.push((c(path.as_os_str().as_bytes())?, rights(Grant::Write, is_folder)));
    }
    Ok(rules)
}

/// From the root of the view, which is where the child works.
fn relative(place: &Path) -> io::Result<CString> {
    let rest = place.strip_prefix("/").unwrap_or(place);
    if rest.as_os_str().is_empty() { c(".") } else { c(rest.as_os_str().as_bytes()) }
}
