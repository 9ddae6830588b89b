//! Writing a whole new text where another was, without losing what a model never saw of it.

use crate::text::{Encoding, Newline, Newlines, Text};

/// What of the old file the new one has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// An encoding with a byte order mark.
    pub encoding: Option<Encoding>,
    /// CRLF, or CR alone, throughout.
    pub newline: Option<Newline>,
}

/// New content as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    pub bytes: Vec<u8>,
    pub kept: Kept,
}

/// Encodes `content` to replace `before`. A byte order mark with its encoding, and newlines that were CRLF or CR
/// throughout, are kept: what was read did not show them. Everything else is as `content` says, in UTF-8.
pub fn carry(before: &[u8], content: &str) -> Carried {
    let Ok(text) = Text::new(before) else {
        return Carried { bytes: content.as_bytes().to_vec(), kept: Kept::default() };
    };
    let encoding = Some(text.encoding).filter(|encoding| !encoding.mark().is_empty());
    let newline = match text.newlines() {
        Newlines::All(newline @ (Newline::CrLf | Newline::Cr)) if !content.contains('\r') => Some(newline),
        Newlines::All(_) | Newlines::None | Newlines::Mixed => None,
    };
    let content = newline.map_or_else(|| content.to_owned(), |newline| content.replace('\n', newline.as_str()));
    let as_written = encoding.unwrap_or(Encoding::Utf8 { bom: false });
    let mut bytes = as_written.mark().to_vec();
    // a mark is written once
    let content = content.strip_prefix('\u{feff}').filter(|_| encoding.is_some()).unwrap_or(&content);
    bytes.extend(as_written.encode(content));
    Carried { bytes, kept: Kept { encoding, newline } }
}
