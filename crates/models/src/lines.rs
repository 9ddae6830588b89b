//! Server-sent events, as far as a model's stream uses them: lines of bytes in, events out.
//!
//! A crate for this is strict about UTF-8 and drops a last event without its blank line; a model's reply is better read
//! with a replacement character than lost.

/// The data of one event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) data: String,
    /// It came under `event: error`, or as a field `error`.
    pub(crate) is_error: bool,
    /// A line was too long to keep.
    pub(crate) overlong: bool,
}

/// Cuts bytes into lines and lines into events.
#[derive(Default)]
pub(crate) struct Lines {
    /// The line that has no end yet.
    line: Vec<u8>,
    /// The last byte was a CR: an LF right after it ends no other line.
    after_cr: bool,
    data: Option<String>,
    is_error: bool,
    overlong: bool,
}

/// The longest line that is kept.
const LINE_MAX_BYTES: usize = 10 * 1024 * 1024;

impl Lines {
    /// Events that end in these bytes, in order.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        if self.after_cr && bytes.first() == Some(&b'\n') {
            bytes = &bytes[1..];
        }
        if !bytes.is_empty() {
            self.after_cr = false;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.keep(&bytes[..end]);
            events.extend(self.end_line());
            let cr_lf = bytes[end..].starts_with(b"\r\n");
            self.after_cr = bytes[end..] == *b"\r";
            bytes = &bytes[end + if cr_lf { 2 } else { 1 }..];
        }
        self.keep(bytes);
        if self.overlong {
            events.extend(self.end_event());
        }
        events
    }

    /// The event that was never ended by a blank line, if there is one.
    pub(crate) fn rest(mut self) -> Option<Event> {
        self.end_line().or_else(|| self.end_event())
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > LINE_MAX_BYTES {
            self.overlong = true;
            self.line = Vec::new();
            self.data.get_or_insert_default();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) -> Option<Event> {
        if self.line.is_empty() {
            return self.end_event();
        }
        let mut bytes = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&bytes);
        match line.split_once(':') {
            // An object without its `data:`, as some gateways write errors into a stream.
            _ if line.starts_with('{') => self.add(&line),
            Some(("data", data)) => self.add(data.strip_prefix(' ').unwrap_or(data)),
            Some(("event", name)) => self.is_error = name.trim() == "error",
            // llama.cpp's own.
            Some(("error", error)) if error.trim_start().starts_with('{') => {
                self.data = Some(error.to_owned());
                self.is_error = true;
            }
            // Comments, ids, retry times, and fields nobody knows.
            Some((_, _)) | None => {}
        }
        // The next line has its room: where bytes come one by one it would be found anew many times.
        bytes.clear();
        self.line = bytes;
        None
    }

    fn add(&mut self, data: &str) {
        match &mut self.data {
            Some(before) => {
                before.push('\n');
                before.push_str(data);
            }
            None => self.data = Some(data.to_owned()),
        }
    }

    fn end_event(&mut self) -> Option<Event> {
        let is_error = std::mem::take(&mut self.is_error);
        let overlong = std::mem::take(&mut self.overlong);
        self.data.take().map(|data| Event { data, is_error, overlong })
    }
}
