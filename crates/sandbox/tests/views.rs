//! Views of files that are laid out once and copied: what a command finds is what is there when it starts, and nothing of the
//! one before. Everything is tried with views that were used before, as all but the first command of a run have.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longrein_sandbox::{
    Became, Confined, Confinement, Ended, How, Keep, Marker, NO_FLOOD, Spec, Stderr, Way, probe_way, run,
};
use tokio::task::JoinSet;

/// A workspace with what is hidden and protected in it.
struct Place {
    folder: tempfile::TempDir,
    confined: Confined,
    home: Home,
}

/// Which folder is the home, and memory for commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// That around the workspace, as people have theirs: all of it is placed anew for every command.
    Around,
    /// Another one: the workspace is where it was placed once.
    Elsewhere,
}

/// How often a view is used before anything is tried with it: first it is laid out for one command, then kept.
const USED: usize = 3;

impl Place {
    async fn all(way: Way) -> [Self; 2] {
        [Self::new(way, Home::Around).await, Self::new(way, Home::Elsewhere).await]
    }

    async fn new(way: Way, home: Home) -> Self {
        // not below /tmp, which commands have their own of
        let folder = tempfile::Builder::new().prefix("longrein-views").tempdir_in("/var/tmp").unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["home/.cargo/bin", "home/proj/.git/hooks", "home/proj/sub", "outside", "elsewhere", "scratch"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        for path in ["home/rules", "home/proj/.git/config", "home/proj/.env", "outside/secret"] {
            std::fs::write(root.join(path), "first").unwrap();
        }
        let mut confined = Confined::new(way);
        confined.writes = vec![root.join("home/proj")];
        confined.reads = vec![root.join("home/rules")];
        confined.read_only = vec![root.join("home/proj/.git/hooks"), root.join("home/proj/.git/config")];
        confined.hidden = vec![root.join("home/proj/.env"), root.join("home/proj/sub/.env")];
        // else all of /var/tmp lies in memory, too
        confined.scratch = (home == Home::Elsewhere).then(|| root.join("scratch"));
        let place = Self { folder, confined, home };
        for _ in 0..USED {
            assert_eq!(place.said("echo used").await, "used");
        }
        place
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    fn spec(&self, script: &str) -> Spec {
        let root = self.at("");
        let home = match self.home {
            Home::Around => "home",
            Home::Elsewhere => "elsewhere",
        };
        Spec {
            argv: ["sh", "-c", script].map(str::to_owned).into(),
            cwd: self.at("home/proj"),
            env: vec![
                ("PATH".to_owned(), format!("{}:/usr/local/bin:/usr/bin:/bin", root.join("home/.cargo/bin").display())),
                ("HOME".to_owned(), root.join(home).display().to_string()),
                ("W".to_owned(), root.display().to_string().trim_end_matches('/').to_owned()),
            ],
            stdin: Vec::new(),
            stdout: Keep::Ends { max_bytes: 64 << 10, flood_bytes: NO_FLOOD },
            stderr: Stderr::WithStdout,
            timeout: Duration::from_secs(20),
            marker: Marker { run: "views".to_owned(), action: root.display().to_string(), fence: 1 },
            confinement: Confinement::Confined(Box::new(self.confined.clone())),
        }
    }

    async fn ended(&self, script: &str) -> Ended {
        run(self.spec(script)).await.unwrap()
    }

    /// Of a script that ends well.
    async fn said(&self, script: &str) -> String {
        let ended = self.ended(script).await;
        let text = String::from_utf8_lossy(&ended.stdout.head).trim().to_owned();
        assert_eq!(ended.how, How::Exited(0), "{script}: {text}");
        text
    }

    /// By another file of the same name, as editors and `git` write.
    fn replace(&self, path: &str, content: &str) {
        let new = self.at("outside/new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, self.at(path)).unwrap();
    }
}

/// The ways that hold here; of each other one a line says why it is passed over.
async fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for way in [Way::Namespaces, Way::UserNamespace] {
        match probe_way(way).await {
            Became::Held { .. } => ways.push(way),
            became @ (Became::Breached { .. } | Became::Unusable { .. }) => println!("skipped: {way:?}: {became}"),
        }
    }
    ways
}

/// What all the others here are about: what is a command's own lies over what was laid out for all.
#[tokio::test]
async fn a_view_is_kept_where_we_may_enter_it_again() {
    for way in ways().await {
        let place = Place::new(way, Home::Around).await;
        let mut most = 0;
        // a mount that somebody makes on this machine has it laid out anew
        for _ in 0..20 {
            let places = place.said("grep -c ' /dev/shm ' /proc/self/mountinfo").await;
            most = most.max(places.parse().unwrap());
        }
        assert_eq!(most, if way == Way::Namespaces { 2 } else { 1 }, "{way:?}");
    }
}

#[tokio::test]
async fn a_file_that_was_replaced_is_seen_by_the_next_command() {
    for way in ways().await {
        for place in Place::all(way).await {
            for round in 0..4 {
                for (path, shown) in [("home/rules", "$W/home/rules"), ("home/proj/.git/config", ".git/config")] {
                    let content = format!("{path} {round}");
                    place.replace(path, &content);
                    for _ in 0..USED {
                        assert_eq!(place.said(&format!("cat {shown}")).await, content, "{way:?}");
                        let ended = place.ended(&format!("echo x >> {shown}")).await;
                        assert!(matches!(ended.how, How::Exited(1..)), "{way:?}: {shown} is protected as before");
                    }
                }
            }
            // to be looked at as a whole from now on
            tokio::time::sleep(Duration::from_millis(3_200)).await;
            for _ in 0..USED {
                place.said("true").await;
            }
            place.replace("home/rules", "late");
            assert_eq!(place.said("cat $W/home/rules").await, "late", "{way:?}");
            std::fs::rename(place.at("home/proj/sub"), place.at("outside/sub")).unwrap();
            std::fs::create_dir(place.at("home/proj/sub")).unwrap();
            std::fs::write(place.at("home/proj/sub/new"), "new").unwrap();
            assert_eq!(place.said("cat sub/new").await, "new", "{way:?}");
        }
    }
}

/// A workspace of another inode under the same name, and one that comes back under a number that was used before.
#[tokio::test]
async fn a_folder_that_was_replaced_is_seen_by_the_next_command() {
    for way in ways().await {
        for place in Place::all(way).await {
            for round in 0..4 {
                std::fs::remove_dir_all(place.at("home/proj")).unwrap();
                std::fs::create_dir_all(place.at("home/proj/.git/hooks")).unwrap();
                std::fs::create_dir_all(place.at("home/proj/sub")).unwrap();
                for path in ["home/proj/.git/config", "home/proj/.env", "home/proj/sub/.env"] {
                    std::fs::write(place.at(path), format!("round {round}")).unwrap();
                }
                for _ in 0..USED {
                    assert_eq!(place.said("cat .git/config").await, format!("round {round}"), "{way:?}");
                    let tries =
                        "! cat .env && ! cat sub/.env && ! touch .git/hooks/new && echo fast > made && cat made";
                    assert!(place.said(tries).await.ends_with("fast"), "{way:?}");
                    assert!(place.at("home/proj/made").exists(), "{way:?}: it is the folder that is there");
                }
            }
        }
    }
}

/// The kernel takes away what was mounted on a file that is removed: what hides a secret, too.
#[tokio::test]
async fn a_secret_is_hidden_however_it_came() {
    for way in ways().await {
        for place in Place::all(way).await {
            let tries = "! cat .env 2> /dev/null && ! cat sub/.env 2> /dev/null && echo hidden";
            for _ in 0..3 {
                place.replace("home/proj/.env", "second");
                assert_eq!(place.said(tries).await, "hidden", "{way:?}: replaced");
                for path in ["home/proj/.env", "home/proj/sub/.env"] {
                    let _ = std::fs::remove_file(place.at(path));
                    std::fs::write(place.at(path), "third").unwrap();
                }
                for _ in 0..USED {
                    assert_eq!(place.said(tries).await, "hidden", "{way:?}: removed and made again");
                }
                // the very same file, which was gone in between
                std::fs::hard_link(place.at("home/proj/.env"), place.at("outside/same")).unwrap();
                std::fs::remove_file(place.at("home/proj/.env")).unwrap();
                std::fs::rename(place.at("outside/same"), place.at("home/proj/.env")).unwrap();
                for _ in 0..USED {
                    assert_eq!(place.said(tries).await, "hidden", "{way:?}: taken away and brought back");
                }
                std::fs::remove_file(place.at("home/proj/sub/.env")).unwrap();
                for _ in 0..USED {
                    assert_eq!(place.said("test ! -e sub/.env && echo gone").await, "gone", "{way:?}");
                }
                std::fs::write(place.at("home/proj/sub/.env"), "fourth").unwrap();
                assert_eq!(place.said(tries).await, "hidden", "{way:?}: it appeared");
            }
        }
    }
}

#[tokio::test]
async fn nothing_of_one_command_is_there_for_the_next() {
    for way in ways().await {
        let place = Place::new(way, Home::Around).await;
        let fill = "for f in /tmp $HOME /dev/shm; do echo x > $f/left && mkdir -p $f/folder/left || exit 1; done";
        let list = "ls -A /tmp /dev/shm /dev/pts; ls -A $HOME; find $HOME /tmp -name 'left*'; echo end";
        let before = place.said(list).await;
        for _ in 0..USED {
            place.said(fill).await;
            assert_eq!(place.said(list).await, before, "{way:?}");
        }
        assert!(before.contains(".cargo") && before.contains("proj") && before.contains("rules"), "{before}");
        // while one that filled them is still running, and has a terminal of its own
        let open = "exec 9<> /dev/ptmx; ls -A /dev/pts; echo x > /dev/shm/left; sleep 1";
        let (one, other) = tokio::join!(place.said(open), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            place.said(list).await
        });
        assert!(one.contains('0'), "{way:?}: {one}");
        assert_eq!(other, before, "{way:?}");
        let processes = place.said("ls /proc | grep -c '^[0-9]'").await;
        assert!(processes.parse::<u32>().unwrap() <= 5, "{way:?}: {processes}");
    }
}

#[tokio::test]
async fn commands_side_by_side_have_each_its_own_view() {
    for way in ways().await {
        let mut places = Vec::new();
        for _ in 0..3 {
            places.push(Place::new(way, Home::Around).await);
        }
        let mut commands = JoinSet::new();
        for round in 0..60 {
            let place = &places[round % places.len()];
            let mine = format!("{round}");
            let script = format!(
                "echo {mine} > $HOME/mine && echo {mine} > /tmp/mine && sleep 0.0{} && cat $HOME/mine /tmp/mine && ls $W",
                round % 10
            );
            let spec = place.spec(&script);
            commands.spawn(async move { (mine, run(spec).await.unwrap()) });
        }
        while let Some(done) = commands.join_next().await {
            let (mine, ended) = done.unwrap();
            let text = String::from_utf8_lossy(&ended.stdout.head).into_owned();
            assert_eq!(ended.how, How::Exited(0), "{way:?}: {text}");
            assert_eq!(text.split_whitespace().collect::<Vec<_>>(), [mine.as_str(), mine.as_str(), "home"], "{way:?}");
        }
        for (number, place) in places.iter().enumerate() {
            place.replace("home/rules", &format!("of {number}"));
        }
        for (number, place) in places.iter().enumerate() {
            assert_eq!(place.said("cat $W/home/rules").await, format!("of {number}"), "{way:?}");
        }
    }
}

/// Side by side with commands, the host replaces what is hidden and protected: whatever a command reads, it is a whole file of
/// those that were there, and never the secret once the command after it has begun.
#[tokio::test]
async fn a_secret_that_is_replaced_all_the_time_is_never_shown_to_a_command_that_begins_later() {
    for way in ways().await {
        for place in Place::all(way).await {
            for round in 0..30 {
                place.replace("home/proj/.env", &format!("secret {round}"));
                place.replace("home/proj/.git/config", &format!("config {round}"));
                let text = place.said("cat .env 2> /dev/null; cat .git/config").await;
                assert_eq!(text, format!("config {round}"), "{way:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_program_has_no_open_file_but_its_three() {
    for way in ways().await {
        let place = Place::new(way, Home::Around).await;
        // the shell lists them without a child, and has closed the folder by then
        let list = "cd /proc/self/fd; for f in *; do if test -e $f; then echo $f; fi; done";
        for _ in 0..USED {
            let text = place.said(list).await;
            let open: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(open, ["0", "1", "2"], "{way:?}");
            let of_first = place.ended("readlink /proc/1/ns/mnt || readlink /proc/1/fd/* || : < /proc/1/fd/3").await;
            assert!(matches!(of_first.how, How::Exited(1..)), "{way:?}: nor what the first process has");
        }
    }
}

#[tokio::test]
async fn our_root_is_not_in_a_view_that_was_kept() {
    for way in ways().await {
        let place = Place::new(way, Home::Around).await;
        for script in [
            "cd /; cd ..; cd ../../..; ls -d $W/outside",
            "ls $W/outside",
            "ls -d /proc/1/root$W/outside",
            "ls -d /proc/self/root$W/outside",
            "ls -d /proc/1/cwd/$W/outside",
            "cat /proc/mounts | grep -q outside",
            "umount /proc",
            "umount -l $HOME",
            "umount $W/home/proj/.env",
            "nsenter -m -t 1 true",
            "test \"$(stat -c %d:%i /)\" = \"$OURS\"",
        ] {
            let mut spec = place.spec(script);
            let ours = std::fs::metadata("/").unwrap();
            spec.env.push(("OURS".to_owned(), format!("{}:{}", ours.dev(), ours.ino())));
            let ended = run(spec).await.unwrap();
            let text = String::from_utf8_lossy(&ended.stdout.head).into_owned();
            assert!(matches!(ended.how, How::Exited(1..)), "{way:?}: {script}: {text}");
        }
        if way == Way::Namespaces {
            // only what was laid out: with the place that each mount is at
            let mounts = place.said("cut -d' ' -f5 /proc/self/mountinfo").await;
            let known = ["/", "/proc", "/dev", "/etc", "/opt", "/sys", "/usr", "/var", "/tmp", "/nix", "/gnu", "/snap"];
            let home = place.at("home");
            for mount in mounts.lines().map(Path::new) {
                let is_known = known[1..].iter().any(|known| mount.starts_with(known)) || mount == Path::new("/");
                assert!(is_known || mount.starts_with(&home) || mount.starts_with("/lib"), "{}", mount.display());
            }
            let roots = place.said("cat /proc/self/mountinfo").await;
            assert!(roots.lines().all(|line| !line.contains("shared:") && !line.contains("master:")), "{roots}");
        }
    }
}
