//! Holds: which calls of one reply may run at the same time (`semantics.md` D11). Each call takes, in call order, a shared
//! hold on what it reads and an exclusive one on what it writes.

use crate::task::{Builtin, EffectClass, ToolBody, ToolSpec};

/// What a call keeps others from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    shared: Vec<Resource>,
    exclusive: Vec<Resource>,
}

/// A part of the workspace: its path components up to the first pattern. Empty: all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Resource(Vec<String>);

impl Resource {
    fn whole() -> Self {
        Self(Vec::new())
    }

    fn of_path(path: &str) -> Self {
        let Self(mut parts) = Self::of_name(path);
        let pattern = parts.iter().position(|part| part.contains(['*', '?', '[', '{']));
        parts.truncate(pattern.unwrap_or(parts.len()));
        Self(parts)
    }

    /// A path that means itself: patterns are for declarations.
    fn of_name(path: &str) -> Self {
        // Where a path goes up, nobody can tell from its text where it ends: it may be anywhere.
        if path.split('/').any(|part| part == "..") {
            return Self::whole();
        }
        let absolute = path.starts_with('/').then(|| "/".to_owned());
        let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        Self(absolute.into_iter().chain(parts.map(str::to_owned)).collect())
    }

    /// One lies within the other.
    fn overlaps(&self, other: &Resource) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine == theirs)
    }
}

impl Hold {
    /// What a call of this tool takes: what the tool declares, or the one `path` that a call of a built-in names.
    /// Undeclared means the whole workspace; for a declared external tool, nothing.
    pub fn of(tool: &ToolSpec, path: Option<&str>) -> Self {
        let named = || vec![path.map_or_else(Resource::whole, Resource::of_name)];
        match &tool.body {
            ToolBody::Builtin(builtin) => match builtin {
                Builtin::ReadFile | Builtin::ListFiles | Builtin::SearchFiles => {
                    Self { shared: named(), exclusive: Vec::new() }
                }
                Builtin::WriteFile | Builtin::EditFile => Self { shared: Vec::new(), exclusive: named() },
                Builtin::Shell => Self { shared: Vec::new(), exclusive: vec![Resource::whole()] },
                Builtin::Ask | Builtin::Recall | Builtin::Note | Builtin::WebFetch => {
                    Self { shared: Vec::new(), exclusive: Vec::new() }
                }
            },
            ToolBody::Command(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => Self::declared(tool),
        }
    }

    fn declared(tool: &ToolSpec) -> Self {
        let paths = |declared: &Option<Vec<String>>, otherwise: Vec<Resource>| match declared {
            Some(paths) => paths.iter().map(|path| Resource::of_path(path)).collect(),
            None => otherwise,
        };
        match tool.effect {
            EffectClass::Read => {
                Self { shared: paths(&tool.reads, vec![Resource::whole()]), exclusive: paths(&tool.writes, Vec::new()) }
            }
            EffectClass::Workspace => Self {
                shared: paths(&tool.reads, vec![Resource::whole()]),
                exclusive: paths(&tool.writes, vec![Resource::whole()]),
            },
            EffectClass::External => {
                Self { shared: paths(&tool.reads, Vec::new()), exclusive: paths(&tool.writes, Vec::new()) }
            }
        }
    }

    /// Whether the two may not be held at once.
    pub fn conflicts(&self, other: &Hold) -> bool {
        let hit = |exclusive: &[Resource], any: &[Resource]| {
            exclusive.iter().any(|mine| any.iter().any(|theirs| mine.overlaps(theirs)))
        };
        hit(&self.exclusive, &other.exclusive)
            || hit(&self.exclusive, &other.shared)
            || hit(&other.exclusive, &self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(shared: &[&str], exclusive: &[&str]) -> Hold {
        let paths = |paths: &[&str]| paths.iter().map(|path| Resource::of_path(path)).collect();
        Hold { shared: paths(shared), exclusive: paths(exclusive) }
    }

    #[test]
    fn a_writer_excludes_what_overlaps_and_nothing_else() {
        assert!(hold(&[], &["src"]).conflicts(&hold(&["src/a.rs"], &[])));
        assert!(hold(&[], &["src/**"]).conflicts(&hold(&["./src/a.rs"], &[])));
        assert!(hold(&[], &["."]).conflicts(&hold(&[], &["docs"])));
        assert!(!hold(&[], &["src/a.rs"]).conflicts(&hold(&["src/b.rs"], &["docs"])));
        assert!(hold(&[], &["./q/../x"]).conflicts(&hold(&["x/**"], &[])), "a path that goes up may be anywhere");
        assert!(!hold(&["src"], &[]).conflicts(&hold(&["src"], &[])), "readers share");
        assert!(!hold(&[], &[]).conflicts(&hold(&[], &["."])), "nothing held, nothing hindered");
        assert!(!hold(&[], &["srcs"]).conflicts(&hold(&["src"], &[])), "by component, not by prefix of the text");
    }
}
