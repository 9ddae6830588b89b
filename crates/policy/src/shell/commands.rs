//! The commands that are known to only read: every option that is harmless, and what their operands are. Data for [`table`].
//!
//! An entry is a letter or a word, then `:` text, `<` path, `~` glob, `=` attached text, `%` two texts. `#` is any number.
//! The entries are those of GNU coreutils, findutils, grep, ripgrep, jq and git as they are commonly known. What may run,
//! write or fetch is left out, and so asked about; an abbreviation is left out too.
//!
//! [`table`]: super::table

use super::table::{FindTakes, GitOperands};

/// What a command's operands are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
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
    /// A program of its own, then files.
    Program(fn(&str) -> bool),
    /// Files, and all of a folder where it is recursive.
    Compare,
    /// Names of files are looked for: a pattern, then folders.
    Names,
    /// Files, if one of these options is given; else it would write.
    ReadIf(&'static [&'static str]),
    /// An archive, then names in it, if one of these options is given.
    ArchiveIf(&'static [&'static str]),
}

pub(super) type Entry = (&'static str, &'static str, Role);

pub(super) const COMMANDS: &[Entry] = &[
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
         text strip-trailing-cr minimal speed-large-files color= label: new-file show-c-function expand-tabs r recursive \
         x: exclude: no-dereference I: ignore-matching-lines: suppress-common-lines left-column",
        Role::Compare,
    ),
    ("less", "N n S R r F X i I e E m M s", Role::Read),
    ("more", "d f l p c s u", Role::Read),
    (
        "bat",
        "A n p f r: l: H: style: plain number show-all line-range: language: color: paging: decorations: highlight-line: \
         tabs: wrap: theme: force-colorization unbuffered u",
        Role::Read,
    ),
    (
        "batcat",
        "A n p f r: l: style: plain number show-all line-range: language: color: paging: decorations:",
        Role::Read,
    ),
    ("zcat", "f", Role::Read),
    ("bzcat", "", Role::Read),
    ("xzcat", "", Role::Read),
    (
        "gunzip",
        "c stdout to-stdout k keep t test l list v q",
        Role::ReadIf(&["c", "stdout", "to-stdout", "t", "test", "l", "list"]),
    ),
    (
        "gzip",
        "c stdout to-stdout d decompress k keep t test l list v q",
        Role::ReadIf(&["c", "stdout", "to-stdout", "t", "test", "l", "list"]),
    ),
    ("tar", "t v z j J f< list verbose gzip bzip2 xz file< wildcards no-anchored", Role::ArchiveIf(&["t", "list"])),
    ("unzip", "l v Z 1 p t q list", Role::ArchiveIf(&["l", "v", "Z", "p", "t"])),
    ("zipinfo", "1 2 s m l v h t T z", Role::Read),
    (
        "jq",
        "r c n s e S M C a j R raw-output raw-output0 compact-output null-input slurp exit-status sort-keys tab indent: \
         monochrome-output color-output ascii-output join-output raw-input arg% argjson% seq stream",
        Role::Program(super::program::jq_only_prints),
    ),
    (
        "yq",
        "r P o: p: C M N j I: e n raw-output prettyPrint output-format: input-format: colors no-colors no-doc null-input \
         exit-status indent: unwrapScalar=",
        Role::Program(super::program::jq_only_prints),
    ),
    ("awk", "F: v: field-separator: assign:", Role::Program(super::program::awk_only_prints)),
    ("gawk", "F: v: field-separator: assign:", Role::Program(super::program::awk_only_prints)),
    ("mawk", "F: v:", Role::Program(super::program::awk_only_prints)),
    (
        "fd",
        "H I u s i g F a l p 0 1 q t: e: d: E: S: c: hidden no-ignore unrestricted case-sensitive ignore-case glob \
         fixed-strings absolute-path list-details full-path print0 type: extension: max-depth: min-depth: exact-depth: \
         exclude: size: changed-within: changed-before: color: max-results: quiet strip-cwd-prefix=",
        Role::Names,
    ),
    (
        "fdfind",
        "H I u s i g F a l p 0 1 q t: e: d: E: S: c: hidden no-ignore type: extension: max-depth: exclude: color:",
        Role::Names,
    ),
    (
        "df",
        "a h H i k l m P T t: x: all human-readable si inodes local portability print-type type: output=",
        Role::List,
    ),
    ("free", "b k m g h s: c: t w human bytes kilo mega giga total wide", Role::None),
    ("uptime", "p s pretty since", Role::None),
    ("hostname", "f s i I d A fqdn short ip-address all-ip-addresses domain long", Role::None),
    ("lscpu", "e p J a extended= parse= json", Role::None),
    ("groups", "", Role::Text),
    ("tty", "s", Role::None),
    ("logname", "", Role::None),
    ("sleep", "", Role::Text),
    ("locale", "a m", Role::None),
    ("getconf", "a", Role::Text),
    ("tsort", "", Role::Read),
    ("factor", "", Role::Text),
    (
        "numfmt",
        "to: from: suffix: padding: field: d: delimiter: header= grouping format: to-unit: from-unit:",
        Role::Text,
    ),
    ("expr", "", Role::Text),
    ("nm", "a A C D g n p r S s u demangle= dynamic extern-only numeric-sort defined-only", Role::Read),
    ("size", "A B d o x t", Role::Read),
    ("readelf", "a h l S s d V n r W e", Role::Read),
    ("objdump", "d h t T x p r s C f D M: j: l S disassemble", Role::Read),
    ("iconv", "f: t: c l from-code: to-code: list", Role::Read),
    ("cal", "1 3 j m s y A: B:", Role::Text),
    ("ts", "i s", Role::Text),
    (
        "ag",
        "A: B: C: c i s S l L n o Q v w z a G: m: after: before: context: count ignore-case case-sensitive smart-case \
         files-with-matches files-without-matches literal invert-match word-regexp nocolor nogroup nonumbers numbers \
         column depth: max-count: ignore: vimgrep",
        Role::Search,
    ),
    ("tokei", "f s: t: e: files sort: type: exclude: o: output:", Role::List),
    ("cloc", "quiet by-file json csv exclude-dir: include-lang: md", Role::List),
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
        "a d f i L: P: I: p s h u g D F q N r t v n C A S J X noreport dirsfirst prune filelimit: charset: gitignore",
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
    ("bc", "l q s w mathlib quiet standard warn", Role::Read),
    ("shuf", "e i: n: r z echo input-range: head-count: repeat zero-terminated", Role::Read),
    (
        "pgrep",
        "a c f i l n o v w x d: g: G: P: s: t: u: U: full list-full list-name exact count newest oldest",
        Role::Text,
    ),
    ("pidof", "s x o:", Role::Text),
    ("man", "k f a w s: apropos whatis where all", Role::Text),
    ("apropos", "e s: exact", Role::Text),
    ("whatis", "s:", Role::Text),
    ("help", "d m s", Role::Text),
    ("dirname", "z zero", Role::Text),
    ("pwd", "L P logical physical", Role::None),
    ("true", "", Role::Text),
    ("false", "", Role::Text),
    (":", "", Role::Text),
    ("seq", "f: s: w format: separator: equal-width", Role::Text),
    ("which", "a s", Role::Text),
    ("whereis", "b m s u", Role::Text),
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
         passthru crlf no-config no-require-git hidden . u uu no-ignore unrestricted",
        Role::Search,
    ),
];

