//! The text of a web page: what a reader would see of it, without markup, scripts and styles.
//!
//! It is no parser of HTML: it needs no tree, takes any bytes, and looks at each of them a few times at most.

use std::collections::HashMap;

/// So much of a text is looked at to tell whether it is a page.
const SAMPLE_BYTES: usize = 4 * 1024;

/// A text that begins with a tag and has so many of HTML's own is a page.
const TAGS_MIN: usize = 15;

/// A tag with an open quote ends here at the latest.
const TAG_MAX_BYTES: usize = 4 * 1024;

/// Elements whose content nobody reads.
const UNREAD: &[&str] = &["script", "style", "noscript", "template", "svg", "iframe", "object", "head"];

/// Elements that begin a line.
const LINES: &[&str] = &[
    "p",
    "div",
    "br",
    "tr",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "section",
    "article",
    "header",
    "footer",
    "table",
    "ul",
    "ol",
    "dl",
    "dt",
    "dd",
    "pre",
    "blockquote",
    "hr",
    "form",
    "nav",
    "main",
    "aside",
    "figure",
    "title",
    "option",
    "body",
];

/// Other elements that tell a page.
const OTHERS: &[&str] =
    &["span", "a", "b", "i", "em", "strong", "img", "td", "th", "li", "meta", "link", "input", "button", "label"];

pub(super) fn is_page(text: &str) -> bool {
    let start = text.trim_start();
    let start = &start[..start.floor_char_boundary(SAMPLE_BYTES)];
    if !start.starts_with('<') {
        return false;
    }
    let begins = |word: &str| start.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if begins("<!doctype html") || begins("<html") {
        return true;
    }
    let is_known = |name: &str| [LINES, OTHERS, UNREAD].iter().any(|names| names.contains(&name));
    let tags = start.split('<').skip(1).filter(|rest| is_known(&name_of(rest))).count();
    tags >= TAGS_MIN && !begins("<?xml")
}

/// The name of the tag whose inside begins here, in small letters; of an end tag the same.
fn name_of(inside: &str) -> String {
    let inside = inside.strip_prefix('/').unwrap_or(inside);
    let length = inside.bytes().take(12).take_while(u8::is_ascii_alphanumeric).count();
    inside[..length].to_ascii_lowercase()
}

/// What there is to read.
pub(super) fn readable(page: &str) -> String {
    read(page, Wanted::Text).text
}

/// A page taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) title: Option<String>,
    /// What its links are relative to, where it says so.
    pub(crate) base: Option<String>,
    /// With the number of its link, from 1, in brackets behind the words of each.
    pub(crate) text: String,
    /// As they are written, each once.
    pub(crate) links: Vec<String>,
}

/// What there is to read, with title and links apart.
pub(crate) fn page(page: &str) -> Page {
    read(page, Wanted::Parts)
}

/// More links than this have no number: nobody follows them.
const LINKS_MAX: usize = 200;

/// A longer address is data.
const LINK_MAX_BYTES: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// One text, the title in it.
    Text,
    Parts,
}

fn read(page: &str, wanted: Wanted) -> Page {
    let mut out = Out::default();
    let mut parts = Page::default();
    let mut numbers = HashMap::new();
    // the number of the link that is open
    let mut link = None;
    let mut rest = page;
    loop {
        let Some(at) = rest.find('<') else {
            out.write(rest);
            break;
        };
        out.write(&rest[..at]);
        rest = &rest[at..];
        let inside = &rest[1..];
        if let Some(comment) = inside.strip_prefix("!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        if !inside.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?')) {
            out.write("<");
            rest = inside;
            continue;
        }
        let (tag, after) = tag(inside);
        rest = after;
        let name = name_of(tag);
        let ends = tag.starts_with('/');
        if name == "head" && !ends {
            // Of the head only the title is read; without an end of the head everything could be in it.
            out.end_line();
        } else if UNREAD.contains(&name.as_str()) && !ends && !tag.ends_with('/') {
            rest = after_end_of(&name, rest);
            continue;
        }
        match name.as_str() {
            "pre" => out.verbatim = if ends { out.verbatim.saturating_sub(1) } else { out.verbatim + 1 },
            "li" if !ends => {
                out.end_line();
                out.write("- ");
                continue;
            }
            "td" | "th" if ends => out.write(" | "),
            "img" => {
                if let Some(alt) = attribute(tag, "alt") {
                    out.write(alt);
                }
            }
            "title" if wanted == Wanted::Parts && !ends && parts.title.is_none() => {
                let end = rest.find("</").unwrap_or(rest.len());
                parts.title = Some(decoded(&rest[..end])).filter(|title| !title.is_empty());
                rest = &rest[end..];
                continue;
            }
            "base" if wanted == Wanted::Parts && parts.base.is_none() => {
                parts.base = attribute(tag, "href").map(decoded)
            }
            "a" if wanted == Wanted::Parts => {
                if let Some(number) = link.take() {
                    out.write(&format!(" [{number}]"));
                }
                if !ends {
                    link = attribute(tag, "href")
                        .and_then(|href| number_of(decoded(href), &mut parts.links, &mut numbers));
                }
            }
            _ => {}
        }
        if LINES.contains(&name.as_str()) {
            out.end_line();
        }
    }
    out.text.truncate(out.text.trim_end().len());
    Page { text: out.text, ..parts }
}

