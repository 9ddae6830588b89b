//! What reading, writing or removing one path deserves, whoever does it: a file tool or a command.

use longrein_core::ids::ToolName;
use longrein_core::task::Builtin;

use crate::path::{self, Case};
use crate::rule::{Matches, Rule};
use crate::shell::table::{Purpose, shown};
use crate::verdict::{Doubt, Strictness, Verdict, own};
use crate::{Effect, EffectKind, Policy};

/// Who touches the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Tool(Builtin),
    /// A command, to which rules of file tools apply as far as they name paths.
    Command,
}

/// One path in the hands of one call.
pub(crate) struct Touch<'a> {
    pub(crate) by: By,
    pub(crate) purpose: Purpose,
    /// As written, without shell quotes.
    pub(crate) path: &'a str,
    /// Where the kernel arrives, absolute, if whoever runs the call has found out.
    pub(crate) resolved: Option<&'a str>,
    /// The folder it is relative to, absolute.
    pub(crate) folder: &'a str,
    pub(crate) workspace: &'a str,
}

impl Policy {
    pub(crate) fn touch(&self, touch: &Touch<'_>, effects: &mut Vec<Effect>) -> Verdict {
        let Touch { by, purpose, path, folder, .. } = *touch;
        let at_home;
        let path = match path.strip_prefix('~') {
            // no file tool expands it, but whoever wrote it meant the home folder
            Some(rest) if by != By::Command && (rest.is_empty() || rest.starts_with('/')) => {
                at_home = format!("{}{rest}", self.surroundings.home());
                &at_home
            }
            Some(_) | None => path,
        };
        let written = path::absolute(folder, path);
        let resolved = match touch.resolved {
            Some(resolved) => Some(path::absolute(touch.workspace, resolved)),
            None => path::resolve(self.surroundings.world.as_ref(), folder, path),
        };
        let kind = match purpose {
            Purpose::List | Purpose::Read | Purpose::ReadBelow => EffectKind::Read,
            Purpose::Write => EffectKind::Write,
            Purpose::Delete => EffectKind::Delete,
        };
        Effect::add(effects, kind, resolved.as_deref().unwrap_or(&written));
        if path.contains("://") && by != By::Command {
            let reason = format!("{} is an address, not a path", shown(path));
            return Verdict::new(Strictness::Ask, own::UNREADABLE, reason).and(self.place(touch, &written));
        }
        let verdict = self.place(touch, &written);
        // the workspace may itself be reached through a link
        let resolved = resolved.map(|resolved| {
            let real = path::resolve(self.surroundings.world.as_ref(), "/", touch.workspace);
            match real.as_deref().and_then(|real| path::within(real, &resolved)) {
                Some(inside) => path::absolute(touch.workspace, inside),
                None => resolved,
            }
        });
        match resolved {
            Some(resolved) if resolved == written => verdict,
            Some(resolved) => verdict.and(self.place(touch, &resolved)),
            None => {
                let reason = format!("{} goes through too many links", shown(path));
                verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason))
            }
        }
    }

    /// One absolute path, without links.
    fn place(&self, touch: &Touch<'_>, path: &str) -> Verdict {
        let inside = path::within(touch.workspace, path);
        let name = shown(inside.filter(|inside| !inside.is_empty()).unwrap_or(path));
        let floor = self.floor(touch, path, inside, &name);
        if floor.as_ref().is_some_and(|floor| floor.strictness == Strictness::Deny) {
            return floor.unwrap_or_else(|| Verdict::allow(own::DEFAULT));
        }
        if let Some(rule) = self.deny.iter().find(|rule| forbids(rule, touch, path, inside)) {
            return Verdict::new(Strictness::Deny, &rule.text, format!("the rule \"{}\" denies {name}", rule.text));
        }
        if let Some(rule) = self.ask.iter().find(|rule| forbids(rule, touch, path, inside)) {
            let reason = format!("the rule \"{}\" has {name} asked first", rule.text);
            return Verdict::new(Strictness::Ask, &rule.text, reason);
        }
        if let Some(rule) = self.deny.iter().chain(&self.ask).find(|rule| forbids_below(rule, touch, path, inside)) {
            let reason = format!("{name} contains what the rule \"{}\" is about; name a narrower folder", rule.text);
            return Verdict::new(Strictness::Ask, &rule.text, reason);
        }
        let covered = self.allow.iter().find(|rule| covers(rule, touch, path, inside));
        if let Some(rule) = covered {
            return Verdict::allow(&rule.text);
        }
        if let Some(floor) = floor {
            return floor;
        }
        let reads = matches!(touch.purpose, Purpose::List | Purpose::Read | Purpose::ReadBelow);
        match inside {
            None if path::HARMLESS_DEVICES.contains(&path) => Verdict::allow(own::READS_INSIDE),
            None => {
                let reason = format!("{name} lies outside the workspace");
                Verdict::new(Strictness::UnlessSpelt, own::OUTSIDE, reason)
            }
            Some(_) if reads => Verdict::allow(own::READS_INSIDE),
            Some(_) if path::is_secret(path) => {
                Verdict::new(Strictness::UnlessSpelt, own::SECRET, format!("{name} usually holds secrets"))
            }
            Some(inside) if path::is_run_later(inside) => {
                let reason = format!("{name} is run or obeyed later by other programs");
                Verdict::new(Strictness::UnlessSpelt, own::RUN_LATER, reason)
            }
            Some(inside) => {
                if let Some(why) = self.obeyed_as(touch.workspace, inside) {
                    return Verdict::new(Strictness::UnlessSpelt, own::RUN_LATER, format!("{name}: {why}"));
                }
                if let Some(rule) = self.allow.iter().find(|rule| is_bare(rule, touch.by)) {
                    return Verdict::allow(&rule.text);
                }
                let (doubt, does) = match touch.purpose {
                    Purpose::Delete => (Doubt::Removal, "removes"),
                    Purpose::List | Purpose::Read | Purpose::ReadBelow | Purpose::Write => (Doubt::Edit, "writes"),
                };
                Verdict::unless(doubt, format!("it {does} {name} and no rule allows it"))
            }
        }
    }

    /// What no rule lifts, or only one that names the path.
    fn floor(&self, touch: &Touch<'_>, path: &str, inside: Option<&str>, name: &str) -> Option<Verdict> {
        let deny = |rule: &str, reason: String| Some(Verdict::new(Strictness::Deny, rule, reason));
        let begins = |own: &String| path.strip_prefix(own.as_str()).is_some_and(|rest| !rest.starts_with(is_name));
        if self.surroundings.own.iter().any(begins) {
            return deny(own::OWN_FILES, format!("{name} is Longrein's own, and no run may reach it"));
        }
        if touch.purpose == Purpose::Delete && self.is_root(path, touch.workspace) {
            return deny(own::DESTRUCTION, format!("it would remove all of {name}"));
        }
        let above_own = |own: &String| path::within(path, own).is_some();
        let changes = matches!(touch.purpose, Purpose::Write | Purpose::Delete);
        let below = matches!(touch.purpose, Purpose::ReadBelow | Purpose::Delete);
        if below && self.surroundings.own.iter().any(above_own) {
            return deny(own::OWN_FILES, format!("{name} contains Longrein's own files, and no run may reach them"));
        }
        let reads = matches!(touch.purpose, Purpose::Read | Purpose::ReadBelow);
        if reads && path::is_secret(path) && !self.is_settings_without_a_token(path) {
            return deny(own::SECRET, format!("{name} usually holds secrets"));
        }
        if !changes {
            return None;
        }
        if inside.is_some_and(path::is_protected) || (inside.is_none() && path::is_protected(path)) {
            return deny(
                own::PROTECTED,
                format!("{name} belongs to git or guards the run, and only git or a person changes it"),
            );
        }
        if inside.is_none() && path::is_critical(path) && !path::HARMLESS_DEVICES.contains(&path) {
            return deny(own::PROTECTED, format!("{name} is part of the system or starts programs"));
        }
        None
    }

    /// Settings of registries in which no credential stands are like any other file. What cannot be looked at is not.
    fn is_settings_without_a_token(&self, path: &str) -> bool {
        longrein_core::secret::is_settings(path)
            && self.surroundings.world.link(path).is_none()
            && match self.surroundings.world.file(path) {
                path::File::Content(settings) => !longrein_core::secret::holds_token(&settings),
                path::File::Missing | path::File::Unreadable => false,
            }
    }

    /// Whether losing everything in this folder is never meant: the workspace or above it, a home, a part of the system.
    pub(crate) fn is_root(&self, path: &str, workspace: &str) -> bool {
        let home = self.surroundings.home();
        let depth = path.split('/').filter(|part| !part.is_empty()).count();
        path::within(path, workspace).is_some()
            || path::within(path, home).is_some()
            || (depth <= 1 && path != "/tmp")
            || (depth == 2 && (path.starts_with("/home/") || path.starts_with("/usr/") || path.starts_with("/Users/")))
    }
}

