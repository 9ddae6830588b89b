//! Files of a name, wherever in the workspace they lie: those that say how to work in their folder.

use std::path::Path;
use std::time::Instant;

use crate::error::Error;
use crate::root::{Place, Root};
use crate::walk::{Go, Wanted, walk};

impl Root {
    /// Files called one of `names`, those of the workspace's own folder first, then in the order of a walk; at most `most`
    /// of them, as far as could be looked at `until`. Ignored and hidden folders are left out. Links of that name count;
    /// where they lead is for [`Root::locate`] to say.
    pub fn named(&self, names: &[&str], most: usize, until: Instant) -> Result<Vec<Place>, Error> {
        let folder = Place::Inside(Path::new("").to_owned());
        let mut found: Vec<Place> = names.iter().map(|name| folder.join(name)).collect();
        found.retain(|place| self.lies_there(place));
        let wanted = Wanted::new(Some(&format!("**/{{{}}}", names.join(","))))?;
        // An unfinished walk is a large workspace: what it has not seen is shown as data when it is read.
        walk(self, &folder, &wanted, until, |step| {
            let is_file = step.entry.file_type().is_some_and(|kind| kind.is_file() || kind.is_symlink());
            if is_file && !found.contains(&step.place) {
                found.push(step.place);
            }
            if found.len() < most { Go::On } else { Go::Stop }
        });
        Ok(found)
    }

    /// Whether there is a file or a link.
    fn lies_there(&self, place: &Place) -> bool {
        // A link is refused as what has moved.
        matches!(self.open_file(place), Ok(_) | Err(Error::Moved { .. } | Error::Denied { .. }))
    }
}
