//! What is known of common commands that only read: every option that is harmless, and what each operand is.
//!
//! Read [`operands`] first. An option that is not in the table makes the command unknown, an abbreviation of one too. The
//! entries are those of GNU coreutils, findutils, grep, ripgrep and git as they are commonly known; what is missing is asked.

use super::word::{Kind, Word};
use crate::path::{SECRET_EXAMPLES, glob_matches};

/// A path that a command is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) word: Word,
    pub(crate) purpose: Purpose,
}

/// What a command does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Looks at names, sizes, times.
    List,
    /// Reads the content.
    Read,
    /// Reads the content of everything below.
    ReadBelow,
    /// Writes, creates or changes it.
    Write,
    /// Removes it, with everything below it.
    Delete,
}

/// The paths a read-only command touches; or why it is not known to be one. What cannot be told of a word is for the
/// caller to ask about.
pub(crate) fn operands(words: &[Word]) -> Result<Vec<Operand>, String> {
    let name = words.first().and_then(Word::known).unwrap_or_default();
    match name {
        "find" => return find(words),
        "git" => return git(words),
        "test" | "[" => return test(words),
        "sed" => return sed(words),
        "echo" | "printf" => return print(words),
        _ => {}
    }
    let Some((_, options, role)) = COMMANDS.iter().find(|(known, _, _)| *known == name) else {
        return Err(format!("it is not known what {} does", shown(name)));
    };
    let Parsed { mut paths, operands, options } = parse(name, options, words.get(1..).unwrap_or_default())?;
    let purpose = |purpose: Purpose| move |word: Word| Operand { word, purpose };
    match role {
        Role::None if operands.is_empty() => {}
        Role::None => return Err(format!("{name} is not known to take operands")),
        Role::Text => {}
        Role::List => paths.extend(operands.into_iter().map(purpose(Purpose::List))),
        Role::Read => paths.extend(operands.into_iter().map(purpose(Purpose::Read))),
        Role::ReadOne if operands.len() > 1 => return Err(format!("{name} writes to its second operand")),
        Role::ReadOne => paths.extend(operands.into_iter().map(purpose(Purpose::Read))),
        Role::Format if operands.iter().all(|word| word.text.starts_with('+')) => {}
        Role::Format => return Err(format!("{name} sets something when it is given an operand without +")),
        Role::Search => {
            let has_pattern = ["e", "regexp", "f", "file", "files", "type-list"].iter().any(|n| options.contains(*n));
            let below = name == "rg" || ["r", "recursive"].iter().any(|n| options.contains(*n));
            let purpose = if below { Purpose::ReadBelow } else { Purpose::Read };
            let files = operands.into_iter().skip(usize::from(!has_pattern));
            let from = paths.len();
            paths.extend(files.map(|word| Operand { word, purpose }));
            if paths.len() == from && below {
                paths.push(Operand { word: Word { text: ".".to_owned(), kind: Kind::Literal }, purpose });
            }
        }
    }
    Ok(paths)
}

/// What the words after a command's name are, if all of them are known.
#[derive(Default)]
struct Parsed {
    /// Values of options that are paths.
    paths: Vec<Operand>,
    operands: Vec<Word>,
    /// Names of the options that were given.
    options: std::collections::BTreeSet<String>,
}

/// What an option takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Text,
    Path,
    /// A pattern of file names that are searched.
    Glob,
    /// Text, only after `=`.
    Attached,
}

/// One entry of a table: a letter or a word, then `:` text, `<` path, `~` glob, `=` attached text. `#` is any number.
fn option(table: &str, name: &str) -> Option<Takes> {
    table.split_ascii_whitespace().find_map(|entry| {
        let (entry, takes) = match entry.char_indices().next_back() {
            Some((at, ':')) if at > 0 => (entry.get(..at)?, Takes::Text),
            Some((at, '<')) if at > 0 => (entry.get(..at)?, Takes::Path),
            Some((at, '~')) if at > 0 => (entry.get(..at)?, Takes::Glob),
            Some((at, '=')) if at > 0 => (entry.get(..at)?, Takes::Attached),
            _ => (entry, Takes::Nothing),
        };
        (entry == name).then_some(takes)
    })
}

