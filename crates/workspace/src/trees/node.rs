//! What a tree is made of, and its bytes.
//!
//! A folder is an object: its mode and its entries, sorted by the bytes of their names. An entry that is a folder holds the
//! digest of that folder's object, so the digest of the root's object stands for everything below, and a folder in which
//! nothing changed costs nothing to keep again. The encoding is canonical: equal folders are equal bytes.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longrein_core::ids::TreeId;

/// The BLAKE3 digest of an object's bytes, and its name in the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ObjectId(pub(super) [u8; 32]);

/// Why something has a place in a snapshot, but not its content. A restore never touches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// A socket, a FIFO, a device.
    Special,
    /// We may not read it.
    Unreadable,
    /// A file over the limit.
    TooLarge,
    /// Another file system, or a part of one, is mounted there.
    Mount,
    /// A folder nested so deep that it is a mistake, or a trap.
    TooDeep,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    File { mode: u16, size: u64, object: ObjectId },
    Folder { object: ObjectId },
    Link { target: Vec<u8> },
    Beyond(LeftOut),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) node: Node,
}

/// Invariant: entries are sorted by name, no two have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) mode: u16,
    pub(super) entries: Vec<Entry>,
}

/// Of a mode, what is kept: permissions, set-uid, set-gid and sticky bit.
pub(super) const MODE_BITS: u32 = 0o7777;

const MAGIC: &[u8] = b"longrein tree 1\n";

impl ObjectId {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    pub(super) fn hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    pub(super) fn of_hex(text: &str) -> Option<Self> {
        // from_hex takes capitals too: an object has one name
        let hash = blake3::Hash::from_hex(text).ok()?;
        (hash.to_hex().as_str() == text).then(|| Self(*hash.as_bytes()))
    }

    pub(super) fn tree(self) -> TreeId {
        TreeId::new(self.hex())
    }
}

impl std::fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hex()[..12])
    }
}

impl LeftOut {
    fn code(self) -> u8 {
        match self {
            LeftOut::Special => 0,
            LeftOut::Unreadable => 1,
            LeftOut::TooLarge => 2,
            LeftOut::Mount => 3,
            LeftOut::TooDeep => 4,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        [LeftOut::Special, LeftOut::Unreadable, LeftOut::TooLarge, LeftOut::Mount, LeftOut::TooDeep]
            .into_iter()
            .find(|why| why.code() == code)
    }
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LeftOut::Special => "no regular file",
            LeftOut::Unreadable => "cannot be read",
            LeftOut::TooLarge => "over the size limit",
            LeftOut::Mount => "another file system",
            LeftOut::TooDeep => "nested too deep",
        })
    }
}

impl Folder {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.mode.to_le_bytes());
        for Entry { name, node } in &self.entries {
            let kind = match node {
                Node::File { .. } => b'f',
                Node::Folder { .. } => b'd',
                Node::Link { .. } => b'l',
                Node::Beyond(_) => b'x',
            };
            bytes.push(kind);
            push_text(&mut bytes, name);
            match node {
                Node::File { mode, size, object } => {
                    bytes.extend(mode.to_le_bytes());
                    bytes.extend(size.to_le_bytes());
                    bytes.extend(object.0);
                }
                Node::Folder { object } => bytes.extend(object.0),
                Node::Link { target } => push_text(&mut bytes, target),
                Node::Beyond(why) => bytes.push(why.code()),
            }
        }
        bytes
    }

    /// None: these bytes are no folder.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes.strip_prefix(MAGIC)?);
        let mut folder = Folder { mode: bytes.u16()?, entries: Vec::new() };
        while !bytes.0.is_empty() {
            let kind = bytes.u8()?;
            let name = bytes.text()?.to_vec();
            let node = match kind {
                b'f' => Node::File { mode: bytes.u16()?, size: bytes.u64()?, object: bytes.object()? },
                b'd' => Node::Folder { object: bytes.object()? },
                b'l' => Node::Link { target: bytes.text()?.to_vec() },
                b'x' => Node::Beyond(LeftOut::of_code(bytes.u8()?)?),
                _ => return None,
            };
            // a name is joined to a path when the tree is restored: it may lead nowhere but down
            let is_name =
                !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0);
            let in_order = folder.entries.last().is_none_or(|last| last.name < name);
            if !is_name || !in_order {
                return None;
            }
            folder.entries.push(Entry { name, node });
        }
        Some(folder)
    }

    pub(super) fn entry(&self, name: &[u8]) -> Option<&Node> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        Some(&self.entries[at].node)
    }
}

