//! Python takes a module from the folder of its program before it looks anywhere else: a file of the right name there is run
//! in the place of the standard library's.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules that programs, tests and their runners import before anything of the work.
pub const IMPORTED_FIRST: [&str; 66] = [
    "_pytest",
    "_thread",
    "abc",
    "argparse",
    "ast",
    "asyncio",
    "base64",
    "bisect",
    "codecs",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "doctest",
    "encodings",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "genericpath",
    "glob",
    "hashlib",
    "heapq",
    "importlib",
    "inspect",
    "io",
    "json",
    "linecache",
    "locale",
    "logging",
    "ntpath",
    "operator",
    "os",
    "pathlib",
    "pickle",
    "pkgutil",
    "platform",
    "pluggy",
    "posixpath",
    "pprint",
    "pytest",
    "random",
    "re",
    "runpy",
    "shutil",
    "signal",
    "site",
    "sitecustomize",
    "stat",
    "statistics",
    "string",
    "struct",
    "subprocess",
    "tempfile",
    "textwrap",
    "threading",
    "traceback",
    "types",
    "typing",
    "unittest",
    "usercustomize",
    "warnings",
];

/// What a module may be kept as, beside a folder: source, compiled, or a library of the machine.
pub const KINDS: [&str; 3] = ["py", "pyc", "so"];

/// The module that a file of this name is taken for: `json.py`, `json.cpython-311-x86_64-linux-gnu.so`.
pub fn module(name: &str) -> Option<&str> {
    let (stem, rest) = name.split_once('.')?;
    let kind = rest.rsplit_once('.').map_or(rest, |(_, kind)| kind);
    KINDS.contains(&kind).then_some(stem)
}

/// The module that a path below a folder is or makes, by itself or as a package: `json.py`, `json/__init__.py`.
pub fn module_at(below: &str) -> Option<&str> {
    match below.split_once('/') {
        None => module(below),
        Some((package, file)) => (module(file) == Some("__init__")).then_some(package),
    }
}

/// Files that Python would take for a module of [`IMPORTED_FIRST`] when it runs a program of this folder.
pub(crate) fn taken_first(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .flat_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let is_first = |module: &str| IMPORTED_FIRST.contains(&module);
            match module(name) {
                Some(module) if is_first(module) => vec![entry.path()],
                Some(_) => Vec::new(),
                None if is_first(name) => made_a_package(&entry.path()),
                None => Vec::new(),
            }
        })
        .collect();
    found.sort_unstable();
    found
}

fn made_a_package(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_package = |entry: &fs::DirEntry| entry.file_name().to_str().and_then(module) == Some("__init__");
    entries.filter(is_package).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_module_s_place_is_known() {
        for path in ["json.py", "json.pyc", "json.so", "json.cpython-311-x86_64-linux-gnu.so", "json/__init__.pyc"] {
            assert_eq!(module_at(path), Some("json"), "{path}");
        }
        for path in ["json", "json.txt", "json.py.orig", "json/other.py", "json/a/__init__.py", ".py"] {
            assert!(module_at(path).is_none_or(str::is_empty), "{path}");
        }
        let folder = tempfile::tempdir().unwrap();
        for path in ["json.pyc", "re/__init__.py", "types/notes.txt", "work.py", "string.md"] {
            fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
            fs::write(folder.path().join(path), "").unwrap();
        }
        let found: Vec<_> = taken_first(folder.path());
        assert_eq!(found, [folder.path().join("json.pyc"), folder.path().join("re/__init__.py")]);
    }
}
