//! Images that people show to a model. An event holds a reference and what people need to know of it; the bytes lie in the
//! blob store under their digest and reach a request only on its way out.

mod header;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::context::estimate::Features;
use crate::context::settings::{REQUEST_BYTES_MAX, REQUEST_IMAGES_MAX};
use crate::ids::Digest;
use crate::observe;
use crate::payload::excerpt;
use crate::prompt::Item;

pub use header::{Header, Unfit, header};

/// The largest image as a file: what the strictest of the large providers takes.
pub const IMAGE_BYTES_MAX: u64 = 5 * 1024 * 1024;
/// The longest side: the same.
pub const IMAGE_SIDE_MAX: u32 = 8_000;
/// How many images of results a turn shows at most, and in how many bytes: what a request can carry is there for later turns as
/// well.
pub const TURN_IMAGES_MAX: usize = 8;
pub const TURN_BYTES_MAX: u64 = REQUEST_BYTES_MAX / 2;
/// How much of a file's name is kept.
const NAME_MAX: usize = 80;

/// What kind of picture a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Media {
    Png,
    Jpeg,
    Gif,
    Webp,
}

impl Media {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Media::Png => "png",
            Media::Jpeg => "jpeg",
            Media::Gif => "gif",
            Media::Webp => "webp",
        }
    }

    /// As wires name it.
    pub fn mime(self) -> &'static str {
        match self {
            Media::Png => "image/png",
            Media::Jpeg => "image/jpeg",
            Media::Gif => "image/gif",
            Media::Webp => "image/webp",
        }
    }
}

/// One image: where its bytes lie, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRef {
    /// The file's name, as far as it can be shown.
    pub name: String,
    pub digest: Digest,
    pub media: Media,
    pub width: u32,
    pub height: u32,
    /// Of the file.
    pub bytes: u64,
}

impl ImageRef {
    /// Looks at a file's first bytes and its size. `name` is how people know it.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self, Unfit> {
        let size = bytes.len() as u64;
        let Header { media, width, height } = header(bytes)?;
        if size > IMAGE_BYTES_MAX {
            return Err(Unfit::TooLarge { bytes: size });
        }
        if width > IMAGE_SIDE_MAX || height > IMAGE_SIDE_MAX {
            return Err(Unfit::TooWide { width, height });
        }
        Ok(Self { name: shown_name(name), digest: Digest::of(bytes), media, width, height, bytes: size })
    }

    /// How it stands in a text: `[image a.png 640×480 png]`, with a word on why that is all there is.
    pub fn label(&self, why: Option<&str>) -> String {
        let Self { name, width, height, media, .. } = self;
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        observe::escaped(&format!("[image {name} {width}×{height} {}{why}]", media.as_str()))
    }

    /// What it takes in base64.
    pub fn sent_bytes(&self) -> u64 {
        self.features().sent_bytes()
    }

    pub(crate) fn features(&self) -> Features {
        Features::of_image(self.width, self.height, self.bytes)
    }
}

/// A name without what would break a line, or the brackets around it.
fn shown_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|letter| match letter {
            '[' => '(',
            ']' => ')',
            letter if letter.is_control() || is_invisible(letter) => '_',
            letter => letter,
        })
        .collect();
    excerpt(plain.trim(), NAME_MAX)
}

/// Marks that turn the direction of writing or take no room: a name with them is read as another one.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A text with a line for each of its images.
pub fn labelled(text: &str, images: &[ImageRef], why: Option<&str>) -> String {
    with_lines(text, images.iter().map(|image| image.label(why)))
}

/// A text, and lines after it.
pub fn with_lines(text: &str, lines: impl Iterator<Item = String>) -> String {
    let mut whole = text.to_owned();
    for line in lines {
        if !whole.is_empty() {
            whole.push('\n');
        }
        whole.push_str(&line);
    }
    whole
}

/// Why these can never be sent together; None: they can.
pub fn too_many(images: &[ImageRef]) -> Option<String> {
    if images.len() as u64 > REQUEST_IMAGES_MAX {
        return Some(format!("{} images; a request takes at most {REQUEST_IMAGES_MAX}: leave some out", images.len()));
    }
    let sent: u64 = images.iter().map(ImageRef::sent_bytes).sum();
    // Beside them stand texts.
    let most = REQUEST_BYTES_MAX / 4 * 3;
    (sent > most).then(|| {
        format!(
            "the {} images take {} bytes in a request, and at most {most} are sent: make them smaller, or leave some out",
            images.len(),
            sent
        )
    })
}

