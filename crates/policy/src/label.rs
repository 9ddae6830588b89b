//! Labels: what the result of a call brings into a run.
//!
//! Untrusted is what strangers may have written: the network, servers, files outside the workspace or brought in from
//! elsewhere. Files that a package manager of the system installs (`/usr/share`, `/usr/include`, `/usr/lib`) are as
//! trusted as the programs that come with them.

use longrein_core::taint::{Confidentiality, Integrity, Label, Mark};
use longrein_core::task::ToolBody;
use longrein_ports::GateCall;

use crate::files::Places;
use crate::modes::Nature;
use crate::path;
use crate::{EFFECTS_MAX, Effect, EffectKind, Policy};

const UNTRUSTED: Label = Label { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Public };
const SECRET: Label = Label { integrity: Integrity::Workspace, confidentiality: Confidentiality::Secret };

impl Policy {
    /// What the result of this call brings: only what taints, one mark a source.
    pub(crate) fn brings(
        &self,
        nature: Nature<'_>,
        call: &GateCall<'_>,
        effects: &[Effect],
        server: Option<&str>,
        places: &Places<'_>,
    ) -> Vec<Mark> {
        let ledger = self.surroundings.ledger.as_ref();
        let mut marks: Vec<Mark> = Vec::new();
        let untrusted = |source: &str| Mark { label: UNTRUSTED, source: source.to_owned() };
        // what a server brings has the server as its source
        if call.tool.declared.untrusted && server.is_none() {
            marks.push(untrusted(call.tool.name.as_str()));
        }
        marks.extend(server.map(untrusted));
        match nature {
            Nature::OfTheRun => return Vec::new(),
            Nature::Declared(tool) => match (&tool.body, &tool.reads) {
                (_, Some(reads)) => {
                    for read in reads {
                        let read = path::absolute(call.workspace, read);
                        // the operator lets this tool read it: that is the one way a secret comes in unredacted
                        if path::is_secret(&read) {
                            marks.push(Mark { label: SECRET, source: read.clone() });
                        }
                        marks.extend(ledger.file(&read));
                        marks.extend(ledger.below(&read));
                    }
                }
                (ToolBody::Command(_), None) => marks.extend(ledger.below(call.workspace)),
                (ToolBody::Mcp(_), _) | (ToolBody::Host(_) | ToolBody::Builtin(_), None) => {}
            },
            Nature::ReadsFiles | Nature::WritesFiles | Nature::Shell | Nature::Fetch | Nature::Mcp => {}
        }
        let is_shell = matches!(nature, Nature::Shell);
        // what is not listed may be anything
        if is_shell && effects.len() >= EFFECTS_MAX {
            marks.push(untrusted("a command that does more than can be looked at"));
        }
        for Effect { kind, what } in effects {
            match kind {
                EffectKind::Network => marks.push(untrusted(what)),
                EffectKind::Unknown if is_shell => marks.extend(ledger.below(call.workspace)),
                EffectKind::Read => {
                    marks.extend(ledger.file(what));
                    marks.extend(ledger.below(what));
                    marks.extend(place_of(what, places).map(|source| untrusted(&source)));
                }
                // the observation of an edit shows what stood around it
                EffectKind::Write if matches!(nature, Nature::WritesFiles) => marks.extend(ledger.file(what)),
                // what a tainted run committed comes back out of the history, under no file's name
                EffectKind::Run if is_shell && runs_git(what) => marks.extend(ledger.below(call.workspace)),
                EffectKind::Write | EffectKind::Delete | EffectKind::Run | EffectKind::Unknown => {}
            }
        }
        for mark in &mut marks {
            if mark.label.integrity == Integrity::Untrusted && ledger.endorses(&mark.source) {
                mark.label.integrity = Integrity::Workspace;
            }
        }
        joined(marks.into_iter().filter(|mark| mark.label.is_tainted()))
    }
}

fn runs_git(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    program.rsplit('/').next() == Some("git")
}

/// The folder of strangers a file lies in. None: it belongs to the workspace or the system.
fn place_of(file: &str, places: &Places<'_>) -> Option<String> {
    let Some(inside) = places.inside(file) else {
        let of_the_system = SYSTEM.iter().any(|folder| path::within(folder, file).is_some());
        return (!of_the_system && !places.is_harmless(file)).then(|| file.to_owned());
    };
    let parts: Vec<&str> = inside.split('/').collect();
    let end = parts.iter().enumerate().find_map(|(at, part)| {
        let name = part.to_lowercase();
        let next = parts.get(at + 1).map(|next| next.to_lowercase());
        let vendored = VENDORED.contains(&name.as_str())
            || VENDORED_BELOW.iter().any(|(folder, below)| name == *folder && next.as_deref() == Some(below));
        vendored.then_some(at + 1 + usize::from(!VENDORED.contains(&name.as_str())))
    })?;
    let folder = file.get(..file.len() - inside.len())?;
    Some(format!("{folder}{}", parts.get(..end)?.join("/")))
}

/// One mark a source; those beyond the most that are told apart stand together under the last.
fn joined(marks: impl Iterator<Item = Mark>) -> Vec<Mark> {
    let mut told: Vec<Mark> = Vec::new();
    for mark in marks {
        match told.iter().position(|known| known.source == mark.source) {
            Some(at) => told[at].label = told[at].label.join(mark.label),
            None if told.len() < MARKS_MAX => told.push(mark),
            None => {
                if let Some(last) = told.last_mut() {
                    last.label = last.label.join(mark.label);
                    // no endorsement of one source lowers what stands for several
                    AND_MORE.clone_into(&mut last.source);
                }
            }
        }
    }
    told
}

const MARKS_MAX: usize = 8;
const AND_MORE: &str = "more sources than are told apart";
const SYSTEM: [&str; 8] = ["/usr/share", "/usr/include", "/usr/lib", "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/lib"];
/// Folders in which other people's code lies.
const VENDORED: [&str; 12] = [
    "node_modules",
    "bower_components",
    "jspm_packages",
    "vendor",
    "third_party",
    "third-party",
    "thirdparty",
    ".venv",
    "venv",
    "site-packages",
    "dist-packages",
    ".yarn",
];
const VENDORED_BELOW: [(&str, &str); 3] = [("target", "package"), (".cargo", "registry"), (".bundle", "gems")];
