//! Commands that print credentials without naming a file that holds them, and variables that do.

use super::{Call, Harm};

pub(super) fn harm(call: &Call<'_>) -> Option<Harm> {
    let any = |test: &dyn Fn(&str) -> bool| call.args.iter().any(|arg| test(arg));
    let tells = match call.base {
        "security" => any(&|arg| arg.starts_with("find-") || matches!(arg, "dump-keychain" | "export")),
        "gpg" | "gpg2" => any(&|arg| arg.starts_with("--export-secret") || arg == "--export-ownertrust"),
        "secret-tool" => call.names(&["lookup", "search"]),
        "keyctl" => call.names(&["read", "print", "pipe"]),
        "pass" | "gopass" => !matches!(call.first(), "" | "ls" | "list" | "find" | "version" | "help"),
        "op" => call.names(&["read", "get", "inject", "signin"]),
        "bw" | "lpass" | "dashlane" | "keepassxc-cli" | "chamber" | "doppler" | "infisical" => {
            call.names(&["get", "show", "export", "read", "secrets", "list", "download"])
        }
        "aws" => {
            (call.says(&["configure", "get"])
                && any(&|arg| arg.contains("secret") || arg.contains("token") || arg.contains("key")))
                || call.says(&["configure", "export-credentials"])
                || call.names(&[
                    "get-secret-value",
                    "get-session-token",
                    "get-login-password",
                    "get-authorization-token",
                ])
                || (call.names(&["get-parameter", "get-parameters", "get-parameters-by-path"])
                    && call.has(&["--with-decryption"]))
                || call.names(&["create-access-key", "get-federation-token", "assume-role"])
        }
        "gcloud" => {
            any(&|arg| matches!(arg, "print-access-token" | "print-identity-token"))
                || (call.names(&["secrets"]) && call.names(&["access"]))
        }
        "az" => {
            call.names(&["get-access-token"])
                || (call.names(&["secret"]) && call.names(&["show", "download"]))
                || (call.names(&["keys"]) && call.names(&["list"]))
        }
        "vault" => {
            call.names(&["read", "print"])
                || (call.names(&["kv"]) && call.names(&["get"]))
                || call.says(&["token", "lookup"])
        }
        "kubectl" | "oc" => {
            let secret =
                |arg: &str| arg.split(['/', ',']).any(|kind| matches!(kind, "secret" | "secrets" | "secrets.v1"));
            (call.names(&["get", "describe", "edit"]) && any(&secret) && prints(call))
                || call.says(&["create", "token"])
                || (call.says(&["config", "view"]) && call.has(&["--raw"]))
        }
        "gh" => {
            (call.says(&["auth", "token"])) || (call.says(&["auth", "status"]) && call.has(&["-t", "--show-token"]))
        }
        "glab" => {
            call.says(&["auth", "token"]) || (call.says(&["auth", "status"]) && call.has(&["-t", "--show-token"]))
        }
        "git" => call.says(&["credential", "fill"]) || any(&|arg| arg.starts_with("credential-") && !arg.contains('.')),
        "npm" | "pnpm" | "yarn" => {
            call.says(&["token", "create"])
                || ((call.names(&["config"]) || call.names(&["get"]))
                    && any(&|arg| arg.to_lowercase().contains("authtoken")))
        }
        "docker-credential-desktop"
        | "docker-credential-osxkeychain"
        | "docker-credential-secretservice"
        | "docker-credential-pass" => true,
        "heroku" => any(&|arg| matches!(arg, "auth:token" | "config" | "config:get")),
        "fly" | "flyctl" => call.says(&["auth", "token"]) || call.names(&["tokens"]),
        "printenv" => call.operands().iter().any(|name| is_secret_name(name)),
        "getent" => call.names(&["shadow", "gshadow"]),
        "unshadow" | "mimipenguin" | "hashdump" => true,
        "sops" => call.has(&["-d", "--decrypt"]) || call.names(&["decrypt"]),
        "ansible-vault" => call.names(&["view", "decrypt"]),
        "ssh-add" => call.has(&["-L"]),
        "ssh-keygen" => call.letter(&['y']) || call.letter(&['p']),
        "terraform" | "tofu" => call.says(&["output"]) && call.has(&["-json", "-raw"]) || call.says(&["state", "pull"]),
        "tcpdump" | "tshark" | "dumpcap" | "gcore" => true,
        _ => false,
    };
    tells.then(|| Harm::tells_secrets(format!("{} hands out credentials or what is private", call.base)))
}

/// Whether `kubectl get` prints more than names.
fn prints(call: &Call<'_>) -> bool {
    call.names(&["describe", "edit"])
        || call.args.iter().any(|arg| {
            let form = arg.strip_prefix("--output=").or_else(|| arg.strip_prefix("-o")).unwrap_or(arg);
            ["json", "yaml", "jsonpath", "go-template", "custom-columns", "template"]
                .iter()
                .any(|f| form.trim_start_matches('=').starts_with(f))
        })
}

/// Whether a variable of this name usually holds a credential.
pub(in crate::shell) fn is_secret_name(name: &str) -> bool {
    let name = name.to_uppercase();
    let parts: Vec<&str> =
        name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).collect();
    let said = |word: &str| parts.contains(&word);
    [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "APIKEY",
        "PGPASSWORD",
        "AUTHTOKEN",
    ]
    .iter()
    .any(|word| said(word))
        || (said("KEY")
            && ["API", "ACCESS", "PRIVATE", "SECRET", "SIGNING", "ENCRYPTION", "MASTER", "SSH", "DEPLOY"]
                .iter()
                .any(|word| said(word)))
        || name.ends_with("_PAT")
        || matches!(name.as_str(), "DATABASE_URL" | "REDIS_URL" | "MONGODB_URI")
}

/// Whether text expands a variable that usually holds a credential.
pub(in crate::shell) fn expands_a_secret(raw: &str) -> Option<&str> {
    raw.split('$').skip(1).find_map(|after| {
        let after = after.strip_prefix('{').unwrap_or(after).trim_start_matches(['!', '#']);
        let length = after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        after.get(..length).filter(|name| is_secret_name(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_tell_what_they_hold() {
        for name in
            ["GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "PGPASSWORD", "OPENAI_API_KEY", "npm_token"]
        {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "HOME", "KEYBOARD", "TOKENIZERS", "MONKEY", "PUBLIC_KEY", "KEY", "PASS_RATE"] {
            assert!(!is_secret_name(name), "{name}");
        }
        assert_eq!(expands_a_secret("a ${API_KEY:-x}"), Some("API_KEY"));
        assert_eq!(expands_a_secret("$HOME/$TOKEN"), Some("TOKEN"));
        assert_eq!(expands_a_secret("costs $5 and TOKEN"), None);
    }
}