/// Names and targets of links are shorter than the kernel's PATH_MAX.
fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend(u16::try_from(text.len()).expect("the kernel gives no longer names").to_le_bytes());
    bytes.extend(text);
}

/// Reads numbers and texts off the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn object(&mut self) -> Option<ObjectId> {
        self.array().map(ObjectId)
    }

    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }
}

/// `name` below `folder`, both as bytes; an empty folder is the root.
pub(super) fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend(name);
    path
}

/// The folder that a path lies in, and its name there; None for the root.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    Some(match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    })
}

pub(super) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

pub(super) fn to_path(path: &[u8]) -> PathBuf {
    as_path(path).to_owned()
}

/// A path as one line that no other path is written as: what is no UTF-8, and control characters, byte for byte as `\xNN`,
/// a backslash as `\\`; the root as `.`.
pub fn written(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let mut text = String::with_capacity(path.len());
    let escaped = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            write!(text, "\\x{byte:02x}").expect("a string takes everything");
        }
    };
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => escaped(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => text.push(c),
            }
        }
        escaped(&mut text, chunk.invalid());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> Folder {
        let object = ObjectId::of(b"x");
        let entry = |name: &[u8], node| Entry { name: name.to_vec(), node };
        Folder {
            mode: 0o2755,
            entries: vec![
                entry(b"a\n\xff", Node::File { mode: 0o644, size: 1, object }),
                entry(b"b", Node::Folder { object }),
                entry(b"c", Node::Link { target: b"../\xfe".to_vec() }),
                entry(b"d", Node::Beyond(LeftOut::TooDeep)),
            ],
        }
    }

    #[test]
    fn a_folder_is_read_as_it_was_written() {
        assert_eq!(Folder::decode(&folder().encode()), Some(folder()));
    }

    #[test]
    fn what_is_cut_or_leads_elsewhere_is_no_folder() {
        let bytes = folder().encode();
        let whole: Vec<usize> = (0..bytes.len()).filter(|end| Folder::decode(&bytes[..*end]).is_some()).collect();
        assert_eq!(whole.len(), 4, "only at the ends of entries: {whole:?}");
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            let mut folder = folder();
            folder.entries.truncate(1);
            folder.entries[0].name = name.to_vec();
            assert_eq!(Folder::decode(&folder.encode()), None, "{name:?}");
        }
        let mut turned = folder();
        turned.entries.swap(0, 1);
        assert_eq!(Folder::decode(&turned.encode()), None);
    }

    #[test]
    fn no_two_paths_are_written_alike() {
        assert_eq!(written(b"a\\x0a"), "a\\\\x0a");
        assert_eq!(written(b"a\n"), "a\\x0a");
        assert_eq!(written(b"\xff\xc3\xa9 b"), "\\xffé b");
        assert_eq!(written(b"\xc2\x85"), "\\xc2\\x85", "a control character of two bytes");
        assert_eq!(written(b""), ".");
    }

    #[test]
    fn an_object_has_one_name() {
        let id = ObjectId::of(b"x");
        assert_eq!(ObjectId::of_hex(&id.hex()), Some(id));
        assert_eq!(ObjectId::of_hex(&id.hex().to_uppercase()), None);
        assert_eq!(ObjectId::of_hex("../x"), None);
    }
}