/// The number of a link that leads to another page; those of one address have one.
fn number_of(href: String, links: &mut Vec<String>, numbers: &mut HashMap<String, usize>) -> Option<usize> {
    let leads_nowhere = href.is_empty() || href.len() > LINK_MAX_BYTES || href.starts_with('#');
    let scheme = href.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_other = scheme
        .is_some_and(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) && !scheme.starts_with("http"));
    if leads_nowhere || is_other {
        return None;
    }
    if let Some(number) = numbers.get(&href) {
        return Some(*number);
    }
    if links.len() == LINKS_MAX {
        return None;
    }
    links.push(href.clone());
    numbers.insert(href, links.len());
    Some(links.len())
}

/// A text without markup in it: entities read, white space put together.
fn decoded(text: &str) -> String {
    let mut out = Out::default();
    out.write(text);
    out.text
}

/// A tag's inside, and what follows the tag. A quoted `>` does not end it.
fn tag(inside: &str) -> (&str, &str) {
    let mut quote = None;
    let mut first_end = None;
    for (at, byte) in inside.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return (&inside[..at], &inside[at + 1..]),
            // A tag that was never closed.
            (None, b'<') => return (&inside[..at], &inside[at..]),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            (Some(_), b'>') => first_end = first_end.or(Some(at)),
            (_, _) => {}
        }
        if at >= TAG_MAX_BYTES {
            break;
        }
    }
    if let Some(end) = first_end {
        return (&inside[..end], &inside[end + 1..]);
    }
    let end = inside.floor_char_boundary(TAG_MAX_BYTES);
    (&inside[..end], &inside[end..])
}

/// What follows the end tag of an element; nothing if there is none.
fn after_end_of<'a>(name: &str, text: &'a str) -> &'a str {
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        let inside = &rest[at + 2..];
        rest = inside;
        if name_of(inside) == name {
            return inside.find('>').map_or("", |end| &inside[end + 1..]);
        }
    }
    ""
}

/// An attribute of a tag, in quotes or without.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let mut from = 0;
    loop {
        let at = from + tag[from..].find(name)?;
        from = at + name.len();
        let begins = tag[..at].ends_with(|c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\''));
        let Some(value) = tag[from..].trim_start().strip_prefix('=').filter(|_| begins) else { continue };
        let value = value.trim_start();
        return match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
            Some(_) | None => value.split(|c: char| c.is_ascii_whitespace()).next(),
        };
    }
}

/// Text on its way out, with white space put together.
#[derive(Default)]
struct Out {
    text: String,
    gap: Gap,
    /// So many elements are open in which white space counts.
    verbatim: usize,
}

/// What parts the next word from the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Space,
    Line,
}

impl Out {
    fn end_line(&mut self) {
        self.gap = Gap::Line;
    }

    fn write(&mut self, text: &str) {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let c = match first {
                '&' => {
                    let (c, length) = entity(rest);
                    rest = &rest[length..];
                    c
                }
                _ => {
                    rest = &rest[first.len_utf8()..];
                    first
                }
            };
            if c.is_whitespace() && (self.verbatim == 0 || c == '\r') {
                self.gap = self.gap.max(Gap::Space);
                continue;
            }
            match self.gap {
                Gap::None => {}
                Gap::Space | Gap::Line if self.text.is_empty() || self.text.ends_with('\n') => {}
                Gap::Space => self.text.push(' '),
                Gap::Line => self.text.push('\n'),
            }
            self.gap = Gap::None;
            self.text.push(c);
        }
    }
}

/// The longest name of a character that is known, or the digits of any.
const ENTITY_MAX_BYTES: usize = 10;

