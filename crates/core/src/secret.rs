//! Names under which people and tools keep passwords, tokens and private keys: one list for the gate, which denies reading
//! them, and for the walls, which mask them. Upper and lower case are the same: some file systems see no difference.
//!
//! It knows names alone. What holds secrets under another name is not known here.

/// How sure a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeps {
    /// Also the name of what holds none: fixtures of tests, public keys, templates, what tools have to read. Reading it on
    /// purpose is denied, and commands still find it.
    Perhaps,
    /// Nothing else is called that.
    Secrets,
}

/// What a file of this path keeps, by its name and the folders it lies in. None: nothing that is known.
pub fn file(path: &str) -> Option<Keeps> {
    let path = path.to_lowercase();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (name, folders) = parts.split_last()?;
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    if folders.contains(&".ssh") {
        return (!ends(&[".pub"]) && *name != "known_hosts").then_some(Keeps::Secrets);
    }
    if let Some(keeps) = folders.iter().filter_map(|folder| of_folder(folder)).max() {
        return Some(keeps);
    }
    if *name == ".env" || name.starts_with(".env.") || *name == ".envrc" {
        return (!ends(&PATTERNS)).then_some(Keeps::Secrets);
    }
    if let Some(rest) = KEYS.iter().find_map(|key| name.strip_prefix(key)) {
        let is_copy = || [".bak", ".old", ".key", ".pem"].iter().any(|end| rest.ends_with(end));
        return match rest {
            _ if ends(&[".pub"]) => None,
            // `id_rsa.rs` is about one
            rest if rest.contains('.') && !is_copy() => Some(Keeps::Perhaps),
            _ => Some(Keeps::Secrets),
        };
    }
    if NAMES.contains(name) || ends(&ENDINGS) || below_config(&path, &TAILS) {
        return Some(Keeps::Secrets);
    }
    (NAMES_PERHAPS.contains(name) || ends(&ENDINGS_PERHAPS) || below_config(&path, &TAILS_PERHAPS))
        .then_some(Keeps::Perhaps)
}

/// The same of a folder: everything in it counts.
pub fn folder(path: &str) -> Option<Keeps> {
    let path = path.to_lowercase();
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match name {
        ".ssh" => Some(Keeps::Secrets),
        name if below_config(&path, &FOLDER_TAILS) => Some(of_folder(name).unwrap_or(Keeps::Secrets)),
        name => of_folder(name),
    }
}

/// Whether a file of this path is one in which programs look up registries, and which may hold a token or none: what it
/// [holds](holds_token) decides. `.netrc` is not: there is nothing in it but credentials.
pub fn is_settings(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default().to_lowercase();
    matches!(name.as_str(), ".npmrc" | ".pypirc")
}

/// Whether settings of registries hold a credential. A reference to a variable (`${NPM_TOKEN}`) is none. What cannot be read
/// as text of moderate length is taken to hold one.
pub fn holds_token(settings: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(settings) else { return true };
    settings.len() > SETTINGS_MAX || text.lines().any(line_holds_token)
}

fn line_holds_token(line: &str) -> bool {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';', '[']) {
        return false;
    }
    // `https://user:password@host/`
    let in_address = line.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', ' ']).next().unwrap_or_default();
        authority.contains('@')
    });
    // a key of npm is an address: `//registry.example/:_authToken=…`
    let (name, value) = match line.starts_with("//") {
        true => (line, line.split_once("=${").map_or(line, |(at, _)| line.get(at.len() + 1..).unwrap_or_default())),
        false => line.split_once(['=', ':']).unwrap_or((line, "")),
    };
    let name = name.to_lowercase();
    let names_one = CREDENTIAL_KEYS.iter().any(|key| name.contains(key));
    let value = value.trim().trim_matches(['"', '\'']);
    let refers = value.starts_with("${") && value.ends_with('}') && value.matches('$').count() == 1;
    // a line that goes on may go on with one
    in_address || line.ends_with('\\') || (names_one && !matches!(value, "" | "true" | "false") && !refers)
}

/// Names of which a pattern of file names may mean one.
pub fn tails() -> impl Iterator<Item = &'static str> {
    TAILS.into_iter().chain(TAILS_PERHAPS).chain(FOLDER_TAILS).filter_map(|tail| tail.rsplit('/').next())
}

fn of_folder(name: &str) -> Option<Keeps> {
    match name {
        ".aws" | ".gnupg" | ".azure" | ".kube" | ".password-store" | ".terraform.d" => Some(Keeps::Secrets),
        "keyrings" | "keychains" | ".step" => Some(Keeps::Perhaps),
        _ => None,
    }
}

/// Whether a path ends as one of these, from a name on.
fn below_config(path: &str, tails: &[&str]) -> bool {
    tails.iter().any(|tail| path.strip_suffix(tail).is_some_and(|before| before.is_empty() || before.ends_with('/')))
}