/// Whether a name goes on with this letter: `/x/store` is no part of `/x/storeroom`, but of `/x/store.db-wal` it is.
fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Whether a deny or ask rule binds this touch.
fn forbids(rule: &Rule, touch: &Touch<'_>, path: &str, inside: Option<&str>) -> bool {
    let Matches::Paths(tool, pattern) = &rule.matches else { return false };
    if !speaks_of(*tool, touch) {
        return false;
    }
    let below = touch.purpose == Purpose::Delete;
    let place = if pattern.is_absolute { Some(path) } else { inside };
    // a relative pattern lies below whatever contains the workspace
    let contains = pattern.is_absolute || inside.is_some() || path::within(path, touch.workspace).is_none();
    match place {
        Some(place) => pattern.covers(place, Case::Ignored) || (below && pattern.reaches_below(place, Case::Ignored)),
        None => below && !contains,
    }
}

/// Whether a rule is about files below a folder that is read as a whole.
fn forbids_below(rule: &Rule, touch: &Touch<'_>, path: &str, inside: Option<&str>) -> bool {
    let Matches::Paths(tool, pattern) = &rule.matches else { return false };
    let place = if pattern.is_absolute { Some(path) } else { inside };
    touch.purpose == Purpose::ReadBelow
        && speaks_of(*tool, touch)
        && place.is_some_and(|place| pattern.reaches_below(place, Case::Ignored))
}