fn parse(command: &str, table: &str, words: &[Word]) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    let mut words = words.iter();
    let unknown = |option: &str| format!("the option {} of {command} is not known to be harmless", shown(option));
    while let Some(word) = words.next() {
        match word.kind {
            Kind::Glob if word.text.starts_with(['*', '?', '[', '-']) => {
                return Err(format!("{} may stand for a name that is read as an option", shown(&word.text)));
            }
            Kind::Glob | Kind::Unknown => {
                parsed.operands.push(word.clone());
                continue;
            }
            Kind::Literal | Kind::Likely => {}
        }
        let text = word.text.as_str();
        if text == "--" {
            parsed.operands.extend(words.cloned());
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(Word { text: value.to_owned(), kind: Kind::Literal })),
                None => (long, None),
            };
            let takes = option(table, name).filter(|_| name.len() > 1).ok_or_else(|| unknown(text))?;
            parsed.options.insert(name.to_owned());
            match (takes, value) {
                (Takes::Nothing | Takes::Attached, None) => {}
                (Takes::Attached, Some(_)) => {}
                (Takes::Nothing, Some(_)) => return Err(unknown(text)),
                (takes, Some(value)) => parsed.value(takes, value)?,
                (takes, None) => parsed.value(takes, words.next().cloned().ok_or_else(|| unknown(text))?)?,
            }
        } else if let Some(cluster) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            if cluster.bytes().all(|byte| byte.is_ascii_digit()) && option(table, "#").is_some() {
                continue;
            }
            for (at, letter) in cluster.char_indices() {
                let name = letter.to_string();
                let takes = option(table, &name).ok_or_else(|| unknown(text))?;
                parsed.options.insert(name);
                match takes {
                    Takes::Nothing => continue,
                    // what follows in the same word is its value
                    Takes::Attached => break,
                    Takes::Text | Takes::Path | Takes::Glob => {}
                }
                let rest = cluster.get(at + letter.len_utf8()..).unwrap_or_default();
                let value = match rest {
                    "" => words.next().cloned().ok_or_else(|| unknown(text))?,
                    rest => Word { text: rest.to_owned(), kind: Kind::Literal },
                };
                parsed.value(takes, value)?;
                break;
            }
        } else {
            parsed.operands.push(word.clone());
        }
    }
    Ok(parsed)
}

impl Parsed {
    fn value(&mut self, takes: Takes, word: Word) -> Result<(), String> {
        match takes {
            Takes::Path => self.paths.push(Operand { word, purpose: Purpose::Read }),
            Takes::Glob => {
                let name = word.text.rsplit('/').next().unwrap_or_default();
                let may_be_secret = SECRET_EXAMPLES
                    .iter()
                    .any(|secret| glob_matches(name, secret) || glob_matches(&name.replacen('*', ".*", 1), secret));
                if !word.text.starts_with('!') && (may_be_secret || name.contains(['{', '['])) {
                    return Err(format!("{} may stand for a file that holds secrets", shown(&word.text)));
                }
            }
            Takes::Nothing | Takes::Text | Takes::Attached => {}
        }
        Ok(())
    }
}

/// `find`: where to look, then tests and actions. Those that run, write or remove are not in the table.
fn find(words: &[Word]) -> Result<Vec<Operand>, String> {
    let mut found = Vec::new();
    let mut words = words.iter().skip(1).peekable();
    let mut in_paths = true;
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if in_paths && !text.starts_with('-') && !matches!(text, "(" | "!" | ")" | ",") {
            found.push(Operand { word: word.clone(), purpose: Purpose::List });
            continue;
        }
        if in_paths && matches!(text, "-H" | "-P" | "-O1" | "-O2" | "-O3") {
            continue;
        }
        in_paths = false;
        let entry = FIND_TABLE.iter().find(|(name, _)| *name == text);
        match entry.map(|(_, takes)| *takes) {
            Some(FindTakes::Nothing) => {}
            Some(FindTakes::Text) => {
                words.next().ok_or("find ends in the middle of a test")?;
            }
            Some(FindTakes::Path) => {
                let path = words.next().ok_or("find ends in the middle of a test")?;
                found.push(Operand { word: path.clone(), purpose: Purpose::List });
            }
            None => return Err(format!("{} of find is not known to be harmless", shown(text))),
        }
    }
    if found.is_empty() {
        found.push(Operand { word: Word { text: ".".to_owned(), kind: Kind::Literal }, purpose: Purpose::List });
    }
    Ok(found)
}

