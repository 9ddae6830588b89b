//! Modes: how much of what is asked about a mode answers, and how much of it the sandbox must hold for that.
//!
//! A mode answers questions of our own. It lifts no denial, no rule of the operator's, nothing that cannot be told, and
//! what a run has read ([`crate::escalate`]) is weighed after it.

use longrein_core::taint::Integrity;
use longrein_core::task::{EffectClass, Mode, ToolBody, ToolSpec};

use crate::files::Places;
use crate::verdict::{Doubt, Strictness, Verdict, own};
use crate::{EFFECTS_MAX, Effect, EffectKind};

/// How far the sandbox holds whatever a command does. Asked when needed; found out once.
pub trait Fence: Send + Sync {
    fn holds(&self) -> Containment;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Containment {
    /// Files outside the workspace cannot be written, and the network cannot be reached: tiers A and B.
    Writes,
    /// The network cannot be reached; files are not protected: tier C.
    Network,
    /// Tier D.
    #[default]
    Nothing,
    /// The operator says that everything around is isolated: tier E.
    Surroundings,
}

impl Containment {
    /// Whether a command can change nothing outside the workspace that matters.
    pub(crate) fn holds_writes(self) -> bool {
        match self {
            Containment::Writes | Containment::Surroundings => true,
            Containment::Network | Containment::Nothing => false,
        }
    }

