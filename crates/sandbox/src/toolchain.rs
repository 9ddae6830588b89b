//! Which folders the tool chains need that a command's environment names.
//!
//! Programs on `PATH` are often only doors: the compiler of `~/.cargo/bin` lies in `~/.rustup`, the interpreter of
//! `~/.pyenv/shims` in `~/.pyenv/versions`. What is granted here is granted for reading, and what holds credentials is named
//! in [`CREDENTIALS`] and taken out again.

use std::path::{Path, PathBuf};

/// Variables that name the home of a tool chain.
const HOMES: [&str; 16] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOROOT",
    "GOPATH",
    "GOMODCACHE",
    "JAVA_HOME",
    "NVM_DIR",
    "NODE_PATH",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "GEM_HOME",
    "DOTNET_ROOT",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Below the home folder, beside a door of the first name.
const BEHIND: [(&str, &[&str]); 3] = [
    (".cargo", &[".rustup"]),
    (
        ".local",
        &[".local/bin", ".local/lib", ".local/share/uv", ".local/share/pipx", ".local/share/mise", ".local/share/pnpm"],
    ),
    (".volta", &[".volta"]),
];

/// Who the user is to git: without it no commit.
const ALWAYS: [&str; 3] = [".gitconfig", ".config/git/config", ".config/git/ignore"];

/// Below the home folder: keys, tokens and passwords, wherever they would otherwise be visible.
pub(crate) const CREDENTIALS: [&str; 33] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".password-store",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/gcloud",
    ".config/pip",
    ".pip",
    ".docker",
    ".config/containers",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".pgpass",
    ".my.cnf",
    ".terraform.d",
    ".vault-token",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".local/share/keyrings",
];

/// Names of bins: what they belong to is one folder up.
const BINS: [&str; 3] = ["bin", "sbin", "shims"];

/// The folders and files that programs started with `env` need to read outside the system's own folders.
pub(crate) fn needed(env: &[(String, String)]) -> Vec<PathBuf> {
    let value = |wanted: &str| {
        env.iter()
            .rev()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    };
    let home = value("HOME").map(Path::new).filter(|home| home.is_absolute() && *home != Path::new("/"));
    let mut needed = Vec::new();
    for folder in value("PATH").unwrap_or_default().split(':').map(Path::new).filter(|folder| folder.is_absolute()) {
        match home.and_then(|home| Some((home, folder.strip_prefix(home).ok()?))) {
            Some((home, below)) => below_home(home, below, &mut needed),
            None => needed.push(installation(folder)),
        }
    }
    for name in HOMES {
        for path in value(name).unwrap_or_default().split(':').map(Path::new) {
            if path.is_absolute() && path != Path::new("/") && Some(path) != home {
                needed.push(path.to_owned());
            }
        }
    }
    needed.extend(home.into_iter().flat_map(|home| ALWAYS.map(|path| home.join(path))));
    needed
}

/// Whether a variable of this name says which folders are needed, or where credentials lie.
pub(crate) fn names_folders(name: &str) -> bool {
    matches!(name, "HOME" | "PATH") || HOMES.contains(&name)
}

/// What a folder of `PATH` below the home folder is the door to.
fn below_home(home: &Path, below: &Path, needed: &mut Vec<PathBuf>) {
    let Some(first) = below.components().next() else { return };
    let first = Path::new(first.as_os_str());
    let behind = BEHIND.iter().find(|(door, _)| Path::new(door) == first);
    needed.extend(behind.into_iter().flat_map(|(_, paths)| paths.iter().map(|path| home.join(path))));
    let is_hidden = first.as_os_str().as_encoded_bytes().starts_with(b".");
    let is_shared = [".local", ".config"].iter().any(|shared| Path::new(shared) == first);
    let whole = installation(&home.join(below));
    needed.push(if is_hidden && !is_shared {
        home.join(first)
    } else if whole == home || (is_shared && whole == home.join(first)) {
        home.join(below)
    } else {
        whole
    });
}

/// The folder that a folder of programs belongs to.
fn installation(folder: &Path) -> PathBuf {
    let is_bin = folder.file_name().is_some_and(|name| BINS.iter().any(|bin| *bin == name));
    let whole = folder.parent().filter(|parent| is_bin && parent.parent().is_some());
    whole.unwrap_or(folder).to_owned()
}

/// What of the tool chains' homes and the home folder must not be seen.
pub(crate) fn credentials(env: &[(String, String)]) -> Vec<PathBuf> {
    let named = |wanted: &'static str| {
        env.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| PathBuf::from(value))
    };
    let of_home = named("HOME").flat_map(|home| CREDENTIALS.map(|path| home.join(path)));
    let of_cargo = named("CARGO_HOME").flat_map(|home| ["credentials", "credentials.toml"].map(|path| home.join(path)));
    of_home.chain(of_cargo).filter(|path| path.is_absolute()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_lead_to_what_is_behind() {
        let check = |path: &str, expected: &[&str]| {
            let env = [("HOME".to_owned(), "/home/me".to_owned()), ("PATH".to_owned(), path.to_owned())];
            let always = ALWAYS.map(|path| Path::new("/home/me").join(path));
            let found: Vec<PathBuf> = needed(&env).into_iter().filter(|path| !always.contains(path)).collect();
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{path}");
        };
        check("/home/me/.cargo/bin", &["/home/me/.rustup", "/home/me/.cargo"]);
        check("/home/me/.pyenv/shims", &["/home/me/.pyenv"]);
        check("/home/me/.nvm/versions/node/v22/bin", &["/home/me/.nvm"]);
        check("/home/me/miniconda3/bin", &["/home/me/miniconda3"]);
        check("/home/me/bin", &["/home/me/bin"]);
        check("/home/me/proj/tools", &["/home/me/proj/tools"]);
        check("/home/me", &[]);
        check("bin:.:", &[]);
        check("/srv/go/bin:/bin", &["/srv/go", "/bin"]);
        let local = ["bin", "lib", "share/uv", "share/pipx", "share/mise", "share/pnpm", "bin"];
        let local = local.map(|path| format!("/home/me/.local/{path}"));
        check("/home/me/.local/bin", &local.each_ref().map(String::as_str));
    }
}