#[derive(Clone, Copy)]
enum FindTakes {
    Nothing,
    Text,
    Path,
}

/// `git` subcommands that only read. Which programs of the repository they would run is for whoever starts them to
/// prevent (hooks, fsmonitor, pager, external diff); see the documentation of the policy.
fn git(words: &[Word]) -> Result<Vec<Operand>, String> {
    let mut rest = words.get(1..).unwrap_or_default();
    while let Some((first, after)) = rest.split_first() {
        match first.known() {
            Some("--no-pager" | "--no-optional-locks" | "--literal-pathspecs") => rest = after,
            _ => break,
        }
    }
    let Some((subcommand, arguments)) = rest.split_first() else {
        return Err("git without a subcommand".to_owned());
    };
    let name = subcommand.known().unwrap_or_default();
    let Some((_, options, operands)) = GIT.iter().find(|(known, _, _)| *known == name) else {
        return Err(format!("git {} is not known to only read", shown(name)));
    };
    // paths after `--` are no revisions, and the other way round
    let parsed = parse(&format!("git {name}"), options, arguments)?;
    let mut paths = parsed.paths;
    match operands {
        GitOperands::None if parsed.operands.is_empty() => {}
        GitOperands::None => return Err(format!("git {name} with operands may change something")),
        GitOperands::Listed if parsed.operands.is_empty() || parsed.options.contains("list") => {}
        GitOperands::Listed => return Err(format!("git {name} with operands may change something")),
        GitOperands::Exactly(allowed) => {
            let given: Vec<&str> = parsed.operands.iter().map(|word| word.text.as_str()).collect();
            if given != *allowed {
                return Err(format!("git {name} {} is not known to only read", shown(&given.join(" "))));
            }
        }
        GitOperands::Revisions => {
            for word in parsed.operands {
                // `REVISION:PATH` names a file of another time
                let path = match word.text.rsplit_once(':') {
                    Some((_, path)) => Word { text: path.to_owned(), kind: word.kind },
                    None => word,
                };
                paths.push(Operand { word: path, purpose: Purpose::Read });
            }
        }
    }
    Ok(paths)
}

#[derive(Debug, Clone, Copy)]
enum GitOperands {
    None,
    /// Only with `--list`.
    Listed,
    Exactly(&'static [&'static str]),
    /// Revisions and paths.
    Revisions,
}

/// `test` and `[`: nothing is read but whether files are there.
fn test(words: &[Word]) -> Result<Vec<Operand>, String> {
    let mut paths = Vec::new();
    for word in words.iter().skip(1) {
        // `-v 'a[$(id)]'` and `-eq` evaluate their words as arithmetic, substitutions too
        let arithmetic = matches!(word.text.as_str(), "-v" | "-R" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge");
        if arithmetic || word.text.contains(['$', '`']) {
            return Err("the test evaluates its words".to_owned());
        }
        if !word.text.starts_with('-') && !matches!(word.text.as_str(), "]" | "!" | "=" | "!=" | "==" | "(" | ")") {
            paths.push(Operand { word: word.clone(), purpose: Purpose::List });
        }
    }
    Ok(paths)
}

/// `echo` and `printf`: names only where a pattern stands for some.
fn print(words: &[Word]) -> Result<Vec<Operand>, String> {
    let is_printf = words.first().is_some_and(|word| word.text == "printf");
    if is_printf && words.get(1).is_some_and(|word| word.text.starts_with('-') && word.text != "--") {
        return Err("printf with an option may set a variable".to_owned());
    }
    let patterns = words.iter().skip(1).filter(|word| word.kind == Kind::Glob);
    Ok(patterns.map(|word| Operand { word: word.clone(), purpose: Purpose::List }).collect())
}

/// `sed -n 2,5p FILE` and the like: a script of line numbers and `p`, `q`, `d`, `=` only.
fn sed(words: &[Word]) -> Result<Vec<Operand>, String> {
    let Parsed { paths, operands, options } = parse(
        "sed",
        "n quiet silent E r regexp-extended s separate e: expression: z",
        words.get(1..).unwrap_or_default(),
    )?;
    if options.contains("e") || options.contains("expression") {
        return Err("sed -e may write or run something".to_owned());
    }
    let Some((script, files)) = operands.split_first() else { return Err("sed without a script".to_owned()) };
    let harmless = script.text.split(';').all(|command| {
        let numbers = command.trim().trim_end_matches(['p', 'q', 'd', '=']);
        command.trim().len() - numbers.len() <= 1
            && numbers.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'$' | b'~' | b'+' | b'!'))
    });
    if !harmless {
        return Err("this script of sed may write or run something".to_owned());
    }
    let files = files.iter().map(|word| Operand { word: word.clone(), purpose: Purpose::Read });
    Ok(paths.into_iter().chain(files).collect())
}

