//! What others hold: clusters, clouds, containers, forges, stores that are no SQL.
//!
//! Only verbs that remove, and of those only the ones that reach far. A rule that spells the command out lifts it.

use super::{Call, Harm};

pub(super) fn harm(call: &Call<'_>) -> Option<Harm> {
    let removes = infrastructure(call) || containers(call) || stores(call) || forges(call);
    removes
        .then(|| Harm::removes(format!("{} removes what is kept elsewhere, for good", call.base)))
        .or_else(|| git(call))
}

fn infrastructure(call: &Call<'_>) -> bool {
    let any = |test: &dyn Fn(&str) -> bool| call.args.iter().any(|arg| test(arg));
    match call.base {
        "terraform" | "tofu" | "terragrunt" => {
            call.names(&["destroy", "run-all-destroy"])
                || call.has(&["-destroy", "--destroy"])
                || call.says(&["state", "rm"])
                || call.says(&["workspace", "delete"])
        }
        "pulumi" => call.names(&["destroy"]) || call.says(&["stack", "rm"]),
        "cdk" | "sls" | "serverless" | "sst" | "vagrant" | "doctl" | "eksctl" | "sam" | "copilot" | "packer" => {
            call.names(&["destroy", "delete", "remove"])
        }
        "aws" => {
            call.names(&["rb"])
                || (call.names(&["rm"]) && call.has(&["--recursive"]))
                || (call.names(&["sync"]) && call.has(&["--delete"]))
                || any(&|arg| {
                    ["delete-", "terminate-", "deregister-", "purge-", "schedule-key-deletion", "batch-delete-"]
                        .iter()
                        .any(|verb| arg.starts_with(verb))
                })
        }
        "gcloud" | "az" | "oci" | "ibmcloud" | "linode-cli" | "hcloud" | "scw" | "openstack" | "nova" => {
            any(&|arg| matches!(arg, "delete" | "purge" | "destroy" | "delete-all"))
        }
        "gsutil" => {
            call.names(&["rb"]) || (call.names(&["rm"]) && (call.letter(&['r', 'R']) || any(&|a| a.contains("*"))))
        }
        "bq" => call.names(&["rm"]),
        "rclone" => call.names(&["purge", "delete", "deletefile", "sync", "cleanup"]),
        "s3cmd" | "mc" | "s5cmd" => {
            call.names(&["rb", "del"]) || (call.names(&["rm"]) && call.has(&["--recursive", "--force", "-r"]))
        }
        "heroku" | "dokku" => any(&|arg| arg.ends_with(":destroy") || arg == "pg:reset" || arg.ends_with(":delete")),
        "fly" | "flyctl" | "railway" | "vercel" | "netlify" | "wrangler" | "render" => {
            any(&|arg| matches!(arg, "destroy" | "delete" | "remove" | "rm") || arg.ends_with(":delete"))
        }
        _ => false,
    }
}

fn containers(call: &Call<'_>) -> bool {
    match call.base {
        "kubectl" | "oc" | "k3s" => {
            const WIDE: [&str; 14] = [
                "ns",
                "namespace",
                "namespaces",
                "pv",
                "pvc",
                "persistentvolume",
                "persistentvolumeclaim",
                "node",
                "nodes",
                "crd",
                "all",
                "deployment",
                "deployments",
                "statefulset",
            ];
            let kind = |arg: &&str| WIDE.contains(&arg.split('/').next().unwrap_or_default());
            (call.names(&["delete"]) && (call.has(&["--all", "--all-namespaces", "-A"]) || call.args.iter().any(kind)))
                || call.names(&["drain"])
                || (call.names(&["replace"]) && call.has(&["--force"]))
        }
        "helm" => call.names(&["uninstall", "delete", "del", "un"]),
        "docker" | "podman" | "nerdctl" => {
            let compose_down = call.names(&["down"]) && call.has(&["-v", "--volumes", "--rmi"]);
            let all_of_them = call.names(&["rm", "rmi", "kill", "stop"]) && call.args.iter().any(|arg| arg.is_empty());
            call.says(&["system", "prune"])
                || call.says(&["volume", "rm"])
                || call.names(&["prune"])
                    && (call.names(&["volume", "image", "builder"]) || call.has(&["-a", "--all", "-af"]))
                || (call.says(&["swarm", "leave"]) && call.has(&["--force", "-f"]))
                || compose_down
                || all_of_them
                || (call.names(&["run", "create"]) && mounts_the_machine(call))
        }
        "docker-compose" => call.names(&["down"]) && call.has(&["-v", "--volumes", "--rmi"]),
        "minikube" | "kind" | "k3d" => call.names(&["delete"]),
        _ => false,
    }
}

