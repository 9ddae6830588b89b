//! Text that is handed to a command line by line, where no shell could read it otherwise: `python3 - <<'END'`.
//!
//! Read [`without_documents`] first. Shells and parsers differ on here-documents, so such text is asked about. One form
//! leaves no room: a line on which every quote ends that begins there, with one `<<` and a word as the end, and a body in which
//! nothing is expanded. There the body is data. It is taken out before the rest is read as a shell reads it, and the command is
//! given a word in its place (`<<<`), by which it is looked up again. What is plainly expanded in a body (`$x`, `$(date)`)
//! stands behind that word, in quotes as it would be there.

use std::borrow::Cow;

use super::word;

/// A text without the bodies of its plain here-documents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Without<'a> {
    pub(super) text: Cow<'a, str>,
    /// Those that are given to a command, which has [`Without::mark`] in their place.
    pub(super) bodies: Vec<String>,
}

impl Without<'_> {
    /// The word that stands for a body.
    fn mark(at: usize) -> String {
        format!("{MARK}{at}")
    }

    /// The body that a word stands for.
    pub(super) fn body<'b>(bodies: &'b [String], word: &str) -> Option<&'b str> {
        let at = word.strip_prefix(MARK)?;
        let at = at.split_once(PUTS_IN).map_or(at, |(at, _)| at);
        bodies.get(at.parse::<usize>().ok()?).map(String::as_str)
    }
}

/// The text without the bodies of here-documents of the one plain form.
pub(super) fn without_documents(text: &str) -> Without<'_> {
    let mut bodies = Vec::new();
    if !text.contains("<<") || text.contains(MARK) {
        return Without { text: Cow::Borrowed(text), bodies };
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        match document(line, after) {
            Some(Document { before, end, body, put_in, behind }) if bodies.len() < BODIES_MAX => {
                kept.push_str(&format!("{before}<<< {}{put_in}{end}\n", Without::mark(bodies.len())));
                bodies.push(body);
                rest = behind;
            }
            // whether a line further down is one of its own cannot be told: a quote may be open, a line may go on
            Some(_) | None if quotes_after(line) != Some(Quotes::Closed) || line.contains("<<") => {
                kept.push_str(rest);
                break;
            }
            Some(_) | None => {
                kept.push_str(line);
                kept.push('\n');
                rest = after;
            }
        }
    }
    match kept.trim_end_matches('\n') == text.trim_end_matches('\n') {
        true => Without { text: Cow::Borrowed(text), bodies },
        false => Without { text: Cow::Owned(kept), bodies },
    }
}

struct Document<'a> {
    /// What stands on its line before the announcement, and behind it.
    before: &'a str,
    end: &'a str,
    body: String,
    /// What is expanded in it, as the end of a word.
    put_in: String,
    /// What stands behind the document.
    behind: &'a str,
}

fn document<'a>(line: &'a str, after: &'a str) -> Option<Document<'a>> {
    let (before, rest) = line.split_once("<<")?;
    let (quote, rest) = match rest.strip_prefix(['\'', '"']) {
        Some(quoted) => (rest.chars().next(), quoted),
        None => (None, rest),
    };
    let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let (end, behind) = rest.split_at_checked(length).filter(|(end, _)| !end.is_empty())?;
    let behind = match quote {
        Some(quote) => behind.strip_prefix(quote)?,
        None => behind,
    };
    let separate = behind.is_empty() || behind.starts_with([' ', '>', ';', '|', '&']);
    // a number before it would name a descriptor
    if !separate || behind.contains("<<") || before.ends_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    // a message in quotes may be what a substitution hands on: `-m "$(cat <<'END'`
    let closes = before.ends_with("\"$(cat ") && behind.is_empty();
    let outside = before.strip_suffix("\"$(cat ").filter(|_| closes).unwrap_or(before);
    if [outside, behind].iter().any(|part| quotes_after(part) != Some(Quotes::Closed)) {
        return None;
    }
    let mut at = 0;
    let mut put_in = String::new();
    for body in after.split_inclusive('\n') {
        let from = at;
        at += body.len();
        let line = body.strip_suffix('\n').unwrap_or(body);
        if line == end {
            let body = after.get(..from).unwrap_or_default().to_owned();
            let put_in = if put_in.is_empty() { put_in } else { format!("{PUTS_IN}\"{put_in}\"") };
            let document = Document { before, end: behind, body, put_in, behind: after.get(at..).unwrap_or_default() };
            // `)"` closes what the line before has opened, and nothing else may
            return (!closes || document.behind.starts_with(")\"")).then_some(document);
        }
        if quote.is_none() && line.contains(['$', '`', '\\']) {
            put_in.push_str(&expansions(line).filter(|_| !closes)?);
        }
    }
    None
}

/// What is expanded in a line of a body. None: something that shells may read otherwise, or that goes on behind the line.
fn expansions(line: &str) -> Option<String> {
    let mut found = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['$', '`', '\\']) {
        let sign = rest.get(at..)?;
        let behind = sign.get(1..)?;
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let taken = match (sign.chars().next()?, behind.chars().next()) {
            ('\\', Some(next)) => {
                rest = behind.get(next.len_utf8()..)?;
                continue;
            }
            ('$', Some('(')) => {
                let script = word::enclosed(behind, '(', ')')?;
                let plain =
                    script.chars().all(|letter| letter.is_ascii_alphanumeric() || " _-+./:%@=,|'".contains(letter));
                plain.then_some(script.len() + 2)?
            }
            ('$', Some('{')) => {
                let length = behind.get(1..)?.find(|letter: char| !is_of_name(letter))?;
                behind.get(1 + length..)?.starts_with('}').then_some(length + 2)?
            }
            ('$', Some(first)) if is_of_name(first) => {
                behind.find(|letter: char| !is_of_name(letter)).unwrap_or(behind.len())
            }
            // a sum of money
            ('$', Some(' ' | '.' | ',') | None) => {
                rest = behind;
                continue;
            }
            _ => return None,
        };
        found.push_str(sign.get(..1 + taken)?);
        // what follows is of no name
        found.push(' ');
        rest = behind.get(taken..)?;
    }
    Some(found)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Closed,
    Open,
}