/// Whether an allow rule names this path.
fn covers(rule: &Rule, touch: &Touch<'_>, path: &str, inside: Option<&str>) -> bool {
    let Matches::Paths(tool, pattern) = &rule.matches else { return false };
    let place = if pattern.is_absolute { Some(path) } else { inside };
    // who may read a file may know of it
    let may_list = touch.purpose == Purpose::List && *tool == Builtin::ReadFile;
    (may_list || speaks_of(*tool, touch)) && place.is_some_and(|place| pattern.covers(place, Case::Matters))
}

/// Whether a path rule of this tool is about this touch. `read_file(…)` and `write_file(…)` bind every reader and writer.
fn speaks_of(tool: Builtin, touch: &Touch<'_>) -> bool {
    let bound = match touch.purpose {
        Purpose::Write | Purpose::Delete => Builtin::WriteFile,
        Purpose::Read | Purpose::ReadBelow => Builtin::ReadFile,
        Purpose::List => Builtin::ListFiles,
    };
    tool == bound || touch.by == By::Tool(tool)
}

/// Whether an allow rule covers every path of the workspace.
fn is_bare(rule: &Rule, by: By) -> bool {
    match (&rule.matches, by) {
        (Matches::EveryTool, By::Tool(_)) => true,
        (Matches::Tool(name), By::Tool(tool)) => *name == ToolName::new(tool.as_str()),
        (Matches::EveryTool | Matches::Tool(_) | Matches::Paths(..) | Matches::Hosts(_) | Matches::Commands(_), _) => {
            false
        }
    }
}

/// Where things lie, for what is weighed after the verdict: the effects of a call say where the kernel arrives.
pub(crate) struct Places<'a> {
    policy: &'a Policy,
    workspace: &'a str,
    /// The workspace without links.
    real: Option<String>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(policy: &'a Policy, workspace: &'a str) -> Self {
        let real = path::resolve(policy.surroundings.world.as_ref(), "/", workspace);
        Self { policy, workspace, real: real.filter(|real| real != workspace) }
    }

    /// A path relative to the workspace, if it lies inside.
    pub(crate) fn inside<'p>(&self, path: &'p str) -> Option<&'p str> {
        let real = || path::within(self.real.as_deref()?, path);
        path::within(self.workspace, path).or_else(real)
    }

    /// Whether something is run or obeyed because it stands there, now or later.
    pub(crate) fn is_obeyed(&self, path: &str) -> bool {
        match self.inside(path) {
            Some(inside) => {
                path::is_run_later(inside)
                    || path::is_protected(inside)
                    || self.policy.obeyed_as(self.workspace, inside).is_some()
            }
            None => !self.is_harmless(path) && (path::is_critical(path) || path::is_run_later(path)),
        }
    }

    /// Whether writing there leaves nothing behind.
    pub(crate) fn is_harmless(&self, path: &str) -> bool {
        path::HARMLESS_DEVICES.contains(&path) || path.starts_with("/dev/fd/")
    }
}