    /// Whether a command that does not say so can still reach another machine.
    pub(crate) fn holds_network(self) -> bool {
        match self {
            Containment::Writes | Containment::Network => true,
            Containment::Nothing | Containment::Surroundings => false,
        }
    }
}

/// What has been found out already.
impl Fence for Containment {
    fn holds(&self) -> Containment {
        *self
    }
}

/// What kind of thing a call is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Nature<'a> {
    /// Reads and writes nothing but the run's own memory, or asks a person.
    OfTheRun,
    ReadsFiles,
    WritesFiles,
    Shell,
    Fetch,
    /// A tool of the task.
    Declared(&'a ToolSpec),
    /// A tool of a server of somebody else's.
    Mcp,
}

/// The verdict, as this mode and this sandbox leave it.
pub(crate) fn under(
    mode: Mode,
    nature: Nature<'_>,
    verdict: Verdict,
    effects: &[Effect],
    places: &Places<'_>,
    fence: &dyn Fence,
    read: Integrity,
) -> Verdict {
    if verdict.strictness == Strictness::Deny {
        return verdict;
    }
    let verdict = match mode {
        Mode::Plan => planned(nature, verdict, effects, places),
        // whatever is no read is not run in shadow: it is judged as it would be asked
        Mode::Ask | Mode::Shadow => verdict,
        Mode::AcceptEdits => match is_edit(nature, &verdict, fence) {
            true => Verdict::allow(own::ACCEPT_EDITS),
            false => verdict,
        },
        Mode::Auto => match is_edit(nature, &verdict, fence) || is_contained(nature, &verdict, effects, fence, read) {
            true => Verdict::allow(own::AUTO),
            false
                if read == Integrity::Untrusted && is_contained(nature, &verdict, effects, fence, Integrity::User) =>
            {
                let reason =
                    format!("{}, and the run has read text from outside: auto mode lifts it no more", verdict.reason);
                Verdict { reason, ..verdict }
            }
            false => verdict,
        },
    };
    ceiling(nature, verdict, fence)
}

/// Whether it does no more than write ordinary files of the workspace.
fn is_edit(nature: Nature<'_>, verdict: &Verdict, fence: &dyn Fence) -> bool {
    let only_edits = verdict.strictness == Strictness::Unless && verdict.doubts.are_within(&[Doubt::Edit]);
    match nature {
        // our own code writes the file, and no other one; without any sandbox everything is asked
        Nature::WritesFiles => only_edits && fence.holds() != Containment::Nothing,
        Nature::Shell => only_edits && fence.holds().holds_writes(),
        Nature::OfTheRun | Nature::ReadsFiles | Nature::Fetch | Nature::Declared(_) | Nature::Mcp => false,
    }
}

/// Whether the sandbox holds whatever it may do.
fn is_contained(nature: Nature<'_>, verdict: &Verdict, effects: &[Effect], fence: &dyn Fence, read: Integrity) -> bool {
    // no sandbox keeps a program of the workspace from a file that others obey; whoever wrote what the run has read may
    // mean just that, and the operator has not said that they know the program
    let of_a_stranger = matches!(nature, Nature::Shell) && read == Integrity::Untrusted;
    let doubts: &[Doubt] = match of_a_stranger {
        true => &[Doubt::Edit, Doubt::Removal, Doubt::Kept],
        false => &[Doubt::Edit, Doubt::Removal, Doubt::Kept, Doubt::Unproven, Doubt::Unseen],
    };
    let may_be_lifted =
        matches!(verdict.strictness, Strictness::Unless | Strictness::UnlessSpelt) && verdict.doubts.are_within(doubts);
    let runs_confined = match nature {
        Nature::Shell => true,
        Nature::Declared(tool) => match (&tool.body, tool.effect) {
            (ToolBody::Command(_), EffectClass::Workspace) => tool.declared.network.is_empty(),
            (ToolBody::Command(_) | ToolBody::Host(_) | ToolBody::Mcp(_) | ToolBody::Builtin(_), _) => false,
        },
        Nature::OfTheRun | Nature::ReadsFiles | Nature::WritesFiles | Nature::Fetch | Nature::Mcp => false,
    };
    let stays_here = effects.len() < EFFECTS_MAX && effects.iter().all(|effect| effect.kind != EffectKind::Network);
    may_be_lifted && runs_confined && stays_here && fence.holds().holds_writes()
}

/// In plan mode nothing is changed, whoever allows it.
fn planned(nature: Nature<'_>, verdict: Verdict, effects: &[Effect], places: &Places<'_>) -> Verdict {
    let deny = |what: String| {
        let reason = format!(
            "plan mode: nothing is changed, and this {what}. Read what you need, and put what is to be done into the plan"
        );
        Verdict::new(Strictness::Deny, own::PLAN, reason)
    };
    match nature {
        Nature::OfTheRun | Nature::ReadsFiles | Nature::Fetch => verdict,
        Nature::WritesFiles => deny("writes a file".to_owned()),
        Nature::Mcp => deny("may change something on a server of somebody else".to_owned()),
        Nature::Declared(tool) => match tool.effect {
            EffectClass::Read => verdict,
            EffectClass::Workspace => deny(format!("runs {}, which changes the workspace", tool.name)),
            EffectClass::External => deny(format!("runs {}, which changes the world", tool.name)),
        },
        Nature::Shell => {
            if effects.len() >= EFFECTS_MAX {
                return deny("does more than can be looked at".to_owned());
            }
            let changes = |effect: &&Effect| match effect.kind {
                EffectKind::Write | EffectKind::Delete => !places.is_harmless(&effect.what),
                EffectKind::Network | EffectKind::Unknown => true,
                EffectKind::Read | EffectKind::Run => false,
            };
            match effects.iter().find(changes) {
                Some(Effect { kind: EffectKind::Write, what }) => deny(format!("writes {what}")),
                Some(Effect { kind: EffectKind::Delete, what }) => deny(format!("removes {what}")),
                Some(Effect { kind: EffectKind::Network, what }) => deny(format!("reaches {what}")),
                Some(Effect { kind: EffectKind::Unknown | EffectKind::Read | EffectKind::Run, what }) => {
                    deny(format!("may change something: {what}"))
                }
                None if verdict.doubts.has(Doubt::Unseen) => deny(format!("may change something: {}", verdict.reason)),
                None => verdict,
            }
        }
    }
}

/// What is asked because nothing holds it. A rule of the operator's counts, a mode or a finding of ours does not.
fn ceiling(nature: Nature<'_>, verdict: Verdict, fence: &dyn Fence) -> Verdict {
    let ours = [own::READS_INSIDE, own::DEFAULT, own::NAMED, own::ACCEPT_EDITS, own::AUTO];
    if !verdict.is_allowed() || !ours.contains(&verdict.rule.as_str()) {
        return match nature {
            Nature::Shell => reasoned(verdict, fence),
            Nature::OfTheRun
            | Nature::ReadsFiles
            | Nature::WritesFiles
            | Nature::Fetch
            | Nature::Declared(_)
            | Nature::Mcp => verdict,
        };
    }
    let reason = match (nature, fence.holds()) {
        (Nature::Shell, Containment::Network) => "the sandbox here protects no files, so every command is asked about",
        (Nature::Shell | Nature::Fetch, Containment::Nothing) => {
            "there is no sandbox here, so everything but reading files is asked about"
        }
        (Nature::Shell, Containment::Writes | Containment::Surroundings)
        | (Nature::Fetch, Containment::Writes | Containment::Surroundings | Containment::Network)
        | (
            Nature::OfTheRun | Nature::ReadsFiles | Nature::WritesFiles | Nature::Declared(_) | Nature::Mcp,
            Containment::Writes | Containment::Surroundings | Containment::Network | Containment::Nothing,
        ) => return verdict,
    };
    Verdict::new(Strictness::Ask, own::FENCE, reason)
}

/// A command is taken for a change of the workspace where the sandbox keeps it there, else for one of the world.
fn reasoned(verdict: Verdict, fence: &dyn Fence) -> Verdict {
    let unknown = [Doubt::Unproven, Doubt::Kept, Doubt::Unseen].iter().any(|doubt| verdict.doubts.has(*doubt));
    if !unknown || verdict.is_allowed() || verdict.strictness == Strictness::Deny || fence.holds().holds_writes() {
        return verdict;
    }
    let reason = format!("{}, and no sandbox keeps what it does to the workspace", verdict.reason);
    Verdict { reason, ..verdict }
}