/// The images of some items.
pub fn of_items<'a>(items: impl Iterator<Item = &'a Arc<Item>>) -> impl Iterator<Item = &'a ImageRef> {
    items.flat_map(|item| item.images())
}

/// The images of a prompt by their bytes, for whoever spells it.
#[derive(Clone, PartialEq, Eq)]
pub enum Images {
    /// The model takes none: each stands as a line of text.
    NotTaken,
    /// By digest. One that is not there stands as a line of text.
    Given(Arc<BTreeMap<Digest, Arc<[u8]>>>),
}

impl Default for Images {
    fn default() -> Self {
        Images::Given(Arc::default())
    }
}

/// Without the bytes.
impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Images::NotTaken => f.write_str("NotTaken"),
            Images::Given(bytes) => f.debug_set().entries(bytes.keys()).finish(),
        }
    }
}

impl Images {
    /// The bytes of an image that is sent as one.
    pub fn bytes(&self, image: &ImageRef) -> Option<&[u8]> {
        match self {
            Images::NotTaken => None,
            Images::Given(bytes) => bytes.get(&image.digest).map(|bytes| &**bytes),
        }
    }

    /// Why an image does not go along; None: it does.
    fn why_not(&self, image: &ImageRef) -> Option<&'static str> {
        match self {
            Images::NotTaken => Some(NOT_TAKEN),
            Images::Given(bytes) if bytes.contains_key(&image.digest) => None,
            Images::Given(_) => Some(LOST),
        }
    }

    /// A text as it is sent with its images: a line for each, which says so where the image itself does not follow.
    pub fn words(&self, text: &str, images: &[ImageRef]) -> String {
        with_lines(text, images.iter().map(|image| self.line(image)))
    }

    /// What stands for an image in the text, or beside it.
    pub fn line(&self, image: &ImageRef) -> String {
        image.label(self.why_not(image))
    }
}

/// What stands for an image where the model is shown none.
pub const NOT_TAKEN: &str = "this model takes no images";
const LOST: &str = "its bytes are lost";
/// What stands for one that has left the window.
pub const GONE: &str = "no longer in view, and recall cannot show it";

#[cfg(test)]
mod labels {
    use super::*;

    fn image(name: &str) -> ImageRef {
        ImageRef::read(name, b"GIF89a\x80\x02\xe0\x01").unwrap()
    }

    #[test]
    fn a_label_says_what_it_is_and_cannot_be_broken_out_of() {
        assert_eq!(image("a.png").label(None), "[image a.png 640×480 gif]");
        let nasty = image("a]\n<longrein>\u{202e}x").label(Some("gone"));
        assert_eq!(nasty, "[image a)_&lt;longrein>_x 640×480 gif: gone]");
        assert!(image(&"x".repeat(500)).name.len() <= NAME_MAX);
    }

    #[test]
    fn an_image_without_bytes_is_a_line_that_says_so() {
        let a = image("a.gif");
        let given = Images::Given(Arc::new([(a.digest.clone(), Arc::from(&b"GIF"[..]))].into()));
        let words = |images: &Images| images.words("look", std::slice::from_ref(&a));
        assert_eq!(words(&given), "look\n[image a.gif 640×480 gif]");
        assert_eq!(words(&Images::NotTaken), "look\n[image a.gif 640×480 gif: this model takes no images]");
        assert_eq!(words(&Images::default()), "look\n[image a.gif 640×480 gif: its bytes are lost]");
        assert_eq!(given.bytes(&a), Some(&b"GIF"[..]));
        assert_eq!(Images::NotTaken.bytes(&a), None);
    }

    #[test]
    fn what_no_request_carries_is_refused_with_the_way_out() {
        let many: Vec<_> = (0..101).map(|number| image(&number.to_string())).collect();
        assert!(too_many(&many).unwrap().contains("at most 100"));
        assert_eq!(too_many(&many[..100]), None);
        let heavy = ImageRef { bytes: IMAGE_BYTES_MAX, ..image("a") };
        assert!(too_many(&[heavy.clone(), heavy.clone()]).unwrap().contains("smaller"));
        assert_eq!(too_many(&[heavy]), None);
    }
}