/// A word for people: short, and without letters that show as something else.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(visible).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

fn visible(letter: char) -> Vec<char> {
    let hidden = letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    if hidden { letter.escape_unicode().collect() } else { vec![letter] }
}

const SHOWN_MAX: usize = 60;

/// What a command's operands are.
#[derive(Debug, Clone, Copy)]
enum Role {
    None,
    Text,
    List,
    Read,
    /// A second one would be written.
    ReadOne,
    /// Only formats: `+%Y`.
    Format,
    /// A pattern, then files; folders where it is recursive.
    Search,
}

type Entry = (&'static str, &'static str, Role);

const COMMANDS: &[Entry] = &[
    (
        "ls",
        "a A b B c C d f F g G h H i I: k l L m n N o p q Q r R s S t T: u U v w: x X Z 1 all almost-all author escape \
         block-size: ignore-backups color= directory dired classify= file-type format: full-time group-directories-first \
         no-group human-readable si hide: hyperlink= indicator-style: inode ignore: kibibytes dereference literal \
         hide-control-chars show-control-chars quote-name quoting-style: reverse recursive size sort: time: time-style: \
         tabsize: width: context zero",
        Role::List,
    ),
    (
        "cat",
        "A b e E n s t T u v show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting",
        Role::Read,
    ),
    ("tac", "b r s: before regex separator:", Role::Read),
    ("rev", "", Role::Read),
    ("head", "# c: n: q v z bytes: lines: quiet silent verbose zero-terminated", Role::Read),
    ("tail", "# c: n: q v z bytes: lines: quiet silent verbose zero-terminated", Role::Read),
    (
        "nl",
        "b: d: f: h: i: l: n: p s: v: w: body-numbering: number-format: number-width: starting-line-number:",
        Role::Read,
    ),
    ("wc", "c m l L w bytes chars lines max-line-length words total:", Role::Read),
    (
        "cut",
        "b: c: d: f: n s z bytes: characters: delimiter: fields: complement only-delimited output-delimiter: zero-terminated",
        Role::Read,
    ),
    ("paste", "d: s z delimiters: serial zero-terminated", Role::Read),
    ("fold", "b s w: bytes spaces width:", Role::Read),
    ("expand", "i t: initial tabs:", Role::Read),
    ("unexpand", "a t: all first-only tabs:", Role::Read),
    ("column", "t s: c: x N: o: J table separator: output-width:", Role::Read),
    ("fmt", "c s t u w: g: crown-margin split-only uniform-spacing width:", Role::Read),
    (
        "sort",
        "b d f g h i k: M m n R r s t: u V z c C ignore-leading-blanks dictionary-order ignore-case general-numeric-sort \
         human-numeric-sort ignore-nonprinting key: month-sort merge numeric-sort reverse stable field-separator: unique \
         version-sort zero-terminated check=",
        Role::Read,
    ),
    (
        "uniq",
        "c d D f: i s: u w: z count repeated ignore-case skip-fields: skip-chars: unique check-chars:",
        Role::ReadOne,
    ),
    ("comm", "1 2 3 z check-order nocheck-order output-delimiter: total zero-terminated", Role::Read),
    ("join", "a: e: i j: o: t: v: 1: 2: z ignore-case check-order nocheck-order header", Role::Read),
    ("tr", "c C d s t complement delete squeeze-repeats truncate-set1", Role::Text),
    (
        "diff",
        "# q s c C: u U: e n y W: p t a b B w i E Z N brief report-identical-files unified= context= side-by-side width: \
         ignore-case ignore-tab-expansion ignore-trailing-space ignore-space-change ignore-all-space ignore-blank-lines \
         text strip-trailing-cr minimal speed-large-files color= label: new-file show-c-function expand-tabs",
        Role::Read,
    ),
    ("cmp", "b i: l n: s print-bytes ignore-initial: verbose bytes: quiet silent", Role::Read),
    ("od", "A: j: N: S: t: v w a b c d f i l o s x address-radix: skip-bytes: read-bytes: format: width=", Role::Read),
    ("hexdump", "b c C d n: o s: v x", Role::Read),
    ("xxd", "a b c: C d e E g: h i l: n: o: p ps s: u", Role::ReadOne),
    ("strings", "a f n: t: o e: w all print-file-name bytes: radix: encoding:", Role::Read),
    ("md5sum", "b t z binary text tag zero", Role::Read),
    ("sha1sum", "b t z binary text tag zero", Role::Read),
    ("sha256sum", "b t z binary text tag zero", Role::Read),
    ("sha512sum", "b t z binary text tag zero", Role::Read),
    ("b2sum", "b t z l: binary text tag zero length:", Role::Read),
    ("cksum", "", Role::Read),
    ("base64", "d i w: decode ignore-garbage wrap:", Role::Read),
    ("base32", "d i w: decode ignore-garbage wrap:", Role::Read),
    ("file", "b i k L h N n r 0 brief mime mime-type mime-encoding keep-going no-dereference no-pad raw", Role::Read),
    ("stat", "L f c: t dereference file-system format: printf: terse", Role::List),
    (
        "du",
        "a b c d: h k m s S x 0 t: all apparent-size bytes total max-depth: human-readable summarize separate-dirs \
            one-file-system exclude: si threshold: time= time-style:",
        Role::List,
    ),
    (
        "tree",
        "a d f i L: P: I: p s h u g D F q N r t v n C A S J X noreport dirsfirst prune filelimit: charset:",
        Role::List,
    ),
    (
        "readlink",
        "f e m n q s v z canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent zero",
        Role::List,
    ),
    (
        "realpath",
        "e m L P q s z canonicalize-existing canonicalize-missing logical physical quiet strip zero",
        Role::List,
    ),
    ("basename", "a s: z multiple suffix: zero", Role::Text),
    ("dirname", "z zero", Role::Text),
    ("pwd", "L P logical physical", Role::None),
    ("true", "", Role::Text),
    ("false", "", Role::Text),
    (":", "", Role::Text),
    ("seq", "f: s: w format: separator: equal-width", Role::Text),
    ("which", "a s", Role::Text),
    ("type", "a f p P t", Role::Text),
    // with other options it is a wrapper
    ("command", "v V", Role::Text),
    ("date", "u R I= utc universal iso-8601= rfc-3339: rfc-email d: date: r< reference<", Role::Format),
    (
        "uname",
        "a s n r v m p i o all kernel-name nodename kernel-release kernel-version machine processor \
               hardware-platform operating-system",
        Role::None,
    ),
    ("nproc", "all ignore:", Role::None),
    ("arch", "", Role::None),
    ("whoami", "", Role::None),
    ("id", "g G n r u z group groups name real user zero", Role::None),
    (
        "grep",
        "# A: B: C: E F G P c e: f< h H i L l m: n o q r s v w x z a b T y U I extended-regexp fixed-strings basic-regexp \
         perl-regexp after-context: before-context: context: count regexp: file< no-filename with-filename ignore-case \
         no-ignore-case files-without-match files-with-matches max-count: line-number only-matching quiet silent \
         recursive no-messages invert-match word-regexp line-regexp null-data text byte-offset initial-tab color= \
         colour= include: exclude: exclude-dir: binary-files: line-buffered label: binary null",
        Role::Search,
    ),
    ("egrep", "A: B: C: c e: f< h H i L l m: n o q r s v w x a", Role::Search),
    ("fgrep", "A: B: C: c e: f< h H i L l m: n o q r s v w x a", Role::Search),
    (
        "rg",
        "A: B: C: c e: f< F g~ H i I l m: M: n N o p P q r: s S t: T: U v V w x 0 after-context: before-context: context: \
         count count-matches regexp: file< fixed-strings glob~ iglob~ with-filename ignore-case no-filename \
         files-with-matches files-without-match max-count: max-columns: line-number no-line-number only-matching \
         pretty pcre2 quiet replace: case-sensitive smart-case type: type-not: multiline multiline-dotall invert-match \
         word-regexp line-regexp null color: colors: column no-column heading no-heading json sort: sortr: stats trim \
         vimgrep max-depth: max-filesize: files type-list no-messages one-file-system line-buffered threads: j: \
         passthru crlf no-config no-require-git",
        Role::Search,
    ),
];

