//! A workspace on the real file system, and the policy that stands in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_policy::{Containment, File, Policy, Surroundings, World};
use longrein_ports::{GateCall, Ruled, Ruling};

/// The file system as it is.
pub(crate) struct RealFiles;

impl World for RealFiles {
    fn link(&self, path: &str) -> Option<String> {
        std::fs::read_link(path).ok()?.into_os_string().into_string().ok()
    }

    fn names(&self, folder: &str) -> Option<Vec<String>> {
        std::fs::read_dir(folder).ok()?.map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    fn file(&self, path: &str) -> File {
        match std::fs::read(path) {
            Ok(bytes) => File::Content(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => File::Missing,
            Err(_) if !Path::new(path).exists() => File::Missing,
            Err(_) => File::Unreadable,
        }
    }
}

/// A folder that goes when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longrein-policy-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder.canonicalize().expect("it is there"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn text(&self, inside: &str) -> String {
        self.0.join(inside).to_str().expect("a path that is text").trim_end_matches('/').to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn policy(home: &str) -> Policy {
    policy_allowing(home, &[])
}

pub(crate) fn policy_allowing(home: &str, rules: &[&str]) -> Policy {
    let surroundings = Surroundings {
        home: Some(home.to_owned()),
        world: Arc::new(RealFiles),
        fence: Arc::new(Containment::Writes),
        ..Surroundings::default()
    };
    let allow = rules.iter().map(|rule| (*rule).to_owned()).collect();
    Policy::read(&PolicyRules { allow, ..PolicyRules::default() }, std::iter::empty(), surroundings).expect("rules")
}

pub(crate) fn judge(policy: &Policy, command: &str, workspace: &str) -> Ruled {
    let tool = ToolSpec::new(ToolName::new("shell"), ToolBody::Builtin(Builtin::Shell), EffectClass::External);
    let args = Payload::of(&serde_json::json!({ "command": command })).expect("arguments");
    policy.judge(&GateCall {
        tool: &tool,
        args: &args,
        target: None,
        workspace,
        mode: Mode::Ask,
        taint: &Taint::default(),
        said: &[],
    })
}

pub(crate) fn is_allowed(judgement: &Ruled) -> bool {
    match judgement.ruling {
        Ruling::Allow { .. } => true,
        Ruling::Ask { .. } | Ruling::Deny { .. } => false,
    }
}
