//! Whether a JSON object that grows at its end is closed, told in one pass over its bytes.

/// What has been seen of the text.
#[derive(Default)]
pub(crate) struct Object {
    depth: usize,
    state: State,
    in_string: bool,
    escaped: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Before,
    Inside,
    Closed,
    /// Something else: no object, or more than one.
    Other,
}

impl Object {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match self.state {
                State::Before if byte.is_ascii_whitespace() => {}
                State::Before if *byte == b'{' => {
                    self.state = State::Inside;
                    self.depth = 1;
                }
                State::Before => self.state = State::Other,
                State::Inside => self.step(*byte),
                State::Closed if byte.is_ascii_whitespace() => {}
                State::Closed => self.state = State::Other,
                State::Other => return,
            }
        }
    }

    /// Whether the whole text is one object, as far as brackets tell.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    fn step(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' if !self.in_string => self.depth += 1,
            b'}' | b']' if !self.in_string => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.state = State::Closed;
                }
            }
            _ => {}
        }
    }
}
