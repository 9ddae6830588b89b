//! What the model is shown of a result that is too large for its window: made once, from the whole, in one pass each.
//!
//! A preview says what was left out and where, in brackets, and nothing of sizes and handles: the observation around it
//! does. It keeps the shape of what it shows: an object stays an object with the same keys, of a list its first and last
//! elements stay and what its fields hold, of a text its ends and the lines that report trouble, of a web page what there
//! is to read. Data nobody can read is named and never shown ([`cleaned`]).
//!
//! It is pure, looks at the text of the JSON rather than reading it into memory, and does not call itself by depth.

mod cost;
mod data;
mod diagnostics;
pub(crate) mod html;
mod lines;
mod rows;
mod scan;
mod values;

use std::borrow::Cow;

use longrein_core::payload::Payload;

use cost::Level;
use data::Cleaning;
use lines::Numbers;
use scan::Kind;

/// What the model is shown of `content` in at most `bytes_max` bytes of JSON; all of it, but for terminal control and
/// what [`cleaned`] takes out, if that fits. An object becomes an object, anything else that is too large a string. Two
/// bytes are the least a preview needs, about 160 the least that says anything. A preview's own preview is itself.
pub fn preview(content: &Payload, bytes_max: usize) -> Payload {
    let clean = data::json(content.as_str(), Cleaning::DataAndControl);
    let raw: &str = &clean;
    let level = Level::OUTERMOST;
    let shown = match Kind::of(raw) {
        _ if raw.len() <= bytes_max => raw.to_owned(),
        Kind::Array => {
            let room = bytes_max.saturating_sub(values::least(level));
            let what = rows::What::Array { bytes: raw.len() };
            scan::quoted(&rows::described(scan::elements(raw), what, level.inside(), room))
        }
        Kind::Object | Kind::String | Kind::Number | Kind::Boolean | Kind::Null => {
            values::shortened(raw, level, bytes_max, 0)
        }
    };
    // What is cut out of a readable text may by itself look like data.
    let shown = data::json(&shown, Cleaning::DataAndControl).into_owned();
    Payload::parse(shown).unwrap_or_else(|_| Payload::string(""))
}

/// `content` without what is never shown, however small: base64, data URIs, blocks of images and sound, and binaries that
/// were read as text, each replaced by its media type and size. None: nothing of the kind is in it.
pub fn cleaned(content: &Payload) -> Option<Payload> {
    match data::json(content.as_str(), Cleaning::Data) {
        Cow::Borrowed(_) => None,
        Cow::Owned(clean) => Payload::parse(clean).ok(),
    }
}

/// A text in at most `room` of the cost of `level`, by what it holds.
fn text(text: &str, level: Level, room: usize) -> String {
    if level.fits(text, room) {
        return text.to_owned();
    }
    if level.opens_strings()
        && let Some(shown) = json_text(text, level, room)
    {
        return shown;
    }
    if html::is_page(text) {
        let readable = html::readable(text);
        let note = format!(
            "[a web page as text, {} bytes of it markup]\n",
            cost::grouped(text.len() - readable.len().min(text.len()))
        );
        if let Some(room) = room.checked_sub(level.cost(&note)) {
            return note + &lines::shortened(&readable, level, room, Numbers::Unknown);
        }
    }
    lines::shortened(text, level, room, Numbers::Told)
}

/// A text that is JSON, or lines of JSON.
fn json_text(text: &str, level: Level, room: usize) -> Option<String> {
    let trimmed = text.trim();
    if !trimmed.starts_with(['{', '[']) {
        return None;
    }
    if scan::is_json(trimmed) {
        let compact = scan::compact(trimmed);
        return Some(match Kind::of(&compact) {
            Kind::Array if !level.fits(&compact, room) => {
                rows::described(scan::elements(&compact), rows::What::Array { bytes: compact.len() }, level, room)
            }
            Kind::Array | Kind::Object | Kind::String | Kind::Number | Kind::Boolean | Kind::Null => {
                values::shortened(&compact, level, room, 0)
            }
        });
    }
    let values = || trimmed.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_rows = values().nth(1).is_some() && values().all(|line| line.starts_with(['{', '[']) && scan::is_json(line));
    is_rows.then(|| rows::described(values(), rows::What::Lines { bytes: text.len() }, level, room))
}

#[cfg(test)]
mod tests;