/// The character an `&` stands for, and the length of what stands for it.
fn entity(text: &str) -> (char, usize) {
    let Some(end) = text.bytes().take(ENTITY_MAX_BYTES).position(|byte| byte == b';') else { return ('&', 1) };
    let name = &text[1..end];
    let number = name.strip_prefix('#').and_then(|digits| match digits.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    });
    let named = || ENTITIES.iter().find(|(known, _)| *known == name).map(|(_, c)| *c);
    let c = number.and_then(char::from_u32).filter(|c| !c.is_control()).or_else(named);
    c.map_or(('&', 1), |c| (c, end + 1))
}

const ENTITIES: &[(&str, char)] = &[
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", ' '),
    ("ndash", '–'),
    ("mdash", '—'),
    ("hellip", '…'),
    ("copy", '©'),
    ("reg", '®'),
    ("trade", '™'),
    ("laquo", '«'),
    ("raquo", '»'),
    ("ldquo", '“'),
    ("rdquo", '”'),
    ("lsquo", '‘'),
    ("rsquo", '’'),
    ("bull", '•'),
    ("middot", '·'),
    ("times", '×'),
    ("deg", '°'),
    ("euro", '€'),
    ("pound", '£'),
    ("auml", 'ä'),
    ("ouml", 'ö'),
    ("uuml", 'ü'),
    ("Auml", 'Ä'),
    ("Ouml", 'Ö'),
    ("Uuml", 'Ü'),
    ("szlig", 'ß'),
    ("eacute", 'é'),
    ("egrave", 'è'),
    ("agrave", 'à'),
    ("ccedil", 'ç'),
    ("ntilde", 'ñ'),
    ("larr", '←'),
    ("rarr", '→'),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_reader_sees() {
        let page = "<!DOCTYPE html><html><head><title>A &amp; B</title><style>p{}</style><script>if (a<b) {'</p>'}</script></head>\
             <body class=\"a > b\"><!-- no --><h1>Head</h1><p>One <a href=\"/x\">link</a>,\n two&nbsp;words &#8364;&#x20ac;&bogus; a < b</p>\
             <ul><li>first<li>second</ul><table><tr><td>1</td><td>2</td></tr></table><pre>a\n  b</pre>\
             <img src=x alt=\"a cat\"><svg><path d=\"M0\"/></svg>end<script>never closed";
        assert!(is_page(page));
        let expected = "A & B\nHead\nOne link, two words €€&bogus; a < b\n- first\n- second\n1 | 2 |\na\n  b\na catend";
        assert_eq!(readable(page), expected);
    }

    #[test]
    fn a_page_in_parts() {
        let html = "<html><head><title>A &amp;\n B</title><base href='/docs/'></head><body><h1>Head</h1>\
             <a href=\"one?a=1&amp;b=2\">one</a>, <a class=x href=two>two</a> and <a href='one?a=1&amp;b=2'>one again</a>.\
             <a href=\"#part\">here</a> <a href=\"javascript:x()\">run</a> <a href=\"mailto:a@b.c\">mail</a> <a name=x>anchor</a>\
             <p><a href=\"https://other.example/\">open <b>bold</b><a href=\"three\">three</a><svg><title>no</title></svg>";
        let page = page(html);
        assert_eq!(page.title.as_deref(), Some("A & B"));
        assert_eq!(page.base.as_deref(), Some("/docs/"));
        assert_eq!(page.links, ["one?a=1&b=2", "two", "https://other.example/", "three"]);
        let expected = "Head\none [1], two [2] and one again [1].here run mail anchor\nopen bold [3]three [4]";
        assert_eq!(page.text, expected);
        let many: String = (0..500).map(|at| format!("<a href=/{at}>x</a>")).collect();
        assert_eq!(super::page(&many).links.len(), LINKS_MAX);
    }

    #[test]
    fn pages_are_told_by_their_tags() {
        assert!(is_page(&"<div><p>x</p><span>y</span></div>".repeat(9)));
        for other in
            ["", "<", "<?xml version=\"1.0\"?><a/>", "a < b", "<rss><item><x>1</x></item></rss>", "text <p>a</p>"]
        {
            assert!(!is_page(other), "{other}");
        }
        assert!(!is_page(&"<item><id>1</id></item>".repeat(99)));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "<", ">", "</", "\"", "'", "<p", "<script", "</script", "<!--", "-->", "&", "&lt;", "&#1", ";", "é", "x ", "\n",
                "<pre>", "</pre>", "<a href=\"", "<head>", "<li>",
            ]), 0..60)
        ) {
            let page = pieces.concat();
            prop_assert!(readable(&page).len() <= page.len() + 3 * page.matches("<").count());
            let parts = super::page(&page);
            prop_assert!(parts.text.len() <= page.len() + 9 * page.matches("<").count());
        }
    }
}