const FIND_TABLE: &[(&str, FindTakes)] = &[
    ("(", FindTakes::Nothing),
    (")", FindTakes::Nothing),
    ("!", FindTakes::Nothing),
    (",", FindTakes::Nothing),
    ("-not", FindTakes::Nothing),
    ("-a", FindTakes::Nothing),
    ("-and", FindTakes::Nothing),
    ("-o", FindTakes::Nothing),
    ("-or", FindTakes::Nothing),
    ("-true", FindTakes::Nothing),
    ("-false", FindTakes::Nothing),
    ("-depth", FindTakes::Nothing),
    ("-mount", FindTakes::Nothing),
    ("-xdev", FindTakes::Nothing),
    ("-daystart", FindTakes::Nothing),
    ("-ignore_readdir_race", FindTakes::Nothing),
    ("-noleaf", FindTakes::Nothing),
    ("-empty", FindTakes::Nothing),
    ("-executable", FindTakes::Nothing),
    ("-readable", FindTakes::Nothing),
    ("-writable", FindTakes::Nothing),
    ("-nouser", FindTakes::Nothing),
    ("-nogroup", FindTakes::Nothing),
    ("-print", FindTakes::Nothing),
    ("-print0", FindTakes::Nothing),
    ("-ls", FindTakes::Nothing),
    ("-prune", FindTakes::Nothing),
    ("-quit", FindTakes::Nothing),
    ("-name", FindTakes::Text),
    ("-iname", FindTakes::Text),
    ("-path", FindTakes::Text),
    ("-ipath", FindTakes::Text),
    ("-wholename", FindTakes::Text),
    ("-iwholename", FindTakes::Text),
    ("-lname", FindTakes::Text),
    ("-ilname", FindTakes::Text),
    ("-regex", FindTakes::Text),
    ("-iregex", FindTakes::Text),
    ("-regextype", FindTakes::Text),
    ("-type", FindTakes::Text),
    ("-xtype", FindTakes::Text),
    ("-size", FindTakes::Text),
    ("-perm", FindTakes::Text),
    ("-user", FindTakes::Text),
    ("-group", FindTakes::Text),
    ("-uid", FindTakes::Text),
    ("-gid", FindTakes::Text),
    ("-links", FindTakes::Text),
    ("-inum", FindTakes::Text),
    ("-amin", FindTakes::Text),
    ("-atime", FindTakes::Text),
    ("-cmin", FindTakes::Text),
    ("-ctime", FindTakes::Text),
    ("-mmin", FindTakes::Text),
    ("-mtime", FindTakes::Text),
    ("-used", FindTakes::Text),
    ("-maxdepth", FindTakes::Text),
    ("-mindepth", FindTakes::Text),
    ("-newermt", FindTakes::Text),
    ("-printf", FindTakes::Text),
    ("-newer", FindTakes::Path),
    ("-anewer", FindTakes::Path),
    ("-cnewer", FindTakes::Path),
    ("-samefile", FindTakes::Path),
];

