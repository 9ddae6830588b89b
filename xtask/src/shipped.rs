//! What chores that try the binary share: a Python of their own with packages of other people, the binary, and a place where
//! nothing of the operator's counts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

/// Words after the name of such a chore.
pub(crate) struct Asked {
    wheels: Option<PathBuf>,
    binary: Option<PathBuf>,
    /// The first so many tasks only.
    pub(crate) tasks: usize,
}

impl Asked {
    /// `--wheels DIR` takes the packages from a folder, `--binary FILE` this binary, `--tasks N` the first N only.
    pub(crate) fn read(words: &[&str]) -> anyhow::Result<Self> {
        let mut asked = Self { wheels: None, binary: None, tasks: usize::MAX };
        for pair in words.chunks(2) {
            match pair {
                ["--wheels", folder] => asked.wheels = Some(std::path::absolute(folder)?),
                ["--binary", file] => asked.binary = Some(std::path::absolute(file)?),
                ["--tasks", number] => asked.tasks = number.parse()?,
                [word, ..] => {
                    bail!("{word} is not known, or lacks its value: --wheels DIR, --binary FILE, --tasks N")
                }
                [] => {}
            }
        }
        Ok(asked)
    }

    /// The binary that was named, or one that is built.
    pub(crate) fn binary(&self, root: &Path) -> anyhow::Result<PathBuf> {
        if let Some(binary) = &self.binary {
            return Ok(binary.clone());
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        must(Command::new(cargo).args(["build", "--locked", "--package", "longrein-cli"]).current_dir(root))?;
        Ok(target(root).join("debug").join("longrein"))
    }

    /// A Python in `folder` that has these packages: installed once, and anew when other ones are asked for.
    pub(crate) fn python(&self, folder: &Path, packages: &Packages) -> anyhow::Result<PathBuf> {
        let venv = folder.join("venv");
        let (python, record) = (venv.join("bin").join("python"), venv.join("packages"));
        let wanted = packages.names.join(" ");
        if std::fs::read_to_string(&record).is_ok_and(|has| has == wanted) {
            return Ok(python);
        }
        must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages.names);
        match packages.more {
            More::Needed => {}
            More::Nothing => {
                install.arg("--no-deps");
            }
        }
        if let Some(wheels) = &self.wheels {
            install.arg("--no-index").arg("--find-links").arg(wheels);
        }
        must(&mut install)?;
        std::fs::write(record, wanted)?;
        Ok(python)
    }
}

/// Packages of PyPI, as pip is told of them.
pub(crate) struct Packages {
    pub(crate) names: &'static [&'static str],
    pub(crate) more: More,
}

/// What is installed beside what is named.
pub(crate) enum More {
    /// What the packages ask for.
    Needed,
    /// Nothing.
    Nothing,
}

/// Where cargo builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Runs a command that must end well.
pub(crate) fn must(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?} could not be started"))?;
    if status.success() { Ok(()) } else { bail!("{command:?} failed ({status})") }
}

/// Where runs of a chore live: a home and a folder to work in, both empty at first.
pub(crate) struct Place {
    binary: PathBuf,
    home: PathBuf,
    pub(crate) work: PathBuf,
    /// In seconds: a run that takes longer is ended.
    run_limit: u64,
}

impl Place {
    pub(crate) fn emptied(folder: &Path, binary: PathBuf, run_limit: u64) -> anyhow::Result<Self> {
        let place = Self { binary, home: folder.join("home"), work: folder.join("work"), run_limit };
        for folder in [&place.home, &place.work] {
            if folder.exists() {
                std::fs::remove_dir_all(folder)?;
            }
            std::fs::create_dir_all(folder)?;
        }
        std::fs::create_dir_all(place.configuration())?;
        Ok(place)
    }

    fn configuration(&self) -> PathBuf {
        self.home.join("config").join("longrein")
    }

    pub(crate) fn configure(&self, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.configuration().join("config.toml"), text)?)
    }

    /// Starts the binary with these words, and waits for its end.
    pub(crate) fn longrein(&self, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new("timeout");
        command.arg(self.run_limit.to_string()).arg(&self.binary).args(words).current_dir(&self.work);
        command.env("LONGREIN_HOME", &self.home).env("XDG_CONFIG_HOME", self.home.join("config"));
        command.env_remove("LONGREIN_MODEL").env_remove("LONGREIN_STORE").stdin(Stdio::null());
        command.output().context("the binary could not be started")
    }
}

/// The JSON lines that a command printed.
pub(crate) fn lines(ran: &Output) -> Vec<Value> {
    let out = String::from_utf8_lossy(&ran.stdout);
    out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
