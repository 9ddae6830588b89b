//! What a file is, and how large its picture, by its first bytes. Pure, and ready for anything: a header may be cut off,
//! lie about lengths, or be no header at all. Nothing is decoded, so a picture that is broken further on passes here.

use super::{IMAGE_BYTES_MAX, IMAGE_SIDE_MAX, Media};

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub media: Media,
    pub width: u32,
    pub height: u32,
}

/// Why a file cannot be shown as an image. A message ends with the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is something else.
    Other(&'static str),
    /// It begins as one of the four, and its size cannot be read.
    Broken {
        media: Media,
        what: &'static str,
    },
    TooLarge {
        bytes: u64,
    },
    TooWide {
        width: u32,
        height: u32,
    },
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::Other(what) => {
                write!(f, "it is {what}; images are png, jpeg, gif or webp: convert it to one of these")
            }
            Unfit::Broken { media, what } => write!(f, "it begins as a {} and {what}: save it anew", media.as_str()),
            Unfit::TooLarge { bytes } => write!(
                f,
                "it has {bytes} bytes, and an image may have at most {IMAGE_BYTES_MAX} (5 MB): make it smaller, or save it \
                 as a jpeg"
            ),
            Unfit::TooWide { width, height } => write!(
                f,
                "it is {width}×{height} pixels, and a side may have at most {IMAGE_SIDE_MAX}: make it smaller, or cut it up"
            ),
        }
    }
}

impl std::error::Error for Unfit {}

const CUT: &str = "is cut off before it says how large it is";
const LIES: &str = "does not say how large it is where it should";
const EMPTY: &str = "says that it is 0 pixels wide or high";

/// Reads the header of a file.
pub fn header(bytes: &[u8]) -> Result<Header, Unfit> {
    let media = kind(bytes).ok_or_else(|| Unfit::Other(other(bytes)))?;
    let size = match media {
        Media::Png => png(bytes),
        Media::Jpeg => jpeg(bytes),
        Media::Gif => gif(bytes),
        Media::Webp => webp(bytes),
    };
    match size {
        Ok((width, height)) if width > 0 && height > 0 => Ok(Header { media, width, height }),
        Ok(_) => Err(Unfit::Broken { media, what: EMPTY }),
        Err(what) => Err(Unfit::Broken { media, what }),
    }
}

type Size = Result<(u32, u32), &'static str>;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

fn kind(bytes: &[u8]) -> Option<Media> {
    if bytes.starts_with(PNG) {
        return Some(Media::Png);
    }
    if bytes.starts_with(b"\xff\xd8\xff") {
        return Some(Media::Jpeg);
    }
    if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        return Some(Media::Gif);
    }
    (bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")).then_some(Media::Webp)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], &'static str> {
    let found = at.checked_add(N).and_then(|end| bytes.get(at..end));
    found.and_then(|found| found.try_into().ok()).ok_or(CUT)
}

fn png(bytes: &[u8]) -> Size {
    // The first chunk is always this one, with 13 bytes.
    if array::<8>(bytes, 8)? != *b"\0\0\0\x0dIHDR" {
        return Err(LIES);
    }
    Ok((u32::from_be_bytes(array(bytes, 16)?), u32::from_be_bytes(array(bytes, 20)?)))
}

fn gif(bytes: &[u8]) -> Size {
    let width = u16::from_le_bytes(array(bytes, 6)?);
    let height = u16::from_le_bytes(array(bytes, 8)?);
    Ok((width.into(), height.into()))
}

/// Goes from segment to segment up to the one that begins a frame. Each step goes on by at least two bytes.
fn jpeg(bytes: &[u8]) -> Size {
    let mut at = 2;
    loop {
        let [mark, kind] = array(bytes, at)?;
        if mark != 0xff {
            return Err(LIES);
        }
        match kind {
            // One more byte of filling.
            0xff => at += 1,
            // Marks that stand alone.
            0x01 | 0xd0..=0xd8 => at += 2,
            // Frames: all of this row but tables, a reserved one, and arithmetic conditions.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                let height = u16::from_be_bytes(array(bytes, at + 5)?);
                let width = u16::from_be_bytes(array(bytes, at + 7)?);
                return Ok((width.into(), height.into()));
            }
            // The picture itself, or its end.
            0xd9 | 0xda => return Err(LIES),
            _ => {
                let length = usize::from(u16::from_be_bytes(array(bytes, at + 2)?));
                // A length counts itself.
                if length < 2 {
                    return Err(LIES);
                }
                at += 2 + length;
            }
        }
    }
}