const GIT_DIFF: &str = "# p u U: s z patch no-patch unified: raw stat= numstat shortstat dirstat= summary name-only \
    name-status color= no-color word-diff= word-diff-regex: color-words= check full-index binary abbrev= B M C D l: S: G: \
    R a b w W I: pickaxe-all pickaxe-regex ignore-space-at-eol ignore-space-change ignore-all-space ignore-blank-lines \
    ignore-cr-at-eol inter-hunk-context: function-context exit-code quiet no-ext-diff no-textconv no-prefix \
    diff-filter: diff-algorithm: minimal patience histogram find-renames= find-copies= no-renames cached staged \
    merge-base relative= text src-prefix: dst-prefix: submodule= ignore-submodules= stat-width: compact-summary";
const GIT_LOG: &str = "# n: i E F P L: g p u U: s z patch no-patch unified: raw stat= numstat shortstat dirstat= summary \
    name-only name-status color= no-color word-diff= abbrev= M C D S: G: w b full-index pickaxe-all pickaxe-regex \
    no-ext-diff no-textconv diff-filter: find-renames= find-copies= no-renames cc c m oneline format: pretty= \
    abbrev-commit no-abbrev-commit graph decorate= no-decorate all branches= tags= remotes= max-count: skip: since: \
    after: until: before: author: committer: grep: all-match invert-grep merges no-merges first-parent reverse \
    date: relative-date date-order topo-order author-date-order follow full-history simplify-merges ancestry-path= \
    left-right cherry cherry-pick cherry-mark left-only right-only boundary walk-reflogs no-walk= source \
    regexp-ignore-case extended-regexp fixed-strings perl-regexp parents children full-diff log-size \
    no-notes notes= encoding: ignore-missing compact-summary min-parents: max-parents: no-mailmap mailmap use-mailmap";

