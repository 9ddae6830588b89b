//! The order of functions in the released binary: what a run enters lies together, so that the rest is never mapped. Of 26 MB
//! of code a run enters 8, and the kernel maps 64 KiB around each page that is touched.
//!
//! `crates/cli/build.rs` hands the list to the linker. What it names and is no more is passed over; names of generic functions
//! carry a hash of the compiler and of the versions of dependencies, so that it is worth making anew after an update of either.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::shipped::{must, target};

/// The list, as the linker reads it.
const LIST: &str = "crates/cli/functions.ld";

/// Builds the released binary, has the linker draw a map of it, and writes what it enters. x86-64 Linux with Python.
pub(crate) fn order(root: &Path) -> anyhow::Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("functions are traced on x86-64 Linux only");
    }
    let target = target(root);
    let map = target.join("functions.map");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["rustc", "--locked", "--release", "--package", "longrein-cli", "--bin", "longrein", "--", "-C"];
    must(Command::new(cargo).args(words).arg(format!("link-arg=-Wl,-Map={}", map.display())).current_dir(root))?;
    let folder = root.join("xtask").join("src").join("order");
    must(
        Command::new("python3")
            .arg(folder.join("trace.py"))
            .args([&target.join("release").join("longrein"), &map, root, &root.join(LIST)])
            .current_dir(root),
    )?;
    println!("{LIST} is new: build again");
    Ok(())
}
