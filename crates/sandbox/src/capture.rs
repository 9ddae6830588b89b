//! Keeps what a program prints, within bounds.

use crate::spec::Keep;

/// One output as it comes in. Holds at most `max_bytes`, however much is printed.
#[derive(Debug)]
pub(crate) struct Capture {
    keep: Keep,
    /// The whole, or the head.
    head: Vec<u8>,
    /// The last bytes, up to twice as many as are kept.
    tail: Vec<u8>,
    /// How much was printed.
    total: usize,
}

/// Whether the program may go on printing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Left,
    Exceeded,
}

impl Capture {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, head: Vec::new(), tail: Vec::new(), total: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Room {
        self.total += bytes.len();
        match self.keep {
            Keep::Whole { max_bytes } => {
                let fits = bytes.len().min(max_bytes - self.head.len());
                self.head.extend_from_slice(&bytes[..fits]);
                if fits < bytes.len() { Room::Exceeded } else { Room::Left }
            }
            Keep::Ends { max_bytes } => {
                let (head_max, tail_max) = ends(max_bytes);
                let fits = bytes.len().min(head_max - self.head.len());
                self.head.extend_from_slice(&bytes[..fits]);
                self.tail.extend_from_slice(&bytes[fits..]);
                // trimmed at twice its size, so that each byte is moved about once
                if self.tail.len() > 2 * tail_max {
                    self.tail.drain(..self.tail.len() - tail_max);
                }
                Room::Left
            }
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if let Keep::Ends { max_bytes } = self.keep {
            let (_, tail_max) = ends(max_bytes);
            let excess = self.tail.len().saturating_sub(tail_max);
            self.tail.drain(..excess);
            let left_out = self.total - self.head.len() - self.tail.len();
            if left_out > 0 {
                self.head.extend_from_slice(format!("\n[… {left_out} bytes left out …]\n").as_bytes());
            }
            self.head.append(&mut self.tail);
        }
        self.head
    }
}

/// The start of an output says what it is, its end what went wrong: two fifths and three fifths.
fn ends(max_bytes: usize) -> (usize, usize) {
    let head = max_bytes * 2 / 5;
    (head, max_bytes - head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_keep_head_and_tail() {
        let mut capture = Capture::new(Keep::Ends { max_bytes: 10 });
        for byte in b'a'..=b'z' {
            assert_eq!(capture.push(&[byte]), Room::Left);
        }
        assert_eq!(String::from_utf8(capture.finish()).unwrap(), "abcd\n[… 16 bytes left out …]\nuvwxyz");
    }

    #[test]
    fn what_fits_is_whole() {
        let mut capture = Capture::new(Keep::Ends { max_bytes: 10 });
        assert_eq!(capture.push(b"0123456789"), Room::Left);
        assert_eq!(capture.finish(), b"0123456789");
    }

    #[test]
    fn whole_is_cut_at_its_bound() {
        let mut capture = Capture::new(Keep::Whole { max_bytes: 3 });
        assert_eq!(capture.push(b"abc"), Room::Left);
        assert_eq!(capture.push(b"d"), Room::Exceeded);
        assert_eq!(capture.finish(), b"abc");
    }
}