/// Parts of names of settings that are credentials.
const CREDENTIAL_KEYS: [&str; 7] = ["auth", "token", "password", "passwd", "secret", "key", "cert"];
/// Settings are short.
const SETTINGS_MAX: usize = 64 * 1024;
/// Endings of files that show what one would look like.
const PATTERNS: [&str; 5] = [".example", ".sample", ".template", ".dist", ".defaults"];
const KEYS: [&str; 4] = ["id_rsa", "id_ed25519", "id_ecdsa", "id_dsa"];
const NAMES: [&str; 30] = [
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".htpasswd",
    ".vault-token",
    ".s3cfg",
    ".boto",
    ".dockercfg",
    "kubeconfig",
    "krb5.keytab",
    "credentials.json",
    "service-account.json",
    "service_account.json",
    ".bash_history",
    ".zsh_history",
    ".mysql_history",
    ".psql_history",
    ".python_history",
    ".node_repl_history",
    ".rediscli_history",
    ".sqlite_history",
    "key4.db",
    "logins.json",
    "login data",
    "cookies.sqlite",
    "master.passwd",
];
const ENDINGS: [&str; 3] = [".kdbx", ".ppk", ".kubeconfig"];
const TAILS: [&str; 10] = [
    ".config/gcloud/access_tokens.db",
    ".config/gcloud/credentials.db",
    ".config/gcloud/application_default_credentials.json",
    ".config/rclone/rclone.conf",
    ".config/doctl/config.yaml",
    ".docker/config.json",
    ".config/gh/hosts.yml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
];
const FOLDER_TAILS: [&str; 5] =
    [".config/gcloud", ".config/gcloud/legacy_credentials", ".config/op", ".config/hub", ".config/heroku"];

const NAMES_PERHAPS: [&str; 14] = [
    "opasswd",
    "terraform.tfstate",
    "cookies",
    "cookies.db",
    "web data",
    "shadow",
    "gshadow",
    "shadow-",
    "sudoers",
    "secrets.json",
    "secrets.yaml",
    "secrets.yml",
    "secrets.toml",
    "master.key",
];
const ENDINGS_PERHAPS: [&str; 6] = [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore"];
/// Git itself has to read it, and it may hold a password in an address.
const TAILS_PERHAPS: [&str; 1] = [".git/config"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_registries_are_secret_only_with_a_credential_in_them() {
        for settings in [
            "//registry.example/:_authToken=npm_abc",
            "_auth = dXNlcjpwdw==",
            "registry=https://me:pw@registry.example/",
            "registry=https://${X}@registry.example/",
            "[pypi]\nusername = me\npassword = x",
            "[pypi]\npassword: x",
            "//r.example/:_password=\"eA==\"",
            "x\\\npassword=y",
            "\u{ff}key=x",
        ] {
            assert!(holds_token(settings.as_bytes()), "{settings}");
        }
        assert!(holds_token(&[0xff]) && holds_token(&vec![b'x'; SETTINGS_MAX + 1]));
        for settings in [
            "",
            "registry=https://registry.example/\nsave-exact=true",
            "@scope:registry=https://registry.example/",
            "//registry.example/:_authToken=${NPM_TOKEN}",
            "; _auth=x\n# password=y",
            "[distutils]\nindex-servers =\n    pypi\n[pypi]\nrepository = https://pypi.example/legacy/",
            "always-auth=true\nengine-strict=true\nlegacy-peer-deps=true",
        ] {
            assert!(!holds_token(settings.as_bytes()), "{settings}");
        }
        assert!(is_settings("a/.NPMRC") && is_settings(".pypirc") && !is_settings(".netrc") && !is_settings("npmrc"));
    }

    #[test]
    fn names_are_known_wherever_they_lie_and_however_they_are_written() {
        for (path, keeps) in [
            ("/w/.env", Some(Keeps::Secrets)),
            ("a/.ENV.Local", Some(Keeps::Secrets)),
            (".env.example", None),
            (".NPMRC", Some(Keeps::Secrets)),
            ("x/.pypirc", Some(Keeps::Secrets)),
            ("x/KubeConfig", Some(Keeps::Secrets)),
            ("dev.kubeconfig", Some(Keeps::Secrets)),
            (".aws/config", Some(Keeps::Secrets)),
            ("deep/.Docker/config.json", Some(Keeps::Secrets)),
            ("my.docker/config.json", None),
            (".ssh/id_rsa.pub", None),
            ("id_ed25519_work", Some(Keeps::Secrets)),
            ("id_rsa.pub", None),
            ("src/id_rsa.rs", Some(Keeps::Perhaps)),
            ("cert.pem", Some(Keeps::Perhaps)),
            ("charts/secrets.yaml", Some(Keeps::Perhaps)),
            (".git/config", Some(Keeps::Perhaps)),
            ("src/main.rs", None),
        ] {
            assert_eq!(file(path), keeps, "{path}");
        }
        for (path, keeps) in
            [("a/.SSH", Some(Keeps::Secrets)), (".env", None), ("keyrings", Some(Keeps::Perhaps)), ("src", None)]
        {
            assert_eq!(folder(path), keeps, "{path}");
        }
    }
}
