//! What differs between two trees: a walk over both at once that enters only folders whose digests differ.

use std::cmp::Ordering;

use super::error::TreesError;
use super::node::{Entry, Folder, LeftOut, Node, ObjectId, below};
use super::shelf::View;

/// What is at a path, without what is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flat {
    File { mode: u16, size: u64, object: ObjectId },
    Folder { mode: u16 },
    Link { target: Vec<u8> },
    Beyond(LeftOut),
}

/// A path at which two trees differ. None: nothing is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Differing {
    pub(super) path: Vec<u8>,
    pub(super) from: Option<Flat>,
    pub(super) to: Option<Flat>,
}

/// Sorted by path: a folder comes before what is in it.
pub(super) fn differing(view: &View, from: ObjectId, to: ObjectId) -> Result<Vec<Differing>, TreesError> {
    let mut compare = Compare { view, found: Vec::new() };
    compare.nodes(&[], Some(&Node::Folder { object: from }), Some(&Node::Folder { object: to }))?;
    compare.found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(compare.found)
}

struct Compare<'a> {
    view: &'a View,
    found: Vec<Differing>,
}

impl Compare<'_> {
    fn nodes(&mut self, path: &[u8], from: Option<&Node>, to: Option<&Node>) -> Result<(), TreesError> {
        if from == to {
            return Ok(());
        }
        let (from_folder, to_folder) = (self.folder(from)?, self.folder(to)?);
        let (from, to) = (flat(from, from_folder.as_ref()), flat(to, to_folder.as_ref()));
        if from != to {
            self.found.push(Differing { path: path.to_vec(), from, to });
        }
        let entries = |folder: Option<Folder>| folder.map_or_else(Vec::new, |folder| folder.entries);
        self.entries(path, &entries(from_folder), &entries(to_folder))
    }

    fn entries(&mut self, path: &[u8], from: &[Entry], to: &[Entry]) -> Result<(), TreesError> {
        let (mut from, mut to) = (from.iter().peekable(), to.iter().peekable());
        loop {
            let order = match (from.peek(), to.peek()) {
                (Some(from), Some(to)) => from.name.cmp(&to.name),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Ok(()),
            };
            let from = if order.is_le() { from.next() } else { None };
            let to = if order.is_ge() { to.next() } else { None };
            let name = from.or(to).map_or(&[][..], |entry| entry.name.as_slice());
            self.nodes(&below(path, name), from.map(|entry| &entry.node), to.map(|entry| &entry.node))?;
        }
    }

    fn folder(&self, node: Option<&Node>) -> Result<Option<Folder>, TreesError> {
        match node {
            Some(Node::Folder { object }) => {
                let missing = || TreesError::Damaged(format!("the folder {} is missing", object.hex()));
                self.view.folder(*object)?.ok_or_else(missing).map(Some)
            }
            Some(Node::File { .. } | Node::Link { .. } | Node::Beyond(_)) | None => Ok(None),
        }
    }
}

fn flat(node: Option<&Node>, folder: Option<&Folder>) -> Option<Flat> {
    Some(match node? {
        Node::File { mode, size, object } => Flat::File { mode: *mode, size: *size, object: *object },
        Node::Folder { .. } => Flat::Folder { mode: folder?.mode },
        Node::Link { target } => Flat::Link { target: target.clone() },
        Node::Beyond(why) => Flat::Beyond(*why),
    })
}
