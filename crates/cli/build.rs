//! Has the functions of the released binary laid out as `functions.ld` says: what a run enters together, the rest after
//! it. The list is made by `cargo xtask order`; names in it that are no more are passed over.
//!
//! Only the linker that comes with the compiler on this one platform is told: others may take long over so many names.

use std::path::Path;
use std::process::Command;

const LIST: &str = "functions.ld";
const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    println!("cargo::rerun-if-changed={LIST}");
    println!("cargo::rerun-if-changed=build.rs");
    if is_release() && is_linked_by_lld() {
        let list = Path::new(&variable("CARGO_MANIFEST_DIR")).join(LIST);
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", list.display());
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn is_release() -> bool {
    variable("PROFILE") == "release"
}

/// Whether nobody chose another linker, and the compiler's own is there, which it takes by default since 1.90.
fn is_linked_by_lld() -> bool {
    let chosen = variable("CARGO_ENCODED_RUSTFLAGS");
    let is_default = variable("RUSTC_LINKER").is_empty() && !chosen.contains("link");
    if variable("TARGET") != TARGET || !is_default {
        return false;
    }
    let Ok(printed) = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output() else { return false };
    let sysroot = String::from_utf8_lossy(&printed.stdout);
    Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("bin/gcc-ld/ld.lld").exists()
}