const GIT: &[(&str, &str, GitOperands)] = &[
    (
        "status",
        "s b v u= z short branch show-stash porcelain= long verbose untracked-files= ignored= ignore-submodules= column= \
         no-column ahead-behind no-ahead-behind renames no-renames find-renames=",
        GitOperands::Revisions,
    ),
    ("diff", GIT_DIFF, GitOperands::Revisions),
    ("log", GIT_LOG, GitOperands::Revisions),
    ("show", GIT_LOG, GitOperands::Revisions),
    (
        "shortlog",
        "n s e c w= numbered summary email committer group: since: until: all no-merges",
        GitOperands::Revisions,
    ),
    (
        "ls-files",
        "c d m o i s u k z t v f x: cached deleted modified others ignored stage unmerged killed directory exclude: \
         exclude-standard error-unmatch full-name abbrev= eol deduplicate debug format:",
        GitOperands::Revisions,
    ),
    (
        "ls-tree",
        "d r t l z long name-only name-status object-only full-name full-tree abbrev= format:",
        GitOperands::Revisions,
    ),
    (
        "rev-parse",
        "short= verify q quiet abbrev-ref= symbolic symbolic-full-name all branches= tags= remotes= git-dir absolute-git-dir \
         show-toplevel show-prefix show-cdup is-inside-work-tree is-inside-git-dir is-bare-repository",
        GitOperands::Revisions,
    ),
    (
        "rev-list",
        "n: all count max-count: skip: since: until: author: grep: no-merges merges reverse first-parent oneline \
                  left-right topo-order date-order parents children objects",
        GitOperands::Revisions,
    ),
    (
        "describe",
        "all tags contains long abbrev: candidates: exact-match always match: exclude: dirty= first-parent",
        GitOperands::Revisions,
    ),
    ("merge-base", "a all octopus independent is-ancestor fork-point", GitOperands::Revisions),
    ("name-rev", "tags name-only all always refs:", GitOperands::Revisions),
    ("show-ref", "head heads tags d dereference s hash= verify q quiet abbrev=", GitOperands::Revisions),
    (
        "for-each-ref",
        "count: sort: format: merged= no-merged= contains= points-at: ignore-case",
        GitOperands::Revisions,
    ),
    ("cat-file", "t s e p", GitOperands::Revisions),
    ("count-objects", "v H verbose human-readable", GitOperands::None),
    (
        "branch",
        "a r v vv list show-current all remotes verbose no-color color= merged= no-merged= contains= sort: format: \
                points-at: column= no-column i ignore-case",
        GitOperands::Listed,
    ),
    (
        "tag",
        "l list n= sort: format: points-at: contains= merged= no-merged= column= color= i ignore-case",
        GitOperands::Listed,
    ),
    ("stash", "", GitOperands::Exactly(&["list"])),
    ("worktree", "", GitOperands::Exactly(&["list"])),
    ("reflog", "# n:", GitOperands::None),
    (
        "blame",
        "L: l t e w M C s n f p c show-email show-name show-number line-porcelain porcelain date: abbrev: root \
               no-textconv minimal since: ignore-rev:",
        GitOperands::Revisions,
    ),
    (
        "grep",
        "n i w v l L c h H o E G F P e: A: B: C: W p q a I r line-number ignore-case word-regexp invert-match \
              files-with-matches name-only files-without-match count only-matching extended-regexp basic-regexp \
              fixed-strings perl-regexp after-context: before-context: context: function-context show-function quiet \
              text all-match cached untracked max-depth: color= no-color break heading column full-name threads: and or not",
        GitOperands::Revisions,
    ),
    ("check-ignore", "q v n z quiet verbose non-matching no-index", GitOperands::Revisions),
];
