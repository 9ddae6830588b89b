//! Images as wires carry them: the bytes in base64, which every provider takes without a second request.

use std::borrow::Cow;

use longrein_core::image::{ImageRef, Images, Media, with_lines};

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes `bytes` in base64, with its padding.
pub(crate) fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    let letter = |bits: u32| LETTERS[(bits & 0x3f) as usize];
    let chunks = bytes.chunks_exact(3);
    let rest = chunks.remainder();
    for chunk in chunks {
        let bits = u32::from(chunk[0]) << 16 | u32::from(chunk[1]) << 8 | u32::from(chunk[2]);
        out.extend_from_slice(&[letter(bits >> 18), letter(bits >> 12), letter(bits >> 6), letter(bits)]);
    }
    match *rest {
        [one] => {
            let bits = u32::from(one) << 16;
            out.extend_from_slice(&[letter(bits >> 18), letter(bits >> 12), b'=', b'=']);
        }
        [one, two] => {
            let bits = u32::from(one) << 16 | u32::from(two) << 8;
            out.extend_from_slice(&[letter(bits >> 18), letter(bits >> 12), letter(bits >> 6), b'=']);
        }
        _ => {}
    }
}

/// Writes a data URL. It needs no escapes in JSON.
pub(crate) fn data_url(media: Media, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("data:{};base64,", media.mime()).as_bytes());
    base64(bytes, out);
}

/// The images of one item that a wire sends as such, and the text beside them, which says of each what it is.
pub(crate) struct Pictures<'a> {
    pub(crate) words: Cow<'a, str>,
    pub(crate) sent: Vec<(Media, &'a [u8])>,
}

impl<'a> Pictures<'a> {
    pub(crate) fn of(text: &'a str, images: &'a [ImageRef], given: &'a Images) -> Self {
        Self::but(text, images, given, |_| None)
    }

    /// The same for a wire that does not carry all kinds. `left_out`: why not this one.
    pub(crate) fn but(
        text: &'a str,
        images: &'a [ImageRef],
        given: &'a Images,
        left_out: impl Fn(Media) -> Option<&'static str>,
    ) -> Self {
        let lines = images.iter().map(|image| match (given.bytes(image), left_out(image.media)) {
            (Some(_), Some(why)) => image.label(Some(why)),
            (Some(_), None) | (None, _) => given.line(image),
        });
        let sent = images.iter().filter(|image| left_out(image.media).is_none());
        Self {
            words: Cow::Owned(with_lines(text, lines)),
            sent: sent.filter_map(|image| Some((image.media, given.bytes(image)?))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, section 10, and every letter.
        let rows: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
            (b"\xfb\xef\xff\x00\x10\x83", "++//ABCD"),
        ];
        for (bytes, written) in rows {
            let mut out = Vec::new();
            base64(bytes, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), written);
        }
    }
}