pub(super) const FIND_TABLE: &[(&str, FindTakes)] = &[
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
const GIT_DIFF_TREE: &str = "# p u U: s z patch no-patch unified: raw stat= numstat shortstat dirstat= summary name-only \
    name-status color= no-color word-diff= word-diff-regex: color-words= check full-index binary abbrev= B M C D l: S: G: \
    R a b w W I: pickaxe-all pickaxe-regex ignore-space-at-eol ignore-space-change ignore-all-space ignore-blank-lines \
    ignore-cr-at-eol inter-hunk-context: function-context exit-code quiet no-ext-diff no-textconv no-prefix \
    diff-filter: diff-algorithm: minimal patience histogram find-renames= find-copies= no-renames cached staged \
    merge-base relative= text src-prefix: dst-prefix: submodule= ignore-submodules= stat-width: compact-summary no-commit-id root r m c cc t";
const GIT_LOG: &str = "# n: i E F P L: g p u U: s z patch no-patch unified: raw stat= numstat shortstat dirstat= summary \
    name-only name-status color= no-color word-diff= abbrev= M C D S: G: w b full-index pickaxe-all pickaxe-regex \
    no-ext-diff no-textconv diff-filter: find-renames= find-copies= no-renames cc c m oneline format: pretty= \
    abbrev-commit no-abbrev-commit graph decorate= no-decorate all branches= tags= remotes= max-count: skip: since: \
    after: until: before: author: committer: grep: all-match invert-grep merges no-merges first-parent reverse \
    date: relative-date date-order topo-order author-date-order follow full-history simplify-merges ancestry-path= \
    left-right cherry cherry-pick cherry-mark left-only right-only boundary walk-reflogs no-walk= source \
    regexp-ignore-case extended-regexp fixed-strings perl-regexp parents children full-diff log-size \
    no-notes notes= encoding: ignore-missing compact-summary min-parents: max-parents: no-mailmap mailmap use-mailmap";

pub(super) const GIT: &[(&str, &str, GitOperands)] = &[
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
    // `--dirty` writes the index, whatever is said of locks, and a hook is run for that
    (
        "describe",
        "all tags contains long abbrev: candidates: exact-match always match: exclude: first-parent",
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
    ("stash", "p stat u patch name-only name-status oneline #", GitOperands::Stash),
    ("worktree", "porcelain v verbose", GitOperands::Exactly(&["list"])),
    ("remote", "v verbose all push", GitOperands::Remote),
    ("config", "get get-all: list l show-origin show-scope local null z name-only", GitOperands::Setting),
    ("version", "build-options", GitOperands::None),
    ("var", "", GitOperands::Exactly(&["GIT_DEFAULT_BRANCH"])),
    ("diff-tree", GIT_DIFF_TREE, GitOperands::Revisions),
    ("diff-index", GIT_DIFF, GitOperands::Revisions),
    ("diff-files", GIT_DIFF, GitOperands::Revisions),
    ("cherry", "v abbrev=", GitOperands::Revisions),
    ("whatchanged", GIT_LOG, GitOperands::Revisions),
    ("range-diff", "", GitOperands::Revisions),
    ("symbolic-ref", "short q quiet", GitOperands::Exactly(&["HEAD"])),
    ("verify-pack", "v s", GitOperands::Revisions),
    ("reflog", "# n: oneline date: max-count:", GitOperands::Reflog),
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
              text all-match cached untracked no-index no-exclude-standard exclude-standard max-depth: color= no-color break heading column full-name threads: and or not",
        GitOperands::Revisions,
    ),
    ("check-ignore", "q v n z quiet verbose non-matching no-index", GitOperands::Revisions),
];

/// Options that make a program say which version it is, and do nothing else. Programs that obey files of the workspace before
/// they say it (yarn, pnpm, maven, gradle, pytest, bazel) are left out.
pub(super) const VERSIONS: &[(&str, &[&str])] = &[
    ("cargo", &["--version", "-V", "version", "-vV", "-Vv", "--help", "--list"]),
    ("kubectl", &["version --client", "version --client=true", "--help"]),
    ("helm", &["version", "version --short"]),
    ("terraform", &["--version", "-version", "version"]),
    ("mypy", &["--version"]),
    ("eslint", &["--version", "-v"]),
    ("prettier", &["--version"]),
    ("ldconfig", &["--version"]),
    ("rustc", &["--version", "-V", "-vV", "-Vv"]),
    ("rustfmt", &["--version", "-V"]),
    ("rustup", &["--version", "-V", "toolchain list", "target list --installed"]),
    ("node", &["--version", "-v"]),
    ("npm", &["--version", "-v"]),
    ("npx", &["--version", "-v"]),
    ("deno", &["--version", "-V"]),
    ("bun", &["--version", "-v"]),
    ("tsc", &["--version", "-v"]),
    ("python", &["--version", "-V", "-VV"]),
    ("python3", &["--version", "-V", "-VV"]),
    ("pip", &["--version", "-V"]),
    ("pip3", &["--version", "-V"]),
    ("uv", &["--version", "-V"]),
    ("go", &["version"]),
    ("gofmt", &["--help"]),
    ("java", &["-version", "--version"]),
    ("javac", &["-version", "--version"]),
    ("ruby", &["--version", "-v"]),
    ("gem", &["--version", "-v"]),
    ("perl", &["--version", "-v"]),
    ("php", &["--version", "-v"]),
    ("lua", &["-v"]),
    ("gcc", &["--version", "-v", "-dumpversion", "-dumpmachine"]),
    ("g++", &["--version", "-v", "-dumpversion"]),
    ("cc", &["--version", "-v"]),
    ("c++", &["--version", "-v"]),
    ("clang", &["--version", "-v"]),
    ("clang++", &["--version", "-v"]),
    ("ld", &["--version", "-v"]),
    ("make", &["--version", "-v"]),
    ("cmake", &["--version"]),
    ("ninja", &["--version"]),
    ("meson", &["--version"]),
    ("docker", &["--version", "-v"]),
    ("podman", &["--version", "-v"]),
    ("bash", &["--version"]),
    ("zsh", &["--version"]),
    ("jq", &["--version", "-V"]),
    ("yq", &["--version", "-V"]),
    ("rg", &["--version", "-V"]),
    ("fd", &["--version", "-V"]),
    ("grep", &["--version", "-V"]),
    ("sed", &["--version"]),
    ("awk", &["--version", "-V"]),
    ("gawk", &["--version", "-V"]),
    ("find", &["--version"]),
    ("tar", &["--version"]),
    ("ls", &["--version"]),
    ("sort", &["--version"]),
    ("diff", &["--version"]),
    ("curl", &["--version", "-V"]),
    ("wget", &["--version", "-V"]),
    ("openssl", &["version", "--version"]),
    ("ssh", &["-V"]),
    ("gh", &["--version", "version"]),
    ("git", &["--version"]),
    ("sqlite3", &["--version", "-version"]),
    ("psql", &["--version", "-V"]),
    ("mysql", &["--version", "-V"]),
    ("redis-cli", &["--version", "-v"]),
    ("protoc", &["--version"]),
    ("tmux", &["-V"]),
    ("vim", &["--version"]),
    ("gdb", &["--version"]),
    ("valgrind", &["--version"]),
    ("strace", &["--version", "-V"]),
    ("ffmpeg", &["-version"]),
    ("pandoc", &["--version"]),
    ("swift", &["--version"]),
    ("ghc", &["--version"]),
    ("julia", &["--version"]),
    ("zig", &["version"]),
    ("dotnet", &["--version"]),
    ("black", &["--version"]),
    ("ruff", &["--version", "-V", "version"]),
];
