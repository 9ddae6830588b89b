//! Which machines a command reaches, as far as its words say so.

use super::word::Word;

/// Hosts, or the command as it is shown where it reaches some machine that its words do not name. Empty: it is not known to
/// reach any.
pub(super) fn reached(base: &str, words: &[Word], shown: impl Fn() -> String) -> Vec<String> {
    let args: Vec<&str> = words.iter().skip(1).map(|word| word.text.as_str()).collect();
    let operands = || args.iter().copied().filter(|arg| !arg.starts_with('-'));
    let named = |verbs: &[&str]| operands().any(|arg| verbs.contains(&arg));
    let reaches = match base {
        "curl" | "wget" | "http" | "https" | "xh" | "aria2c" | "lynx" | "w3m" | "links" | "nc" | "ncat" | "netcat"
        | "telnet" | "socat" | "ssh" | "scp" | "sftp" | "ftp" | "lftp" | "ping" | "ping6" | "dig" | "nslookup"
        | "host" | "drill" | "whois" | "traceroute" | "tracepath" | "mtr" | "nmap" | "mail" | "mailx" | "sendmail"
        | "mutt" | "rclone" | "aws" | "gcloud" | "gsutil" | "az" | "gh" | "glab" | "kubectl" | "helm" | "doctl"
        | "heroku" | "fly" | "flyctl" | "vercel" | "netlify" | "ngrok" | "uvx" | "pipx" | "bunx" | "websocat"
        | "grpcurl" | "brew" | "apt" | "apt-get" | "dnf" | "yum" | "apk" | "pacman" | "zypper" | "snap" | "flatpak"
        | "ssh-copy-id" | "mosh" | "svn" | "hg" => true,
        "npx" => !runs_what_is_there(&args),
        "rsync" => operands().any(|arg| arg.contains(':')),
        "git"
            if matches!(
                args.as_slice(),
                ["submodule", "status" | "summary"] | ["submodule", "status", "--recursive"]
            ) =>
        {
            false
        }
        "git" => {
            named(&["fetch", "pull", "push", "clone", "ls-remote", "submodule", "send-email", "request-pull"])
                || (named(&["remote"]) && named(&["update", "show", "prune"]))
        }
        "npm" | "pnpm" | "yarn" | "bun" => {
            args.is_empty()
                || named(&[
                    "install", "i", "ci", "add", "update", "upgrade", "publish", "dlx", "exec", "create", "init",
                    "audit", "view", "info", "search", "login", "outdated", "x",
                ])
        }
        "twine" => named(&["upload", "register"]),
        "pip" | "pip3" => named(&["install", "download", "search", "index", "wheel"]),
        "uv" | "poetry" | "pipenv" | "pdm" | "conda" | "mamba" => {
            named(&["add", "install", "sync", "lock", "update", "publish", "pip", "create", "tool"])
        }
        "cargo" => {
            named(&["publish", "install", "search", "login", "owner", "yank", "fetch", "add", "update"])
                && !args.contains(&"--offline")
        }
        "go" => named(&["get", "install", "mod"]),
        "gem" | "bundle" => named(&["install", "update", "push", "add", "fetch", "outdated"]),
        "composer" => named(&["install", "update", "require", "create-project"]),
        "mvn" | "gradle" | "gradlew" | "mvnw" | "sbt" => named(&["deploy", "publish", "release"]),
        "docker" | "podman" | "nerdctl" | "docker-compose" => {
            named(&["pull", "push", "build", "run", "login", "search", "compose", "up", "buildx", "create"])
        }
        "terraform" | "tofu" | "pulumi" | "cdk" => {
            named(&["init", "plan", "apply", "destroy", "up", "refresh", "import", "get"])
        }
        "openssl" => named(&["s_client", "s_server", "ocsp"]),
        "psql" | "mysql" | "mariadb" | "mongosh" | "mongo" | "redis-cli" | "pg_dump" | "mysqldump" | "cqlsh" => true,
        "python3" | "python" => args.windows(2).any(|two| matches!(two, ["-m", "http.server" | "pip" | "smtpd"])),
        _ => false,
    };
    if !reaches {
        return Vec::new();
    }
    // what follows the host is run there
    let most = if matches!(base, "ssh" | "mosh") { 1 } else { HOSTS_MAX };
    let hosts: Vec<String> = operands().filter_map(|arg| host(base, arg)).take(most).collect();
    if hosts.is_empty() { vec![shown()] } else { hosts }
}