/// Whether every quote and bracket of a line ends on it. None: it goes on, or that cannot be told from the line alone.
fn quotes_after(line: &str) -> Option<Quotes> {
    let mut quote = None;
    let mut depth = 0_usize;
    let mut before = ' ';
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some('\''), _) => {}
            (_, '\\' | '`' | '#') => return None,
            // what is put in has quotes of its own
            (Some(_), '(') if before == '$' => return None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.checked_sub(1)?,
            (None, _) => {}
        }
        before = letter;
    }
    (depth == 0).then_some(if quote.is_some() { Quotes::Open } else { Quotes::Closed })
}

/// No text of a person's contains it.
const MARK: &str = "longrein-document-";
/// Between the word that stands for a body and what is put into it.
const PUTS_IN: char = '.';
/// Documents of one call that are taken out.
const BODIES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_the_plain_form_are_taken_out() {
        for (text, kept, taken) in [
            ("cat > a.rs <<'E'\nfn $x() { `y` }\nE\n", "cat > a.rs <<< longrein-document-0\n", "fn $x() { `y` }\n"),
            ("cat <<'E' > a.rs\nrm -rf /\nE\nls", "cat <<< longrein-document-0 > a.rs\nls\n", "rm -rf /\n"),
            ("cat <<E\nplain\nE\n", "cat <<< longrein-document-0\n", "plain\n"),
            (
                "cat > a <<E\n$x costs $ 5, \\$y ${z}\n$(date +%s)\nE\n",
                "cat > a <<< longrein-document-0.\"$x ${z} $(date +%s) \"\n",
                "$x costs $ 5, \\$y ${z}\n$(date +%s)\n",
            ),
            ("mkdir -p a\ncat > a/b <<\"END\"\n$x\nEND\n", "mkdir -p a\ncat > a/b <<< longrein-document-0\n", "$x\n"),
            (
                "cat > a <<'E'\nx\nE\ncat > b <<'E'\ny\nE\n",
                "cat > a <<< longrein-document-0\ncat > b <<< longrein-document-1\n",
                "x\n/y\n",
            ),
            ("x=$(a \"b (c\")\nsh <<'E'\nx\nE\n", "x=$(a \"b (c\")\nsh <<< longrein-document-0\n", "x\n"),
            ("sh <<'E'\nx\nE\n", "sh <<< longrein-document-0\n", "x\n"),
            ("cat <<'E' | sh\n$x\nE\nls", "cat <<< longrein-document-0 | sh\nls\n", "$x\n"),
            ("cat <<'E'; sh\nx\nE\n", "cat <<< longrein-document-0; sh\n", "x\n"),
            (
                "echo 'a b'\npython3 - \"$f\" <<E\nx\nE\n",
                "echo 'a b'\npython3 - \"$f\" <<< longrein-document-0\n",
                "x\n",
            ),
            (
                "git commit -m \"$(cat <<'E'\nit's (odd\nE\n)\" -q",
                "git commit -m \"$(cat <<< longrein-document-0\n)\" -q",
                "it's (odd\n",
            ),
        ] {
            let Without { text: found, bodies } = without_documents(text);
            assert_eq!((&*found, bodies.join("/").as_str()), (kept, taken), "{text}");
            assert_eq!(Without::body(&bodies, "longrein-document-0"), bodies.first().map(String::as_str));
        }
    }

    #[test]
    fn whatever_a_shell_may_read_otherwise_stays() {
        for text in [
            "cat <<E\n$(x; y)\nE\n",
            "cat <<E\n$(x\n)\nE\n",
            "cat <<E\n`x`\nE\n",
            "cat <<E\n${x:-y}\nE\n",
            "cat <<E\n$((x))\nE\n",
            "cat <<E\n$'x'\nE\n",
            "cat <<E\na\\\nE\n",
            "git commit -m \"$(cat <<E\n$x\nE\n)\"",
            "echo $(sh <<'E'\nx\nE\n)",
            "echo $(sh <<'E' )\nx\nE\n",
            "(\nsh <<'E'\nx\nE\n)",
            "x=\"$(a \"b\n)\"\nsh <<'E'\nx\nE\n",
            "git commit -m \"$(cat <<'E'\nx\nE\n; rm x)\"",
            "git commit -m '$(cat <<'E'\nx\nE\n)'",
            "sh <<'E' # \\\nx\nE\n",
            "sh <<'E' \\\nx\nE\n",
            "sh <<'E' longrein-document-0\nx\nE\n",
            "cat <<-'E'\nx\n\tE\n",
            "cat <<'E'\nx\n",
            "cat <<'E' <<'F'\nx\nE\ny\nF\n",
            "cat 3<<'E'\nx\nE\n",
            "cat <<'E'x\nx\nE\n",
            "cat <<''\nx\n\n",
            "echo '\ncat <<'E'\nx\nE\n",
            "echo a \\\ncat <<'E'\nx\nE\n",
            "cat <<< E\nx\nE\n",
            "# cat\ncat <<'E'\nx\nE\n",
        ] {
            assert_eq!(without_documents(text), Without { text: Cow::Borrowed(text), bodies: Vec::new() });
        }
    }
}
