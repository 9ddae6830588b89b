//! Text that is handed to a command line by line, where no shell could read it otherwise: `cat > FILE <<'END'`.
//!
//! Read [`without_documents`] first. Shells and parsers differ on here-documents, so such text is asked about. One form
//! leaves no room: a line that is one plain `cat` or `tee`, a word as the end, and a body in which nothing is expanded. There the
//! body is data, and is taken out before the rest is read as a shell reads it.

use std::borrow::Cow;

/// The text without the bodies of here-documents of the one plain form, and without what announces them.
pub(super) fn without_documents(text: &str) -> Cow<'_, str> {
    if !text.contains("<<") {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if let Some((command, body)) = document(line, after) {
            kept.push_str(&command);
            kept.push('\n');
            rest = body;
            continue;
        }
        // whether a line further down is one of its own cannot be told: a quote may be open, a line may go on
        if !is_plain(line) {
            return if kept.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(kept + rest) };
        }
        kept.push_str(line);
        kept.push('\n');
        rest = after;
    }
    Cow::Owned(kept)
}

/// The command of a line that announces a document, and what stands behind the document.
fn document<'a>(line: &str, after: &'a str) -> Option<(String, &'a str)> {
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
    let command = format!("{before}{behind}");
    let gives_on = command.split_ascii_whitespace().next().is_some_and(|name| matches!(name, "cat" | "tee"));
    let separate = behind.is_empty() || behind.starts_with([' ', '>']);
    if !gives_on || !separate || !is_plain(&command) {
        return None;
    }
    // a number before it would name a descriptor
    if before.ends_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let mut at = 0;
    for body in after.split_inclusive('\n') {
        at += body.len();
        let body = body.strip_suffix('\n').unwrap_or(body);
        if body == end {
            return Some((command, after.get(at..).unwrap_or_default()));
        }
        if quote.is_none() && body.contains(['$', '`', '\\']) {
            return None;
        }
    }
    None
}

/// One command without quotes, expansions or anything that joins commands.
fn is_plain(line: &str) -> bool {
    line.chars().all(|letter| letter.is_ascii_alphanumeric() || " ./_-=>@+,:".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_the_plain_form_are_taken_out() {
        for (text, kept) in [
            ("cat > a.rs <<'E'\nfn $x() { `y` }\nE\n", "cat > a.rs \n"),
            ("cat <<'E' > a.rs\nrm -rf /\nE\nls", "cat  > a.rs\nls\n"),
            ("cat <<E\nplain\nE\n", "cat \n"),
            ("mkdir -p a\ncat > a/b <<\"END\"\n$x\nEND\n", "mkdir -p a\ncat > a/b \n"),
            ("cat > a <<'E'\nx\nE\ncat > b <<'E'\ny\nE\n", "cat > a \ncat > b \n"),
            ("tee a <<'E'\nx\nE\n", "tee a \n"),
        ] {
            assert_eq!(without_documents(text), kept, "{text}");
        }
    }

    #[test]
    fn whatever_a_shell_may_read_otherwise_stays() {
        for text in [
            "cat <<E\n$(x)\nE\n",
            "cat <<E\na\\\nE\n",
            "cat <<'E' | sh\nx\nE\n",
            "sh <<'E'\nx\nE\n",
            "cat <<-'E'\nx\n\tE\n",
            "cat <<'E'\nx\n",
            "cat <<'E' <<'F'\nx\nE\ny\nF\n",
            "cat <<'E'; sh\nx\nE\n",
            "cat <<'E' $x\nx\nE\n",
            "cat 3<<'E'\nx\nE\n",
            "cat <<'E'x\nx\nE\n",
            "cat <<''\nx\n\n",
            "echo '\ncat <<'E'\nx\nE\n",
            "echo a \\\ncat <<'E'\nx\nE\n",
            "cat <<< E\nx\nE\n",
            "# cat\ncat <<'E'\nx\nE\n",
        ] {
            assert_eq!(without_documents(text), text);
        }
    }
}
