//! What of an allowed call the walls have to let through: what lies beyond what every command is given.
//!
//! Only the shell asks in its calls for what the sandbox does not give anyway; a declared tool names what it needs where it
//! is declared.

use longrein_core::task::{Builtin, ToolBody};
use longrein_ports::GateCall;

use crate::path;
use crate::{Effect, EffectKind, Policy};

impl Policy {
    /// What of a call's effects lies beyond the workspace, or is guarded in it, as far as a command's words say so.
    pub(crate) fn beyond(&self, call: &GateCall<'_>, effects: &[Effect]) -> Vec<Effect> {
        if call.tool.body != ToolBody::Builtin(Builtin::Shell) {
            return Vec::new();
        }
        let is_given = |file: &str| {
            let inside = path::within(call.workspace, file);
            inside.is_some_and(|inside| self.obeyed_as(call.workspace, inside).is_none())
        };
        granted(call.workspace, effects, is_given)
    }
}

/// `is_given`: what may be written without being granted.
fn granted(workspace: &str, effects: &[Effect], is_given: impl Fn(&str) -> bool) -> Vec<Effect> {
    // What one program was allowed, another one in the same line must not get along with it.
    let programs = effects.iter().filter(|effect| effect.kind == EffectKind::Run && !is_filter(&effect.what));
    let is_one = programs.count() <= 1;
    let lies_beyond = |effect: &Effect| match effect.kind {
        EffectKind::Network => is_one,
        EffectKind::Write | EffectKind::Delete => is_one && !is_given(&effect.what),
        EffectKind::Read => path::within(workspace, &effect.what).is_none(),
        EffectKind::Run | EffectKind::Unknown => false,
    };
    // a name is removed by writing the folder around it: what else runs there decides whether that can be granted
    let removes = effects.iter().any(|effect| effect.kind == EffectKind::Delete && lies_beyond(effect));
    let matters = |effect: &&Effect| {
        lies_beyond(effect) || removes && matches!(effect.kind, EffectKind::Run | EffectKind::Unknown)
    };
    effects.iter().filter(matters).cloned().collect()
}

/// Whether a command only passes on what it is given, or belongs to the shell itself.
fn is_filter(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    FILTERS.contains(&program)
}

/// Programs that run no other and reach nobody, whatever their arguments.
const FILTERS: [&str; 28] = [
    "cat", "cd", "column", "cut", "echo", "egrep", "export", "false", "fgrep", "fold", "grep", "head", "jq", "ls",
    "nl", "printf", "pwd", "rev", "sort", "tac", "tail", "test", "tr", "true", "uniq", "wc", "[", ":",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(kind: EffectKind, what: &str) -> Effect {
        Effect { kind, what: what.to_owned() }
    }

    fn beyond(effects: &[Effect]) -> Vec<Effect> {
        granted("/w", effects, |file| path::within("/w", file).is_some_and(|inside| inside != "hooks/x"))
    }

    #[test]
    fn law_8_what_one_program_was_allowed_another_does_not_get() {
        let beyond = |programs: &[&str]| {
            let mut effects: Vec<_> = programs.iter().map(|program| effect(EffectKind::Run, program)).collect();
            effects.push(effect(EffectKind::Network, "h.example"));
            effects.push(effect(EffectKind::Write, "/srv/a"));
            effects.push(effect(EffectKind::Write, "/w/a"));
            effects.push(effect(EffectKind::Write, "/wall"));
            effects.push(effect(EffectKind::Read, "/srv/b"));
            effects.push(effect(EffectKind::Write, "/w/hooks/x"));
            let found = beyond(&effects).into_iter().map(|effect| effect.what);
            found.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(beyond(&["curl https://h.example/"]), "h.example /srv/a /wall /srv/b /w/hooks/x");
        assert_eq!(beyond(&["cd x", "curl https://h.example/", "head -5"]), "h.example /srv/a /wall /srv/b /w/hooks/x");
        assert_eq!(beyond(&["curl https://h.example/", "make all"]), "/srv/b");
        assert_eq!(beyond(&["curl https://h.example/", "./head"]), "/srv/b");
    }

    /// Whether the folder around a name can be granted depends on all that runs beside the removal.
    #[test]
    fn a_removal_beyond_comes_with_all_that_runs() {
        let runs = [effect(EffectKind::Run, "rm x"), effect(EffectKind::Unknown, "a script")];
        let inside = effect(EffectKind::Delete, "/w/x");
        let beyond = |more: Effect| beyond(&[&runs[..], &[inside.clone(), more]].concat());
        let removed = effect(EffectKind::Delete, "/elsewhere/x");
        assert_eq!(beyond(removed.clone()), [&runs[..], &[removed]].concat());
        let written = effect(EffectKind::Write, "/elsewhere/x");
        assert_eq!(beyond(written.clone()), [written]);
    }
}
