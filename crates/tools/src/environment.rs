//! What a tool's program finds in its environment: a fixed, small set, and what its task says. Nothing is inherited.

use std::collections::BTreeMap;
use std::fmt;

use longrein_core::hook::HookSpec;
use longrein_core::task::ToolSpec;

use crate::error::ToolsError;
use crate::secrets::Secrets;

/// Passed on from the operator's environment, with what stands in where it has none.
const PASSED_ON: [(&str, &str); 2] = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/")];

/// Where the operator names no language: UTF-8, and nothing else of a locale. `LANG=C.UTF-8` means the same and has each
/// program that asks for its locale read a dozen files.
const CHARACTERS: (&str, &str) = ("LC_CTYPE", "C.UTF-8");

/// Nobody sits at a tool: programs that would ask, page or edit must fail or go on. An editor that *succeeds* would let
/// git go on with a text nobody wrote, so it fails.
const HYGIENE: [(&str, &str); 15] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    // What only reads is allowed unasked: it must neither start the program a repository names as its monitor nor write.
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_0", "false"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("PAGER", "cat"),
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    // Python takes bytecode for its source's by second and size: an edit right after a test run would go unnoticed.
    ("PYTHONDONTWRITEBYTECODE", "1"),
];

/// What every command gets.
pub(crate) fn base(operator: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let given = |name| operator.get(name).filter(|value| !value.is_empty()).map(String::as_str);
    let passed = PASSED_ON.iter().map(|(name, absent)| (*name, given(*name).unwrap_or(absent)));
    let language = given("LANG").map_or(CHARACTERS, |language| ("LANG", language));
    HYGIENE
        .into_iter()
        .chain(passed)
        .chain([language])
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// What one tool gets. Secrets it names become known to `secrets`.
pub(crate) fn of_tool(
    spec: &ToolSpec,
    operator: &BTreeMap<String, String>,
    secrets: &mut Secrets,
) -> Result<BTreeMap<String, String>, ToolsError> {
    of(&spec.env, operator, secrets).map_err(|wrong| match wrong {
        Wrong::Entry(entry) => ToolsError::Environment { tool: spec.name.clone(), entry },
        Wrong::Missing(name) => ToolsError::MissingSecret { tool: spec.name.clone(), name },
    })
}

/// The same of a server of somebody else's; what is wrong with it, for people.
pub fn of_server(
    entries: &[String],
    operator: &BTreeMap<String, String>,
    secrets: &mut Secrets,
) -> Result<BTreeMap<String, String>, String> {
    of(entries, operator, secrets).map_err(|wrong| wrong.to_string())
}

/// A text with each `${secret:X}` replaced. Secrets it names become known to `secrets`.
pub fn with_secrets(text: &str, operator: &BTreeMap<String, String>, secrets: &mut Secrets) -> Result<String, String> {
    match expand(text, operator, secrets) {
        Ok(Some((text, _))) => Ok(text),
        Ok(None) => Err(Wrong::Entry(text.to_owned()).to_string()),
        Err(wrong) => Err(wrong.to_string()),
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Entry(entry) => write!(f, "\"{entry}\": write NAME, NAME=value or ${{secret:NAME}}"),
            Wrong::Missing(name) => {
                write!(f, "the variable {name} is not set: export {name} first")
            }
        }
    }
}

/// The secrets that texts name by `${secret:X}`, as far as the operator has set them, become known.
pub fn know_named<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    operator: &BTreeMap<String, String>,
    secrets: &mut Secrets,
) {
    for text in texts {
        for (at, _) in text.match_indices(OPEN) {
            let Some((name, _)) = text[at + OPEN.len()..].split_once('}') else { break };
            if let Some(value) = operator.get(name).filter(|value| !value.is_empty() && is_name(name)) {
                secrets.know(name, value);
            }
        }
    }
}

/// The same of a hook.
pub(crate) fn of_hook(
    spec: &HookSpec,
    operator: &BTreeMap<String, String>,
    secrets: &mut Secrets,
) -> Result<BTreeMap<String, String>, ToolsError> {
    of(&spec.env, operator, secrets).map_err(|wrong| match wrong {
        Wrong::Entry(entry) => ToolsError::HookEnvironment { hook: spec.label(), entry },
        Wrong::Missing(name) => ToolsError::HookSecret { hook: spec.label(), name },
    })
}

/// What is wrong with an entry.
enum Wrong {
    Entry(String),
    /// The secret of this name is not set.
    Missing(String),
}

fn of(
    entries: &[String],
    operator: &BTreeMap<String, String>,
    secrets: &mut Secrets,
) -> Result<BTreeMap<String, String>, Wrong> {
    let mut env = base(operator);
    for entry in entries {
        let malformed = || Wrong::Entry(entry.clone());
        if entry.starts_with("${") {
            let (value, names) = expand(entry, operator, secrets)?.ok_or_else(malformed)?;
            match names.as_slice() {
                [name] if entry.len() == name.len() + OPEN.len() + 1 => env.insert(name.clone(), value),
                _ => return Err(malformed()),
            };
        } else if let Some((name, text)) = entry.split_once('=') {
            if !is_name(name) {
                return Err(malformed());
            }
            let (value, _) = expand(text, operator, secrets)?.ok_or_else(malformed)?;
            env.insert(name.to_owned(), value);
        } else if is_name(entry) {
            // a plain name that is not set stays unset, as it would in the operator's own shell
            if let Some(value) = operator.get(entry) {
                env.insert(entry.clone(), value.clone());
            }
        } else {
            return Err(malformed());
        }
    }
    Ok(env)
}

const OPEN: &str = "${secret:";

/// What parts a name from what stands in for it where it is not set, as in a shell.
const ELSE: &str = ":-";

/// `text` with each `${secret:X}` and `${secret:X:-else}` replaced, and the names of them. None: a reference that is not
/// closed or names nothing.
fn expand(
    text: &str,
    operator: &BTreeMap<String, String>,
    secrets: &mut Secrets,
) -> Result<Option<(String, Vec<String>)>, Wrong> {
    let mut out = String::new();
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        out.push_str(&rest[..at]);
        let Some((reference, after)) = rest[at + OPEN.len()..].split_once('}') else { return Ok(None) };
        let (name, absent) = match reference.split_once(ELSE) {
            Some((name, absent)) => (name, Some(absent)),
            None => (reference, None),
        };
        if !is_name(name) {
            return Ok(None);
        }
        match (operator.get(name).filter(|value| !value.is_empty()), absent) {
            (Some(value), _) => {
                secrets.know(name, value);
                out.push_str(value);
            }
            // It stands in a file for all to read: no secret.
            (None, Some(absent)) => out.push_str(absent),
            (None, None) => return Err(Wrong::Missing(name.to_owned())),
        }
        names.push(name.to_owned());
        rest = after;
    }
    out.push_str(rest);
    Ok(Some((out, names)))
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}
