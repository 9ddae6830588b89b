//! Images that people show to a model, from files and from bytes: looked at once, refused with the way out where no model
//! would take them. Nothing is decoded or changed on the way.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use longrein_core::ids::Digest;
use longrein_core::image::{self, IMAGE_BYTES_MAX, ImageRef, Unfit};

/// An image that can be shown, with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What an event holds of it.
    pub about: ImageRef,
    /// The file.
    pub bytes: Bytes,
}

/// Why there is no such image. The messages name it, and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot read the image {}: {source}", file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// A folder, a pipe, a device.
    #[error("the image {} is no file", file.display())]
    NoFile {
        /// Which one.
        file: PathBuf,
    },
    /// No model would take it.
    #[error("the image {name} cannot be shown: {unfit}")]
    Unfit {
        /// As it was named.
        name: String,
        /// Why.
        unfit: Unfit,
    },
    /// Each could be, and together they cannot.
    #[error("{0}")]
    TooMany(String),
}

impl Image {
    /// An image from bytes; `name` is how people and the model know it.
    pub fn of(name: &str, bytes: impl Into<Bytes>) -> Result<Self, ImageError> {
        let bytes = bytes.into();
        let unfit = |unfit| ImageError::Unfit { name: name.to_owned(), unfit };
        let about = ImageRef::read(name, &bytes).map_err(unfit)?;
        Ok(Self { about, bytes })
    }

    /// Reads a file, no more of it than an image may have.
    pub fn read(file: &Path) -> Result<Self, ImageError> {
        let unreadable = |source| ImageError::Unreadable { file: file.to_owned(), source };
        // Asked first: opening a pipe waits for its other end.
        let about = std::fs::metadata(file).map_err(unreadable)?;
        if !about.is_file() {
            return Err(ImageError::NoFile { file: file.to_owned() });
        }
        let mut bytes = Vec::new();
        let opened = File::open(file).map_err(unreadable)?;
        opened.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let named = |unfit| ImageError::Unfit { name: file.display().to_string(), unfit };
        if bytes.len() as u64 > IMAGE_BYTES_MAX {
            // What is no image at all need not be made smaller.
            let unfit = match image::header(&bytes) {
                Err(other @ Unfit::Other(_)) => other,
                Ok(_) | Err(Unfit::Broken { .. } | Unfit::TooLarge { .. } | Unfit::TooWide { .. }) => {
                    Unfit::TooLarge { bytes: about.len().max(bytes.len() as u64) }
                }
            };
            return Err(named(unfit));
        }
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let about = ImageRef::read(&name, &bytes).map_err(named)?;
        Ok(Self { about, bytes: bytes.into() })
    }
}

/// What is to be stored, by digest.
pub(crate) type Blobs = Vec<(Digest, Bytes)>;

/// Images that go together: what an event holds of them, and what is stored.
pub(crate) fn together(images: Vec<Image>) -> Result<(Vec<ImageRef>, Blobs), ImageError> {
    let (about, bytes): (Vec<_>, Vec<_>) = images.into_iter().map(|image| (image.about, image.bytes)).unzip();
    if let Some(why) = image::too_many(&about) {
        return Err(ImageError::TooMany(why));
    }
    let blobs = about.iter().map(|image| image.digest.clone()).zip(bytes).collect();
    Ok((about, blobs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIF: &[u8] = b"GIF89a\x80\x02\xe0\x01\xf0\0\0";

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("longrein-images-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_is_an_image_by_what_it_holds_not_by_its_name() {
        let folder = folder("held");
        let file = folder.join("a.png");
        std::fs::write(&file, GIF).unwrap();
        assert_eq!(Image::read(&file).unwrap().about.label(None), "[image a.png 640×480 gif]");
        std::fs::write(&file, b"%PDF-1.7").unwrap();
        let said = Image::read(&file).unwrap_err().to_string();
        assert!(said.contains("a.png") && said.contains("it is a PDF"), "{said}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn one_that_is_too_large_is_named_with_its_size_and_the_way_out() {
        let folder = folder("large");
        let file = folder.join("big.gif");
        let mut bytes = GIF.to_vec();
        bytes.resize(IMAGE_BYTES_MAX as usize, 0);
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(Image::read(&file).unwrap().about.bytes, IMAGE_BYTES_MAX);
        bytes.resize(IMAGE_BYTES_MAX as usize + 3_000, 0);
        std::fs::write(&file, &bytes).unwrap();
        let said = Image::read(&file).unwrap_err().to_string();
        assert!(said.contains("big.gif") && said.contains("5245880 bytes") && said.contains("smaller"), "{said}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn folders_and_what_is_not_there_are_errors() {
        let folder = folder("none");
        assert!(matches!(Image::read(&folder), Err(ImageError::NoFile { .. })));
        assert!(matches!(Image::read(&folder.join("none.png")), Err(ImageError::Unreadable { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