/// Whether `npx` runs what the project has, and fetches nothing: it is told so, or it is a tool that projects bring along.
fn runs_what_is_there(args: &[&str]) -> bool {
    const OF_PROJECTS: [&str; 14] = [
        "tsc",
        "eslint",
        "prettier",
        "jest",
        "vitest",
        "mocha",
        "ava",
        "tsx",
        "ts-node",
        "webpack",
        "vite",
        "rollup",
        "stylelint",
        "playwright",
    ];
    match args {
        ["--no-install" | "--no", name, ..] => !name.starts_with('-'),
        [name, ..] => OF_PROJECTS.contains(name),
        [] => false,
    }
}

/// Why a command that no table allows is asked about: what it does, where that is known, else what the table says.
pub(super) fn why(base: &str, words: &[Word], is_writer: bool, otherwise: String) -> String {
    match reached(base, words, || base.to_owned()).first() {
        Some(host) if host == base => format!("{base} reaches another machine"),
        Some(host) => format!("{base} reaches another machine: {host}"),
        None if is_writer => format!("{base} changes files"),
        None => otherwise,
    }
}

/// The machine that a word names: `https://HOST:PORT/…`, `user@HOST:…`, and the bare words of some commands.
fn host(base: &str, word: &str) -> Option<String> {
    if let Some((_, rest)) = word.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        return (!host.is_empty()).then(|| host.to_lowercase());
    }
    let bare = matches!(
        base,
        "ssh"
            | "ping"
            | "ping6"
            | "dig"
            | "nslookup"
            | "host"
            | "telnet"
            | "nc"
            | "ncat"
            | "netcat"
            | "whois"
            | "traceroute"
            | "mosh"
            | "sftp"
            | "ftp"
    );
    let copies = matches!(base, "scp" | "rsync" | "git" | "sftp");
    let looks_like_host = |text: &str| {
        text.contains('.')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']'))
    };
    match word.split_once('@').map_or(word, |(_, host)| host) {
        rest if copies && rest.contains(':') => {
            rest.split(':').next().filter(|host| !host.is_empty()).map(str::to_lowercase)
        }
        rest if bare && !rest.is_empty() && rest.parse::<u32>().is_err() => Some(rest.to_lowercase()),
        rest if matches!(base, "curl" | "wget" | "http" | "https" | "xh") => {
            let host = rest.split('/').next().unwrap_or_default();
            looks_like_host(host).then(|| host.to_lowercase())
        }
        _ => None,
    }
}

const HOSTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::word::Kind;

    #[test]
    fn machines_are_named_by_what_the_words_say() {
        for (line, hosts) in [
            ("curl -s https://Docs.rs/x?y", "docs.rs"),
            ("curl https://u:p@h.example:8443/x", "h.example:8443"),
            ("curl example.org/x", "example.org"),
            ("wget -qO- http://a.example http://b.example", "a.example b.example"),
            ("ssh -p 22 me@h.example ls", "h.example"),
            ("scp a me@h.example:b", "h.example"),
            ("rsync -a a b", ""),
            ("git clone https://example.org/r.git", "example.org"),
            ("git clone git@example.org:o/r.git", "example.org"),
            ("git push origin main", "git push origin main"),
            ("git status", ""),
            ("npm install left-pad", "npm install left-pad"),
            ("npm run build", ""),
            ("cargo fetch", "cargo fetch"),
            ("cargo fetch --offline", ""),
            // what it may have to fetch first, it is not run for
            ("cargo test", ""),
            ("cat x", ""),
        ] {
            let words: Vec<Word> =
                line.split(' ').map(|text| Word { text: text.to_owned(), kind: Kind::Literal }).collect();
            assert_eq!(reached(&words[0].text, &words, || line.to_owned()).join(" "), hosts, "{line}");
        }
    }
}
