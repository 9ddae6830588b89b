//! The files of a simulation: what the workspace tools wrote, and the marks that must be there for it.

use std::sync::Arc;

use longrein_core::taint::Mark;
use longrein_core::time::Timestamp;
use longrein_ports::{BoxFuture, Ledger, Origins, Written};

use crate::process::Process;
use crate::world::World;

/// How far before a start a change may seem to lie, as in the file system's own look.
const SLACK_MS: u64 = 2_000;

/// The files as one process sees them. Reading brings nothing here: the gate's table says what taints.
pub struct Files {
    pub world: Arc<World>,
    pub process: Arc<Process>,
}

impl Ledger for Files {
    fn file(&self, _path: &str) -> Option<Mark> {
        self.process.glance();
        None
    }

    fn below(&self, _folder: &str) -> Option<Mark> {
        self.process.glance();
        None
    }

    fn endorses(&self, _source: &str) -> bool {
        self.process.glance();
        false
    }
}

impl Origins for Files {
    fn written<'a>(&'a self, folder: &'a str, since: Timestamp) -> BoxFuture<'a, Vec<Written>> {
        Box::pin(async move {
            self.process.call(&format!("look for what was written in {folder}")).await;
            let since = Timestamp(since.0.saturating_sub(SLACK_MS));
            let files = self.world.files().into_iter();
            let found = files.filter(|file| file.folder == folder && file.at >= since);
            let written = found.map(|file| Written { path: file.path, content: Some(file.content) }).collect();
            self.process.pass().await;
            written
        })
    }
}