fn webp(bytes: &[u8]) -> Size {
    match &array::<4>(bytes, 12)? {
        b"VP8 " => {
            if array::<3>(bytes, 23)? != [0x9d, 0x01, 0x2a] {
                return Err(LIES);
            }
            // The upper two bits say how it is to be scaled.
            let side = |at| array(bytes, at).map(|side| u32::from(u16::from_le_bytes(side) & 0x3fff));
            Ok((side(26)?, side(28)?))
        }
        b"VP8L" => {
            let [mark] = array(bytes, 20)?;
            if mark != 0x2f {
                return Err(LIES);
            }
            let both = u32::from_le_bytes(array(bytes, 21)?);
            Ok(((both & 0x3fff) + 1, (both >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => {
            let side =
                |at| array::<3>(bytes, at).map(|[low, middle, high]| u32::from_le_bytes([low, middle, high, 0]) + 1);
            Ok((side(24)?, side(27)?))
        }
        _ => Err(LIES),
    }
}

/// What a file is that is none of the four, as far as its first bytes say.
fn other(bytes: &[u8]) -> &'static str {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"%PDF", "a PDF"),
        (b"BM", "a BMP"),
        (b"II*\0", "a TIFF"),
        (b"MM\0*", "a TIFF"),
        (b"\0\0\x01\0", "an icon (ICO)"),
        (b"8BPS", "a Photoshop file"),
        (b"\x00\x00\x00\x0cJXL ", "a JPEG XL"),
        (b"\xff\x0a", "a JPEG XL"),
        (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000"),
        (b"PK\x03\x04", "a ZIP archive or an office document"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"\x7fELF", "a program"),
        (b"OggS", "sound or video (Ogg)"),
        (b"ID3", "sound (MP3)"),
        (b"\x1aE\xdf\xa3", "a video (Matroska or WebM)"),
        (b"RIFF", "sound or video (RIFF)"),
    ];
    if bytes.is_empty() {
        return "empty";
    }
    if let Some((_, what)) = KNOWN.iter().find(|(start, _)| bytes.starts_with(start)) {
        return what;
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return match bytes.get(8..12) {
            Some(b"avif" | b"avis") => "an AVIF",
            Some(b"heic" | b"heix" | b"hevc" | b"mif1" | b"msf1") => "a HEIC",
            Some(_) | None => "a video (MP4)",
        };
    }
    let start = &bytes[..bytes.len().min(512)];
    let whole = match std::str::from_utf8(start) {
        Ok(text) => Some(text),
        // A letter that the excerpt cuts in two.
        Err(error) if error.error_len().is_none() => {
            start.get(..error.valid_up_to()).and_then(|start| std::str::from_utf8(start).ok())
        }
        Err(_) => None,
    };
    match whole {
        Some(text) if text.contains("<svg") => "an SVG drawing",
        Some(text) if text.contains('\0') => "no image this can read",
        Some(_) => "text",
        None => "no image this can read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        [PNG, b"\0\0\0\x0dIHDR", &width.to_be_bytes(), &height.to_be_bytes(), b"\x08\x06\0\0\0"].concat()
    }

    fn gif(width: u16, height: u16) -> Vec<u8> {
        [&b"GIF89a"[..], &width.to_le_bytes(), &height.to_le_bytes(), b"\xf0\0\0"].concat()
    }

    /// With what cameras put before the frame: a segment of their own, and a byte of filling.
    fn jpeg(width: u16, height: u16, frame: u8) -> Vec<u8> {
        let own = [&b"\xff\xd8\xff\xe0\0\x06JFIF\xff\xfe\0\x04\xff\xc0\xff\xff"[..], &[frame], b"\0\x11\x08"].concat();
        [&own[..], &height.to_be_bytes(), &width.to_be_bytes(), b"\x03"].concat()
    }

    fn webp(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&b"RIFF\x40\0\0\0WEBP"[..], kind, b"\x20\0\0\0", body].concat()
    }

    fn lossy(width: u16, height: u16) -> Vec<u8> {
        webp(b"VP8 ", &[&b"\x30\x01\0\x9d\x01\x2a"[..], &width.to_le_bytes(), &height.to_le_bytes()].concat())
    }

    fn lossless(width: u32, height: u32) -> Vec<u8> {
        webp(b"VP8L", &[&b"\x2f"[..], &((width - 1) | (height - 1) << 14).to_le_bytes()].concat())
    }

    fn extended(width: u32, height: u32) -> Vec<u8> {
        let side = |side: u32| (side - 1).to_le_bytes()[..3].to_vec();
        webp(b"VP8X", &[b"\x10\0\0\0".to_vec(), side(width), side(height)].concat())
    }

    fn every_kind() -> Vec<(Media, Vec<u8>)> {
        let mut all = vec![
            (Media::Png, png(640, 480)),
            (Media::Gif, gif(640, 480)),
            (Media::Webp, lossy(640, 480)),
            (Media::Webp, lossless(640, 480)),
            (Media::Webp, extended(640, 480)),
        ];
        all.extend([0xc0, 0xc1, 0xc2, 0xcf].map(|frame| (Media::Jpeg, jpeg(640, 480, frame))));
        all
    }

    #[test]
    fn each_kind_says_its_size() {
        for (media, bytes) in every_kind() {
            assert_eq!(header(&bytes), Ok(Header { media, width: 640, height: 480 }), "{bytes:02x?}");
        }
        assert_eq!(header(&lossless(1, 16_384)).unwrap().height, 16_384);
        assert_eq!(header(&extended(16_777_216, 1)).unwrap().width, 16_777_216);
        assert_eq!(header(&lossy(640 | 0x4000, 480)).unwrap().width, 640, "the bits for scaling are no width");
    }

    #[test]
    fn a_header_that_is_cut_off_anywhere_is_an_error() {
        for (media, bytes) in every_kind() {
            let needed = (0..=bytes.len()).find(|length| header(&bytes[..*length]).is_ok()).unwrap();
            for length in 0..needed {
                match header(&bytes[..length]) {
                    Err(Unfit::Broken { media: of, what: CUT }) => assert_eq!(of, media),
                    Err(Unfit::Other(_)) => assert!(length < 12, "{media:?} at {length}"),
                    found => panic!("{media:?} at {length}: {found:?}"),
                }
            }
        }
    }

    #[test]
    fn a_header_that_lies_is_an_error() {
        let broken = |bytes: &[u8]| match header(bytes) {
            Err(Unfit::Broken { what, .. }) => what,
            found => panic!("{found:?} of {bytes:02x?}"),
        };
        for bytes in [png(0, 480), png(640, 0), gif(0, 1), jpeg(0, 480, 0xc0), lossy(0, 480), lossy(0x4000, 480)] {
            assert_eq!(broken(&bytes), EMPTY);
        }
        let mut other_chunk = png(640, 480);
        other_chunk[12..16].copy_from_slice(b"IDAT");
        let mut no_start_code = lossy(640, 480);
        no_start_code[23] = 0;
        let mut no_mark = lossless(640, 480);
        no_mark[20] = 0;
        let lies: [&[u8]; 8] = [
            &other_chunk,
            &no_start_code,
            &no_mark,
            &webp(b"ALPH", b"\0\0\0\0\0\0\0\0\0\0"),
            b"\xff\xd8\xff\xd9\0\0\0\0\0\0\0\0",
            b"\xff\xd8\xff\xda\0\x02\xff\xc0\0\x11\x08\0\x01\0\x01",
            // Lengths of 0 and 1, that would never end.
            b"\xff\xd8\xff\xe0\0\0\xff\xe0\0\0\xff\xe0\0\0",
            b"\xff\xd8\xff\xe0\0\x01\xff\xe0\0\x01\xff\xe0\0\x01",
        ];
        for bytes in lies {
            assert_eq!(broken(bytes), LIES);
        }
        assert_eq!(broken(b"\xff\xd8\xff\xe0\xff\xff\xff\xc0\0\x11\x08\0\x01\0\x01"), CUT, "beyond its end");
        // Progressive, and only filling.
        assert_eq!(broken(&[&b"\xff\xd8"[..], &[0xff; 5_000]].concat()), CUT);
        assert_eq!(broken(b"\xff\xd8\xff\xc4\0\x04\0\0\xff\xd9"), LIES, "tables are no frame");
    }

    #[test]
    fn what_is_none_of_the_four_is_named() {
        let rows: &[(&[u8], &str)] = &[
            (b"", "empty"),
            (b"%PDF-1.7", "a PDF"),
            (b"BM\x36\0", "a BMP"),
            (b"II*\0\x08\0", "a TIFF"),
            (b"\0\0\0\x20ftypheic\0\0", "a HEIC"),
            (b"\0\0\0\x20ftypavif\0\0", "an AVIF"),
            (b"\0\0\0\x20ftypisom\0\0", "a video (MP4)"),
            (b"<?xml version=\"1.0\"?><svg xmlns=\"x\">", "an SVG drawing"),
            (b"goal = \"look\"\n", "text"),
            (b"RIFF\x24\0\0\0WAVEfmt ", "sound or video (RIFF)"),
            (b"GIF90a\0\0\0\0", "text"),
            (b"\x89PNG", "no image this can read"),
            (b"\xde\xad\xbe\xef", "no image this can read"),
        ];
        for (bytes, what) in rows {
            let found = header(bytes);
            assert!(
                found == Err(Unfit::Other(what))
                    || (bytes.contains(&0) && found == Err(Unfit::Other("no image this can read"))),
                "{found:?} of {bytes:02x?}"
            );
        }
        let message = Unfit::Other("a PDF").to_string();
        assert!(message.contains("a PDF") && message.contains("convert"), "{message}");
    }

    /// One byte changed, everywhere, to values that bite: never a panic, and never a side of 0.
    #[test]
    fn no_byte_makes_it_stumble() {
        for (_, bytes) in every_kind() {
            for at in 0..bytes.len() {
                for value in [0x00, 0x01, 0x7f, 0x80, 0xc0, 0xd8, 0xda, 0xff] {
                    let mut other = bytes.clone();
                    other[at] = value;
                    for length in [other.len(), at, at + 1] {
                        if let Ok(found) = header(&other[..length]) {
                            assert!(found.width > 0 && found.height > 0);
                        }
                    }
                }
            }
        }
    }
}