/// Whether a container gets all of this machine's files to write.
fn mounts_the_machine(call: &Call<'_>) -> bool {
    call.args.iter().any(|arg| {
        let mount = arg.strip_prefix("--volume=").or_else(|| arg.strip_prefix("-v")).unwrap_or(arg);
        mount.starts_with("/:") && !mount.ends_with(":ro") || arg.contains("source=/,") || arg.contains("src=/,")
    })
}

fn stores(call: &Call<'_>) -> bool {
    let lower = || call.args.iter().map(|arg| arg.to_lowercase()).collect::<Vec<_>>();
    match call.base {
        "redis-cli" | "valkey-cli" | "keydb-cli" => {
            lower().iter().any(|arg| matches!(arg.as_str(), "flushall" | "flushdb" | "shutdown" | "swapdb"))
                || lower().windows(2).any(|two| two == ["config", "set"])
        }
        "mongosh" | "mongo" => call.args.iter().any(|arg| drops_documents(arg)),
        "dropdb" | "dropuser" | "pg_dropcluster" | "pg_resetwal" => !call.has(&["--help", "--version"]),
        "mysqladmin" | "mariadb-admin" => call.names(&["drop", "shutdown", "flush-hosts"]),
        "etcdctl" => call.names(&["del"]) && call.has(&["--prefix", "--from-key"]),
        "consul" => call.says(&["kv", "delete"]) && call.has(&["-recurse"]),
        "vault" => call.names(&["delete", "destroy"]) || call.says(&["secrets", "disable"]),
        "rabbitmqctl" => call.names(&["reset", "force_reset", "delete_vhost", "purge_queue", "delete_queue", "stop"]),
        "kafka-topics" | "kafka-topics.sh" => call.has(&["--delete"]),
        "influx" => call.names(&["delete"]) || call.says(&["bucket", "delete"]),
        "curator" => call.names(&["delete-indices"]),
        "flyway" => call.names(&["clean"]),
        "liquibase" => call.names(&["dropAll", "drop-all"]),
        "restic" | "borg" => call.names(&["forget", "prune", "delete"]),
        _ => false,
    }
}

/// Removal of documents, collections or databases in a program of MongoDB's shell.
pub(super) fn drops_documents(program: &str) -> bool {
    let program: String = program.to_lowercase().chars().filter(|letter| !letter.is_whitespace()).collect();
    ["dropdatabase(", ".drop(", "dropcollection(", "deletemany({})", "remove({})", "dropuser(", "dropalluse"]
        .iter()
        .any(|call| program.contains(call))
}

fn forges(call: &Call<'_>) -> bool {
    match call.base {
        "gh" | "glab" => {
            (call.names(&["repo", "release", "project", "secret", "variable"]) && call.names(&["delete"]))
                || (call.says(&["repo", "edit"]) && call.names(&["public"]))
        }
        "npm" | "pnpm" | "yarn" => call.names(&["unpublish"]),
        "cargo" => call.names(&["yank"]),
        "gem" => call.names(&["yank"]),
        _ => false,
    }
}

/// Settings with which git runs programs, wherever they are kept; and what rewrites the branch everybody shares.
fn git(call: &Call<'_>) -> Option<Harm> {
    if call.base != "git" {
        return None;
    }
    if call.names(&["config"]) {
        let reads = ["--get", "--get-all", "--get-regexp", "--list", "-l", "--unset", "--unset-all"];
        let values = call.operands().into_iter().skip_while(|arg| *arg != "config").count();
        let runs = call.args.iter().any(|arg| crate::git::runs_a_program(&arg.to_lowercase()).is_some());
        if runs && values > 2 && !call.has(&reads) {
            return Some(Harm::takes_rights("it makes git run a program from now on"));
        }
    }
    if call.names(&["push"]) {
        let main = |arg: &str| {
            let target = arg.rsplit(':').next().unwrap_or_default();
            matches!(
                target.trim_start_matches('+').trim_start_matches("refs/heads/"),
                "main" | "master" | "trunk" | "develop"
            )
        };
        let forced =
            call.has(&["--force", "--force-with-lease", "--force-if-includes", "--delete", "--mirror", "--prune"])
                || call.letter(&['f', 'd']);
        let shared = call.operands().iter().any(|arg| main(arg));
        let plus = call.operands().iter().any(|arg| (arg.starts_with('+') || arg.starts_with(':')) && main(arg));
        if plus || call.has(&["--mirror"]) || (forced && shared) {
            return Some(Harm::removes("it removes or rewrites the branch that everybody works from"));
        }
    }
    None
}
