//! Programs of `sed`, `awk` and `jq` that only print: read far enough to be sure, and not a step further.
//!
//! Each function answers whether a program is known to write, run and read nothing but the files its command is given.
//! What it does not understand it does not vouch for.

/// A script of sed without `w`, `r`, `e` and the like.
pub(super) fn sed_only_prints(script: &str) -> bool {
    let mut script = Cursor { letters: script.chars().collect(), at: 0 };
    while script.peek().is_some() {
        if script.sed_command().is_none() {
            return false;
        }
    }
    true
}

struct Cursor {
    letters: Vec<char>,
    at: usize,
}

impl Cursor {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        Some(letter)
    }

    fn skip(&mut self, test: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&test) {
            self.at += 1;
        }
    }

    /// One command with its addresses, and what ends it. None: it is not understood.
    fn sed_command(&mut self) -> Option<()> {
        self.skip(|letter| letter.is_ascii_whitespace() || letter == ';');
        if self.peek().is_none() {
            return Some(());
        }
        self.sed_address()?;
        if self.peek() == Some(',') {
            self.at += 1;
            self.skip(|letter| letter == ' ');
            self.skip(|letter| matches!(letter, '+' | '~'));
            self.sed_address()?;
        }
        self.skip(|letter| matches!(letter, ' ' | '!'));
        match self.next()? {
            '{' => return Some(()),
            '#' => self.skip(|letter| letter != '\n'),
            'p' | 'P' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'x' | 'n' | 'N' | '=' | 'z' | 'F' | '}' => {}
            'q' | 'Q' | 'l' => {
                self.skip(|letter| letter == ' ');
                self.skip(|letter| letter.is_ascii_digit());
            }
            ':' | 'b' | 't' | 'T' => self.skip(|letter| letter.is_ascii_alphanumeric() || matches!(letter, ' ' | '_')),
            's' => {
                let delimiter = self.delimiter()?;
                self.until(delimiter, Brackets::Count)?;
                self.until(delimiter, Brackets::Ignore)?;
                // `e` runs, `w` writes
                self.skip(|letter| matches!(letter, 'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9'));
            }
            'y' => {
                let delimiter = self.delimiter()?;
                self.until(delimiter, Brackets::Ignore)?;
                self.until(delimiter, Brackets::Ignore)?;
            }
            'a' | 'i' | 'c' => {
                // one line of text; one that goes on is not followed
                while let Some(letter) = self.peek().filter(|letter| *letter != '\n') {
                    if letter == '\\' {
                        return None;
                    }
                    self.at += 1;
                }
            }
            _ => return None,
        }
        self.skip(|letter| letter == ' ');
        matches!(self.peek(), None | Some(';' | '}' | '\n' | '#')).then_some(())
    }

    fn sed_address(&mut self) -> Option<()> {
        match self.peek() {
            Some('0'..='9') => self.skip(|letter| letter.is_ascii_digit() || letter == '~'),
            Some('$') => self.at += 1,
            Some('/') => {
                self.at += 1;
                self.until('/', Brackets::Count)?;
                self.skip(|letter| matches!(letter, 'I' | 'M'));
            }
            Some('\\') => {
                self.at += 1;
                let delimiter = self.delimiter()?;
                self.until(delimiter, Brackets::Count)?;
                self.skip(|letter| matches!(letter, 'I' | 'M'));
            }
            Some(_) | None => {}
        }
        Some(())
    }

    fn delimiter(&mut self) -> Option<char> {
        self.next().filter(|letter| !letter.is_alphanumeric() && !letter.is_whitespace() && *letter != '\\')
    }

    /// Up to the delimiter and past it. Seds differ on delimiters in brackets: what both could mean is not followed.
    fn until(&mut self, delimiter: char, brackets: Brackets) -> Option<()> {
        let mut open = false;
        loop {
            match self.next()? {
                '\\' => drop(self.next()?),
                '\n' => return None,
                letter if letter == delimiter => {
                    return (!(open && brackets == Brackets::Count)).then_some(());
                }
                '[' => open = true,
                ']' => open = false,
                _ => {}
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Brackets {
    Count,
    Ignore,
}

/// A program of awk without `system`, `getline`, pipes, files of its own, and variables of the environment.
pub(super) fn awk_only_prints(program: &str) -> bool {
    // wherever they stand, in texts too: a text can be made a name
    const NEVER: [&str; 10] =
        ["system", "getline", "ENVIRON", "PROCINFO", "ARGV", "ARGC", "@", "close", "/inet", "SYMTAB"];
    !NEVER.iter().any(|word| program.contains(word)) && awk_tokens(program).is_some()
}

/// Over the tokens of an awk program. None: it may write or run something, or is not understood.
fn awk_tokens(program: &str) -> Option<()> {
    let letters: Vec<char> = program.chars().collect();
    let mut at = 0;
    // what the last token was, to tell a division from a pattern
    let mut after_value = false;
    let mut after_bracket = false;
    let mut printing = false;
    while let Some(letter) = letters.get(at).copied() {
        at += 1;
        let (mut value, mut bracket) = (false, false);
        match letter {
            ' ' | '\t' => continue,
            '\\' if letters.get(at) == Some(&'\n') => {
                at += 1;
                continue;
            }
            '#' => {
                at += letters.iter().skip(at).take_while(|letter| **letter != '\n').count();
                continue;
            }
            '"' => {
                at = awk_quoted(&letters, at, '"')?;
                value = true;
            }
            '/' if after_bracket => return None,
            '/' if after_value => {}
            '/' => {
                at = awk_quoted(&letters, at, '/')?;
                value = true;
            }
            '|' if letters.get(at) == Some(&'|') => at += 1,
            '|' => return None,
            '>' if printing || letters.get(at) == Some(&'>') => return None,
            '\n' | ';' | '{' | '}' => printing = false,
            ')' => bracket = true,
            ']' => value = true,
            letter if letter.is_ascii_alphanumeric() || letter == '_' => {
                let from = at - 1;
                while letters.get(at).is_some_and(|next| next.is_ascii_alphanumeric() || *next == '_') {
                    at += 1;
                }
                let word: String = letters.get(from..at).unwrap_or_default().iter().collect();
                printing |= matches!(word.as_str(), "print" | "printf");
                value = !matches!(
                    word.as_str(),
                    "print"
                        | "printf"
                        | "return"
                        | "in"
                        | "else"
                        | "do"
                        | "case"
                        | "BEGIN"
                        | "END"
                        | "function"
                        | "func"
                );
            }
            letter if letter.is_ascii_punctuation() => {}
            _ => return None,
        }
        (after_value, after_bracket) = (value, bracket);
    }
    Some(())
}

/// The place behind the closing quote.
fn awk_quoted(letters: &[char], from: usize, close: char) -> Option<usize> {
    let mut at = from;
    let mut open = false;
    loop {
        let letter = letters.get(at).copied()?;
        at += 1;
        match letter {
            '\\' => at += 1,
            '\n' => return None,
            letter if letter == close => return (!(open && close == '/')).then_some(at),
            '[' => open = true,
            ']' => open = false,
            _ => {}
        }
    }
}

/// A program of jq or yq that reads no other file and no environment.
pub(super) fn jq_only_prints(program: &str) -> bool {
    const NEVER: [&str; 9] =
        ["env", "ENV", "import", "include", "load", "system", "input_line_number", "eval", "get_search_list"];
    !NEVER.iter().any(|word| program.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_sed_that_only_print_are_known() {
        for script in [
            "2,5p",
            "$p",
            "1~2p",
            "/a/p",
            "/a/,/b/p",
            "/a/,+3p",
            "/a/!d",
            "s/a/b/",
            "s/a/b/gp",
            "s|/x|/y|2",
            "s/a\\/b/c/g",
            "/^#/d;/^$/d",
            "1d;$d",
            "/x/{s/a/b/;p}",
            "y/abc/xyz/",
            "10q",
            "$=",
            "n;d",
            "s/[^a]*/x/",
            "# remark\np",
            "a hello",
            ":a;N;$!ba;s/\\n/ /g",
            "s,a,b,;s,c,d,",
            "\\|x|p",
            "/a/I p",
            "1,5!d",
            "s/e/w/",
            "",
        ] {
            assert!(sed_only_prints(script), "{script}");
        }
        for script in [
            "w out",
            "1w out",
            "s/a/b/w out",
            "s/a/b/e",
            "s/a/b/gew x",
            "e id",
            "1e id",
            "r /etc/passwd",
            "R x",
            "W x",
            "p\nw x",
            "/a/w x",
            "/a/{w x\n}",
            "s/a/b",
            "s/[/]/b/w x/",
            "v",
            "M",
            "s/a/b/;w x",
            "a x\\\nw y",
            "}w x",
            "p w x",
            "sea/b/w",
            "y/a/b/w x",
            "l5w x",
            "ba w x\nw y",
            "$!w x",
            "s\na\nb\n",
            "/[/]/w x/p",
        ] {
            assert!(!sed_only_prints(script), "{script}");
        }
    }

    #[test]
    fn programs_of_awk_that_only_print_are_known() {
        for program in [
            "{print $1}",
            "{ s += $3 } END { print s }",
            "NR>=10 && NR<=20",
            "/^fn/ {n++} END {print n}",
            "length($0) > 120 {print FILENAME\": \"FNR}",
            "$3 > 10 || /a|b/ { print $1, $2 }",
            "BEGIN{FS=\",\"} {printf \"%s > %s\\n\", $1, $2}",
            "!seen[$0]++",
            "{ print $1 / $2 }",
            "{a[$1]+=$2} END{for(k in a) print k, a[k]/2}",
            "$1 ~ /x/ { print } # done",
            "{gsub(/a/,\"b\")}1",
        ] {
            assert!(awk_only_prints(program), "{program}");
        }
        for program in [
            "BEGIN{system(\"id\")}",
            "{print > \"f\"}",
            "{print >> \"f\"}",
            "{printf(\"x\") > \"f\"}",
            "{print | \"sh\"}",
            "BEGIN{\"id\" | getline x}",
            "{getline < \"/etc/passwd\"}",
            "BEGIN{ARGV[1]=\"/etc/shadow\"}",
            "BEGIN{print ENVIRON[\"X\"]}",
            "@load \"x\"",
            "BEGIN{f=\"sys\" \"tem\"; @f(\"id\")}",
            "{ if (x) /\"/; print | \"sh\" #\"\n}",
            "{print \"a\n\"}",
            "/[/]/ {print > \"x\" /]/}",
            "{print (1) > \"f\"}",
        ] {
            assert!(!awk_only_prints(program), "{program}");
        }
    }
}
