//! Keeps what a program prints, within bounds.

use crate::spec::{Captured, Keep, line_ends};

/// One output as it comes in. Holds at most `max_bytes`, however much is printed.
#[derive(Debug)]
pub(crate) struct Capture {
    keep: Keep,
    /// The whole, or the head.
    head: Vec<u8>,
    tail: Ring,
    bytes: u64,
    /// Of what came after the head.
    line_ends: u64,
}

/// Whether the program may go on printing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Left,
    Exceeded,
}

impl Capture {
    pub(crate) fn new(keep: Keep) -> Self {
        let tail = match keep {
            Keep::Whole { .. } => Ring::new(0),
            Keep::Ends { max_bytes, .. } => Ring::new(max_bytes - head_max(max_bytes)),
        };
        Self { keep, head: Vec::new(), tail, bytes: 0, line_ends: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Room {
        self.bytes += bytes.len() as u64;
        match self.keep {
            Keep::Whole { max_bytes } => {
                let fits = bytes.len().min(max_bytes - self.head.len());
                self.head.extend_from_slice(&bytes[..fits]);
                if fits < bytes.len() { Room::Exceeded } else { Room::Left }
            }
            Keep::Ends { max_bytes, flood_bytes } => {
                let fits = bytes.len().min(head_max(max_bytes) - self.head.len());
                self.head.extend_from_slice(&bytes[..fits]);
                self.tail.push(&bytes[fits..]);
                self.line_ends += line_ends(&bytes[fits..]);
                if self.bytes > flood_bytes { Room::Exceeded } else { Room::Left }
            }
        }
    }

    pub(crate) fn finish(self) -> Captured {
        let Self { keep: _, mut head, tail, bytes, line_ends: after_head } = self;
        let mut tail = tail.into_vec();
        let line_ends_left_out = after_head - line_ends(&tail);
        if bytes == (head.len() + tail.len()) as u64 {
            head.append(&mut tail);
        }
        Captured { head, tail, bytes, line_ends_left_out }
    }
}

/// The start of an output says what it is, its end what went wrong: two fifths and three fifths.
fn head_max(max_bytes: usize) -> usize {
    max_bytes * 2 / 5
}

/// The last bytes of what is pushed, in memory that never grows beyond them.
#[derive(Debug)]
struct Ring {
    bytes: Vec<u8>,
    max_bytes: usize,
    /// Where the oldest byte is, once it is full.
    oldest: usize,
}

impl Ring {
    fn new(max_bytes: usize) -> Self {
        Self { bytes: Vec::new(), max_bytes, oldest: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.max_bytes)..];
        let grows = bytes.len().min(self.max_bytes - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..grows]);
        let mut rest = &bytes[grows..];
        while !rest.is_empty() {
            let fits = rest.len().min(self.max_bytes - self.oldest);
            self.bytes[self.oldest..self.oldest + fits].copy_from_slice(&rest[..fits]);
            self.oldest = (self.oldest + fits) % self.max_bytes;
            rest = &rest[fits..];
        }
    }

    fn into_vec(mut self) -> Vec<u8> {
        self.bytes.rotate_left(self.oldest);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::NO_FLOOD;

    fn ends(max_bytes: usize) -> Capture {
        Capture::new(Keep::Ends { max_bytes, flood_bytes: NO_FLOOD })
    }

    #[test]
    fn ends_keep_head_and_tail() {
        let mut capture = ends(10);
        for byte in b'a'..=b'z' {
            assert_eq!(capture.push(&[byte]), Room::Left);
        }
        let captured = capture.finish();
        assert_eq!((&*captured.head, &*captured.tail, captured.bytes), (&b"abcd"[..], &b"uvwxyz"[..], 26));
        assert_eq!(captured.left_out(), 16);
    }

    #[test]
    fn what_fits_is_whole() {
        let mut capture = ends(10);
        assert_eq!(capture.push(b"012345\n789"), Room::Left);
        let captured = capture.finish();
        assert_eq!((&*captured.head, &*captured.tail, captured.lines()), (&b"012345\n789"[..], &b""[..], 2));
    }

    #[test]
    fn whole_is_cut_at_its_bound() {
        let mut capture = Capture::new(Keep::Whole { max_bytes: 3 });
        assert_eq!(capture.push(b"abc"), Room::Left);
        assert_eq!(capture.push(b"d"), Room::Exceeded);
        assert_eq!(capture.finish().head, b"abc");
    }

    #[test]
    fn a_flood_is_cut() {
        let mut capture = Capture::new(Keep::Ends { max_bytes: 10, flood_bytes: 100 });
        assert_eq!(capture.push(&[b'x'; 100]), Room::Left);
        assert_eq!(capture.push(b"y"), Room::Exceeded);
        assert_eq!(capture.finish().tail.last(), Some(&b'y'));
    }

    proptest! {
        /// However the bytes come in, what is kept is the same: their first and their last.
        #[test]
        fn chunks_make_no_difference(
            chunks in prop::collection::vec(prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n')], 0..40), 0..20),
            max_bytes in 0_usize..60,
        ) {
            let all: Vec<u8> = chunks.concat();
            let mut capture = ends(max_bytes);
            for chunk in &chunks {
                capture.push(chunk);
            }
            let captured = capture.finish();
            prop_assert_eq!(captured.bytes, all.len() as u64);
            let printed = all.iter().filter(|byte| **byte == b'\n').count() as u64;
            let kept = line_ends(&captured.head) + line_ends(&captured.tail);
            prop_assert_eq!(kept + captured.line_ends_left_out, printed);
            if all.len() <= max_bytes {
                prop_assert_eq!((captured.head, captured.tail), (all, Vec::new()));
            } else {
                let (head, tail) = (head_max(max_bytes), max_bytes - head_max(max_bytes));
                prop_assert_eq!(&captured.head, &all[..head]);
                prop_assert_eq!(&captured.tail, &all[all.len() - tail..]);
            }
        }
    }
}
