//! The file tools as a model meets them: a call in, its result or an error it can act on out.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use longrein_core::ids::Digest;
use longrein_core::outcome::{Outcome, ProbeAnswer, ToolError, class};
use longrein_core::target::{Place, Target};
use longrein_core::task::{Builtin, Task};
use longrein_ports::{Handed, Ran, Tools};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// A workspace `ws`, beside it `out`, and what a run has seen so far, kept as core keeps it.
struct Desk {
    dir: TempDir,
    task: Task,
    toolbox: Toolbox,
    seen: BTreeMap<String, Digest>,
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["ws", "out"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let tools = Builtin::ALL.into_iter().map(crate::builtin).collect();
        let task = Task { tools, ..task_in(&dir.path().join("ws"), &[]) };
        let mut secrets = Secrets::new();
        secrets.know("TOKEN", "hunter2hunter2");
        let toolbox = Toolbox::new(&task, &operator(), secrets).unwrap();
        Self { dir, task, toolbox, seen: BTreeMap::new() }
    }

    fn with(files: &[(&str, &[u8])]) -> Self {
        let desk = Self::new();
        for (path, content) in files {
            let path = desk.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        desk
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("ws").join(path)
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(path)).unwrap()
    }

    /// What the gate would rule on.
    async fn target(&self, tool: &str, args: &Value) -> Result<Target, ToolError> {
        let tool = ToolName::new(tool);
        let valid = self.toolbox.validate(&tool, &args.to_string())?;
        let target = self.toolbox.target(&self.task, &tool, &valid.args, &self.seen).await?;
        Ok(target.expect("every call of a file tool is about something"))
    }

    fn attempt(&self, tool: &str, args: &Value, target: &Target) -> Attempt {
        let valid = self.toolbox.validate(&ToolName::new(tool), &args.to_string()).unwrap();
        Attempt { args: valid.args, target: Some(target.clone()), ..attempt(tool, args) }
    }

    async fn start(&mut self, tool: &str, args: &Value, target: &Target) -> Result<Value, ToolError> {
        let attempt = self.attempt(tool, args, target);
        match self.toolbox.attempt(&self.task, &attempt, &Handed::default()).await.outcome {
            Outcome::Done(content) => {
                if let Some(content) = target.after.clone().or(target.before.clone()) {
                    self.seen.insert(target.path.clone(), content);
                }
                Ok(inline(&content))
            }
            Outcome::Error(error) => Err(error),
            other @ (Outcome::NotDone(_) | Outcome::Unknown(_)) => panic!("no outcome of a file tool: {other:?}"),
        }
    }

    async fn call(&mut self, tool: &str, args: Value) -> Result<Value, ToolError> {
        let target = self.target(tool, &args).await?;
        self.start(tool, &args, &target).await
    }

    async fn ran(&self, tool: &str, args: &Value) -> Ran {
        let target = self.target(tool, args).await.unwrap();
        self.toolbox.attempt(&self.task, &self.attempt(tool, args, &target), &Handed::default()).await
    }

    async fn read(&mut self, path: &str) -> Result<Value, ToolError> {
        self.call("read_file", json!({ "path": path })).await
    }

    async fn edit(&mut self, path: &str, old: &str, new: &str) -> Result<Value, ToolError> {
        self.call("edit_file", json!({ "path": path, "old": old, "new": new })).await
    }

    async fn write(&mut self, path: &str, content: &str) -> Result<Value, ToolError> {
        self.call("write_file", json!({ "path": path, "content": content })).await
    }

    async fn probe(&self, tool: &str, args: &Value, target: &Target) -> ProbeAnswer {
        self.toolbox.probe(&self.task, self.attempt(tool, args, target), Handed::default()).await.answer
    }
}

fn class_of<T: std::fmt::Debug>(result: Result<T, ToolError>) -> String {
    let error = result.unwrap_err();
    assert!(error.hint.is_some(), "it says what to try: {error:?}");
    error.class
}

#[tokio::test]
async fn a_picture_is_read_as_one_and_other_binaries_are_refused() {
    let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x06\0\0\0"[..], &[7; 200]].concat();
    let wide = [&b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\x01\0\0\0\0\x01\xe0\x08\x06\0\0\0"[..], &[7; 200]].concat();
    let desk = Desk::with(&[
        ("a.png", &png),
        ("wide.png", &wide),
        ("data.bin", b"\0\x01\x02"),
        ("large.png", &vec![0; 6 << 20]),
    ]);
    let args = json!({ "path": "a.png" });
    let ran = desk.ran("read_file", &args).await;
    let Outcome::Done(content) = ran.outcome else { panic!("{:?}", ran.outcome) };
    let [image] = content.images() else { panic!("{content:?}") };
    assert_eq!((image.width, image.height, image.bytes), (640, 480, 229));
    // what the model is shown as text is what it is, and the picture lies apart, as itself
    assert_eq!(content.shown().read::<Value>().unwrap()["path"], "a.png");
    assert!(!content.shown().as_str().contains("iVBOR"), "{}", content.shown().as_str());
    assert!(ran.blobs.iter().any(|(digest, bytes)| *digest == image.digest && **bytes == png));
    for (path, why) in [("wide.png", "65536"), ("data.bin", "binary"), ("large.png", "binary")] {
        let error = desk.ran("read_file", &json!({ "path": path })).await.outcome;
        let Outcome::Error(error) = error else { panic!("{path}: {error:?}") };
        assert_eq!(error.field.as_deref(), Some("/path"), "{error:?}");
        assert!(error.message.contains(path) && error.message.contains(why), "{error:?}");
    }
}

#[tokio::test]
async fn what_was_read_can_be_edited_and_edited_again() {
    let mut desk = Desk::with(&[("src/a.rs", b"fn a() {}\nfn b() {}\n")]);
    let read = desk.read("./src/a.rs").await.unwrap();
    let expected =
        json!({ "path": "src/a.rs", "from": 1, "to": 2, "total_lines": 2, "text": "fn a() {}\nfn b() {}\n" });
    assert_eq!(read, expected);
    let edited = desk.edit("src/a.rs", "fn b()", "fn c()").await.unwrap();
    assert_eq!(edited, json!({ "path": "src/a.rs", "replaced": 1, "lines": "2" }));
    desk.edit("src/a.rs", "fn c()", "fn d()").await.unwrap();
    assert_eq!(desk.bytes("src/a.rs"), b"fn a() {}\nfn d() {}\n");
    desk.write("src/a.rs", "new\n").await.unwrap();
    desk.edit("src/a.rs", "new", "newer").await.unwrap();
    assert_eq!(desk.bytes("src/a.rs"), b"newer\n");
    // what a run made itself it knows
    assert_eq!(desk.write("deep/er/b.txt", "b").await.unwrap()["new"], true);
    desk.edit("deep/er/b.txt", "b", "c").await.unwrap();
}

#[tokio::test]
async fn what_was_not_read_as_it_is_now_is_not_changed() {
    let mut desk = Desk::with(&[("a", b"one\n")]);
    assert_eq!(class_of(desk.edit("a", "one", "two").await), "not_read");
    assert_eq!(class_of(desk.write("a", "two").await), "not_read");
    desk.read("a").await.unwrap();
    fs::write(desk.path("a"), "one more\n").unwrap();
    assert_eq!(class_of(desk.edit("a", "one", "two").await), "changed");
    assert_eq!(class_of(desk.write("a", "two").await), "changed");
    assert_eq!(desk.bytes("a"), b"one more\n");
    desk.read("a").await.unwrap();
    desk.edit("a", "one", "two").await.unwrap();
    assert_eq!(desk.bytes("a"), b"two more\n");
}

#[tokio::test]
async fn nothing_is_told_of_a_file_that_was_not_read() {
    let mut desk = Desk::with(&[("../out/keys", b"alpha\nthe word is xyzzy\n"), (".env", b"WORD=xyzzy\n")]);
    let out = desk.path("../out").canonicalize().unwrap();
    let keys = out.join("keys").to_str().unwrap().to_owned();
    for path in [keys.as_str(), "../out/keys", ".env"] {
        for old in ["the word is xyzz\n", "WORD=xyzz", "WORD=", "e", ""] {
            for new in ["", "q", old] {
                let error = desk.edit(path, old, new).await.unwrap_err();
                assert_eq!(error.class, "not_read", "{path} {old:?}: {error:?}");
                assert!(!format!("{error:?}").contains("xyzzy"), "{error:?}");
            }
        }
    }
    // nor of what it holds now, where it was read as it was
    desk.seen.insert(".env".to_owned(), digest("as it was"));
    assert_eq!(class_of(desk.edit(".env", "WORD=xyzz", "q").await), "changed");
    // nor which names there are where nothing was ruled on
    let error = desk.edit(out.join("key").to_str().unwrap(), "a", "b").await.unwrap_err();
    assert!(error.class == "not_found" && !format!("{error:?}").contains("keys"), "{error:?}");
    let error = desk.edit(".en", "a", "b").await.unwrap_err();
    assert!(error.hint.is_some_and(|hint| hint.contains(".env")), "in the workspace they are no secret");
}

#[tokio::test]
async fn a_search_of_a_folder_leaves_out_what_holds_secrets() {
    let needle: &[u8] = b"needle\n";
    let mut desk = Desk::with(&[
        ("a.txt", needle),
        ("id_rsa", needle),
        ("tls/server.pem", needle),
        ("secrets.yaml", needle),
        (".env", needle),
        ("sub/.env.local", needle),
        (".aws/credentials", needle),
        (".npmrc", b"needle = 1\n"),
        ("pkg/.npmrc", b"//registry.example/:_authToken=needle\n"),
    ]);
    for (glob, left) in [
        (None, "a.txt"),
        (Some("{.env,a.txt}"), "a.txt"),
        (Some("{.aws,sub}/**"), ""),
        (Some("**/.*"), ".npmrc"),
        (Some("{.n,id_}{pmrc,rsa}"), ".npmrc"),
    ] {
        let args = glob.map_or(json!({ "pattern": "needle" }), |glob| json!({ "pattern": "needle", "glob": glob }));
        let found = desk.call("search_files", args).await.unwrap();
        let text = found["found"].as_str().unwrap();
        let files: Vec<_> = text.split("\n\n").filter_map(|file| file.lines().next()).collect();
        assert_eq!(files.join(" "), left, "{glob:?}: {found}");
        assert!(found["skipped"].as_str().unwrap().contains("named like what holds secrets"), "{found}");
    }
}

#[tokio::test]
async fn a_call_touches_exactly_what_was_ruled_on() {
    let mut desk = Desk::with(&[("a", b"one\n"), ("../out/theirs", b"one\n")]);
    desk.read("a").await.unwrap();
    let args = json!({ "path": "a", "old": "one", "new": "two" });
    let target = desk.target("edit_file", &args).await.unwrap();
    assert_eq!((target.before.clone(), target.after.clone()), (Some(digest("one\n")), Some(digest("two\n"))));
    // changed in between, in a way the edit would still fit, or not
    for now in ["one one\n", "on\n"] {
        fs::write(desk.path("a"), now).unwrap();
        assert_eq!(class_of(desk.start("edit_file", &args, &target).await), "changed");
    }
    fs::write(desk.path("a"), "ne\none\n").unwrap();
    assert_eq!(class_of(desk.start("edit_file", &args, &target).await), "changed");
    // replaced by a link to a file with the very content
    fs::remove_file(desk.path("a")).unwrap();
    symlink("../out/theirs", desk.path("a")).unwrap();
    assert_eq!(class_of(desk.start("edit_file", &args, &target).await), "changed");
    assert_eq!(desk.bytes("../out/theirs"), b"one\n");
    // a new file whose name was taken
    let args = json!({ "path": "new", "content": "mine" });
    let target = desk.target("write_file", &args).await.unwrap();
    fs::write(desk.path("new"), "theirs").unwrap();
    assert_eq!(class_of(desk.start("write_file", &args, &target).await), "changed");
    assert_eq!(desk.bytes("new"), b"theirs");
}

#[tokio::test]
async fn places_are_told_apart_as_the_kernel_does() {
    let desk = Desk::with(&[("in/a", b""), ("../out/b", b"")]);
    symlink("../out", desk.path("away")).unwrap();
    symlink("in/a", desk.path("near")).unwrap();
    let out = desk.dir.path().canonicalize().unwrap().join("out/b");
    for (written, path, place) in [
        ("in/../in//a", "in/a", Place::Inside),
        ("near", "in/a", Place::Inside),
        ("away/b", out.to_str().unwrap(), Place::Outside),
        ("../out/b", out.to_str().unwrap(), Place::Outside),
        (".", ".", Place::Inside),
    ] {
        let target = desk.target("read_file", &json!({ "path": written })).await.unwrap();
        assert_eq!((target.path.as_str(), target.place), (path, place), "{written}");
    }
    let new = desk.target("write_file", &json!({ "path": "away/new", "content": "" })).await.unwrap();
    assert_eq!(new.place, Place::Outside);
    let error = desk.target("write_file", &json!({ "path": "nowhere/../x", "content": "" })).await.unwrap_err();
    assert_eq!(error.class, "not_found");
}

#[tokio::test]
async fn a_lost_write_is_found_done_or_undone_or_told() {
    let mut desk = Desk::with(&[("a", b"one\n")]);
    desk.read("a").await.unwrap();
    let edit = json!({ "path": "a", "old": "one", "new": "two" });
    let edited = desk.target("edit_file", &edit).await.unwrap();
    assert_eq!(desk.probe("edit_file", &edit, &edited).await, ProbeAnswer::NoEffect);
    desk.start("edit_file", &edit, &edited).await.unwrap();
    assert!(matches!(desk.probe("edit_file", &edit, &edited).await, ProbeAnswer::TookEffect(_)));
    fs::write(desk.path("a"), "three").unwrap();
    assert!(matches!(desk.probe("edit_file", &edit, &edited).await, ProbeAnswer::NoAnswer(_)));
    let write = json!({ "path": "new/b", "content": "b" });
    let written = desk.target("write_file", &write).await.unwrap();
    assert_eq!(desk.probe("write_file", &write, &written).await, ProbeAnswer::NoEffect);
    desk.start("write_file", &write, &written).await.unwrap();
    assert!(matches!(desk.probe("write_file", &write, &written).await, ProbeAnswer::TookEffect(_)));
    fs::remove_file(desk.path("a")).unwrap();
    assert!(matches!(desk.probe("edit_file", &edit, &edited).await, ProbeAnswer::NoAnswer(_)));
}

#[tokio::test]
async fn what_a_killed_writer_left_goes_with_the_probe() {
    let mut desk = Desk::with(&[("a", b"one\n")]);
    desk.read("a").await.unwrap();
    let edit = json!({ "path": "a", "old": "one", "new": "two" });
    let target = desk.target("edit_file", &edit).await.unwrap();
    let left = format!(".longrein-{}-1-0.tmp", &digest("a").as_str()[..16]);
    fs::write(desk.path(&left), "tw").unwrap();
    assert_eq!(desk.probe("edit_file", &edit, &target).await, ProbeAnswer::NoEffect);
    assert!(!desk.path(&left).exists());
}

// `failures.md` §12, row by row

#[tokio::test]
async fn newlines_are_matched_and_kept_in_files_of_every_style() {
    // 12.1, 12.2, 12.3
    for (before, after) in [
        (&b"a\nb\nc"[..], &b"a\nx\ny\nc"[..]),
        (b"a\r\nb\r\nc\r\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\rb\rc\r", b"a\rx\ry\rc\r"),
        (b"a\nb\r\nc\n", b"a\nx\ny\r\nc\n"),
    ] {
        let mut desk = Desk::with(&[("f", before)]);
        let text = desk.read("f").await.unwrap()["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with("a\nb\nc"), "it is shown as lines: {text:?}");
        // in the mixed file the replaced lines end in two ways: the first decides
        desk.edit("f", "a\nb\n", "a\nx\ny\n").await.unwrap();
        let now = desk.bytes("f");
        let all_lf = String::from_utf8(now.clone()).unwrap().replace("\r\n", "\n").replace('\r', "\n");
        let expected = String::from_utf8(after.to_vec()).unwrap().replace("\r\n", "\n").replace('\r', "\n");
        assert_eq!(all_lf, expected);
        if before != b"a\nb\r\nc\n" {
            assert_eq!(now, after);
        }
        assert_eq!(now.last(), before.last(), "a final newline is neither added nor lost");
    }
}

#[tokio::test]
async fn bytes_that_are_no_utf8_survive_an_edit_beside_them() {
    // 12.5, 12.7
    let all: Vec<u8> = (1..=255).collect();
    let file = |word: &[u8]| [&all, b"\n".as_slice(), word, b" = 1\n", &all].concat();
    let mut desk = Desk::with(&[("f", &file(b"hello"))]);
    let read = desk.read("f").await.unwrap();
    assert!(read["encoding"].as_str().unwrap().contains("not UTF-8"), "{read}");
    desk.edit("f", "hello = 1", "goodbye = 1").await.unwrap();
    assert_eq!(desk.bytes("f"), file(b"goodbye"));
    assert_eq!(class_of(desk.edit("f", "goodbye", "tschüss").await), "unsupported");
    assert_eq!(desk.bytes("f"), file(b"goodbye"));
}

#[tokio::test]
async fn byte_order_marks_stay() {
    // 12.6
    let utf16 = |text: &str| -> Vec<u8> {
        [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
    };
    let mut desk = Desk::with(&[("u8", "\u{feff}eins\n".as_bytes()), ("u16", &utf16("eins\r\n"))]);
    for file in ["u8", "u16"] {
        assert_eq!(desk.read(file).await.unwrap()["text"], "eins\n");
        desk.edit(file, "eins", "zwölf").await.unwrap();
    }
    assert_eq!(desk.bytes("u8"), "\u{feff}zwölf\n".as_bytes());
    assert_eq!(desk.bytes("u16"), utf16("zwölf\r\n"));
    let written = desk.write("u16", "ganz\nneu\n").await.unwrap();
    assert_eq!(written["kept"], "utf-16le with BOM, crlf newlines");
    assert_eq!(desk.bytes("u16"), utf16("ganz\r\nneu\r\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_edits_of_one_file_by_two_names_none_is_lost() {
    // 12.8: what the holds keep apart by name is kept apart here by file
    let desk = Desk::with(&[("f", b"one two\n")]);
    symlink("f", desk.path("g")).unwrap();
    let mut desk = desk;
    desk.read("f").await.unwrap();
    let first = json!({ "path": "f", "old": "one", "new": "1" });
    let second = json!({ "path": "g", "old": "two", "new": "2" });
    let targets = [desk.target("edit_file", &first).await.unwrap(), desk.target("edit_file", &second).await.unwrap()];
    let attempts = [desk.attempt("edit_file", &first, &targets[0]), desk.attempt("edit_file", &second, &targets[1])];
    let handed = Handed::default();
    let (a, b) = tokio::join!(
        desk.toolbox.attempt(&desk.task, &attempts[0], &handed),
        desk.toolbox.attempt(&desk.task, &attempts[1], &handed),
    );
    let done = [&a, &b].iter().filter(|ran| matches!(ran.outcome, Outcome::Done(_))).count();
    assert_eq!(done, 1, "the other is told that the file has changed: {a:?} {b:?}");
    assert!(desk.bytes("f") == b"1 two\n" || desk.bytes("f") == b"one 2\n");
}

#[tokio::test]
async fn a_file_is_held_by_one_name_however_it_is_written() {
    let desk = Desk::new();
    let path = |written: &str| {
        let args = json!({ "path": written, "content": "" });
        desk.toolbox.validate(&ToolName::new("write_file"), &args.to_string()).unwrap().path.unwrap()
    };
    assert_eq!(path(desk.path("src/a").to_str().unwrap()), "src/a");
    assert_eq!(path("src/a"), "src/a");
    assert_eq!(path("/etc/a"), "/etc/a");
    let listed = desk.toolbox.validate(&ToolName::new("list_files"), "{}").unwrap();
    assert_eq!(listed.path.unwrap(), ".");
}

#[tokio::test]
async fn modes_stay_and_links_stay_links() {
    let mut desk = Desk::with(&[("run.sh", b"echo 1\n")]);
    fs::set_permissions(desk.path("run.sh"), fs::Permissions::from_mode(0o754)).unwrap();
    symlink("run.sh", desk.path("link")).unwrap();
    desk.read("link").await.unwrap();
    assert_eq!(desk.edit("link", "1", "2").await.unwrap()["path"], "run.sh");
    assert_eq!(fs::metadata(desk.path("run.sh")).unwrap().permissions().mode() & 0o777, 0o754);
    assert!(fs::symlink_metadata(desk.path("link")).unwrap().is_symlink());
    assert_eq!(desk.bytes("run.sh"), b"echo 2\n");
}

#[tokio::test]
async fn what_is_no_text_file_is_refused_by_name() {
    let mut desk = Desk::with(&[("bin", b"\x7fELF\0\0"), ("dir/x", b"x")]);
    let _socket = std::os::unix::net::UnixListener::bind(desk.path("socket")).unwrap();
    fs::File::create(desk.path("huge")).unwrap().set_len(2 << 30).unwrap();
    for (path, says) in [
        ("bin", "bin is binary"),
        ("dir", "Dir is a folder"),
        ("socket", "Socket is a socket"),
        ("/dev/zero", "/dev/zero is a device"),
        ("/proc/self/environ", "/proc/"),
        ("huge", "Huge has 2147483648 bytes"),
    ] {
        let error = desk.read(path).await.unwrap_err();
        assert_eq!(error.class, "unsupported", "{path}");
        assert!(error.message.to_lowercase().contains(&says.to_lowercase()), "{}", error.message);
        assert!(desk.write(path, "x").await.is_err(), "{path}");
        assert!(desk.edit(path, "x", "y").await.is_err(), "{path}");
    }
    assert_eq!(desk.bytes("bin"), b"\x7fELF\0\0");
}

#[tokio::test]
async fn a_path_that_is_wrong_brings_those_that_may_be_meant() {
    let mut desk = Desk::with(&[("src/lib.rs", b""), ("crates/x/main.rs", b"")]);
    let hint = |error: ToolError| error.hint.unwrap();
    assert_eq!(hint(desk.read("src/libs.rs").await.unwrap_err()), "Did you mean src/lib.rs?");
    assert_eq!(hint(desk.read("main.rs").await.unwrap_err()), "Did you mean crates/x/main.rs?");
    assert_eq!(hint(desk.edit("src/libs.rs", "a", "b").await.unwrap_err()), "Did you mean src/lib.rs?");
    assert_eq!(class_of(desk.read("nothing/like/that").await), "not_found");
    assert_eq!(class_of(desk.call("list_files", json!({ "path": "srcs" })).await), "not_found");
    assert_eq!(class_of(desk.read("src/lib.rs/x").await), "not_found");
}

#[tokio::test]
async fn an_edit_that_does_not_fit_says_why_before_anyone_is_asked() {
    let desk = Desk::with(&[("f", b"let a = 1;\nlet b = 2;\nlet a = 1;\n")]);
    let mut desk = desk;
    desk.read("f").await.unwrap();
    let args = |old: &str, new: &str| json!({ "path": "f", "old": old, "new": new });
    let error = desk.target("edit_file", &args("let a = 1;", "x")).await.unwrap_err();
    assert_eq!(error.message, "old is found 2 times in f: in lines 1, 3. Nothing was written.");
    let error = desk.target("edit_file", &args("let b = 3;", "x")).await.unwrap_err();
    assert_eq!(error.class, "no_match");
    assert!(error.hint.unwrap().contains("2: let b = 2;"));
    assert_eq!(desk.target("edit_file", &args("", "x")).await.unwrap_err().field.unwrap(), "/old");
    assert_eq!(desk.target("edit_file", &args("x", "x")).await.unwrap_err().field.unwrap(), "/new");
    let all = json!({ "path": "f", "old": "let a", "new": "let c", "all": true });
    assert_eq!(desk.call("edit_file", all).await.unwrap()["replaced"], 2);
}

#[tokio::test]
async fn what_is_refused_says_which_argument_and_what_would_do() {
    let mut desk = Desk::with(&[("latin", b"caf\xe9 x")]);
    fs::File::create(desk.path("large")).unwrap().set_len(20 << 20).unwrap();
    fs::File::create(desk.path("huge")).unwrap().set_len(2 << 30).unwrap();
    desk.read("latin").await.unwrap();
    let field = |error: ToolError| error.field.unwrap();
    assert_eq!(field(desk.edit("latin", "caf\u{e9}", "x").await.unwrap_err()), "/old");
    assert_eq!(field(desk.edit("latin", "x", "\u{e9}").await.unwrap_err()), "/new");
    let hint = |error: ToolError| error.hint.unwrap();
    assert!(hint(desk.edit("large", "x", "y").await.unwrap_err()).contains("search_files finds"));
    assert!(hint(desk.read("huge").await.unwrap_err()).contains("tail or sed -n"));
    let searched = desk.call("search_files", json!({ "pattern": "x", "path": "huge" })).await.unwrap();
    assert_eq!(searched["skipped"], "1 files too large to search");
}

#[tokio::test]
async fn results_stay_small_enough_to_be_shown_whole() {
    // 1.19 among others: no result is ever more than an event holds, whatever is in the files
    let mut desk =
        Desk::with(&[("long", "x".repeat(3 << 20).as_bytes()), ("quotes", "\"\\\u{1}\"\n".repeat(40_000).as_bytes())]);
    for n in 0..3000 {
        fs::write(desk.path(&format!("{n:04}{}", "n".repeat(100))), "needle \"\\\n").unwrap();
    }
    let long = desk.read("long").await.unwrap();
    assert!(long["cut_lines"].is_string());
    let quotes = desk.read("quotes").await.unwrap();
    assert!(quotes["left_out"].as_str().unwrap().ends_with("to 40000 did not fit: read on from there"), "{quotes}");
    let listed = desk.call("list_files", json!({})).await.unwrap();
    let entries = listed["entries"].as_array().unwrap().len();
    assert_eq!(entries as u64 + listed["left_out"].as_u64().unwrap(), 3002);
    let found = desk.call("search_files", json!({ "pattern": "needle|x{3}|\"" })).await.unwrap();
    assert!(found["incomplete"].is_string());
    for result in [long, quotes, listed, found] {
        assert!(result.to_string().len() < longrein_core::payload::INLINE_MAX_BYTES, "{}", result.to_string().len());
    }
}

#[tokio::test]
async fn a_range_is_read_and_one_that_is_none_is_told() {
    let mut desk = Desk::with(&[("f", b"a\nb\nc\n"), ("empty", b"")]);
    let read = |from: u64, to: u64| json!({ "path": "f", "from": from, "to": to });
    assert_eq!(desk.call("read_file", read(2, 3)).await.unwrap()["text"], "b\nc\n");
    assert_eq!(desk.call("read_file", read(3, 99)).await.unwrap()["text"], "c\n");
    assert_eq!(desk.call("read_file", read(4, 9)).await.unwrap_err().field.unwrap(), "/from");
    assert_eq!(desk.call("read_file", read(3, 2)).await.unwrap_err().field.unwrap(), "/to");
    assert_eq!(desk.call("read_file", read(0, 2)).await.unwrap_err().class, class::INVALID_ARGUMENTS);
    assert_eq!(desk.read("empty").await.unwrap(), json!({ "path": "empty", "total_lines": 0, "text": "" }));
}

#[tokio::test]
async fn files_are_listed_and_searched() {
    let mut desk = Desk::with(&[
        ("src/a.rs", b"fn one() {}\nfn two() {}\n"),
        ("src/b.rs", b"fn two() {}\n"),
        ("target/x.rs", b"fn two() {}\n"),
        (".gitignore", b"/target\n"),
    ]);
    assert_eq!(
        desk.call("list_files", json!({})).await.unwrap(),
        json!({ "path": ".", "entries": ["src/", "src/a.rs", "src/b.rs"] })
    );
    let found = desk.call("search_files", json!({ "pattern": "fn two", "context": 1 })).await.unwrap();
    let text = "src/a.rs\n1- fn one() {}\n2: fn two() {}\n\nsrc/b.rs\n1: fn two() {}\n";
    assert_eq!(found, json!({ "matches": 2, "files": 2, "found": text }));
    let one = desk.call("search_files", json!({ "pattern": "fn", "path": "src/b.rs" })).await.unwrap();
    assert_eq!(one["found"], "src/b.rs\n1: fn two() {}\n");
    let none = desk.call("search_files", json!({ "pattern": "three" })).await.unwrap();
    assert_eq!((&none["matches"], none["note"].is_string()), (&json!(0), true));
    let field = |error: ToolError| (error.class.clone(), error.field.unwrap());
    let bad = desk.call("search_files", json!({ "pattern": "f(" })).await.unwrap_err();
    assert!(bad.hint.as_ref().unwrap().contains("backslash"));
    assert_eq!(field(bad), (class::INVALID_ARGUMENTS.to_owned(), "/pattern".to_owned()));
    let bad = desk.call("search_files", json!({ "pattern": "f", "glob": "a[" })).await.unwrap_err();
    assert_eq!(field(bad), (class::INVALID_ARGUMENTS.to_owned(), "/glob".to_owned()));
}

#[tokio::test]
async fn secrets_in_files_are_not_shown() {
    let mut desk = Desk::with(&[("env", b"TOKEN=hunter2hunter2\nREGION=north\n")]);
    let read = desk.read("env").await.unwrap();
    assert_eq!(read["text"], "TOKEN=[redacted:TOKEN]\nREGION=north\n");
    let found = desk.call("search_files", json!({ "pattern": "TOKEN" })).await.unwrap();
    assert!(!found.to_string().contains("hunter2"));
    let error = desk.edit("env", "TOKEN=[redacted:TOKEN]\nREGION=north east", "x").await.unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    desk.edit("env", "north", "south").await.unwrap();
    assert_eq!(desk.bytes("env"), b"TOKEN=hunter2hunter2\nREGION=south\n");
}

#[tokio::test]
async fn a_placeholder_is_neither_looked_for_nor_written() {
    let mut desk =
        Desk::with(&[("env", b"TOKEN=hunter2hunter2\nREGION=north\n"), ("notes", b"it shows [redacted:KIND]\n")]);
    desk.read("env").await.unwrap();
    let refused = async |desk: &mut Desk, old: &str, new: &str| desk.edit("env", old, new).await.unwrap_err();
    let old = refused(&mut desk, "TOKEN=[redacted:TOKEN]", "TOKEN=other").await;
    assert_eq!((old.class.as_str(), old.field.as_deref()), (class::INVALID_ARGUMENTS, Some("/old")));
    assert!(old.message.contains("a secret does"), "{old:?}");
    let new = refused(&mut desk, "REGION=north", "KEY=[redacted:TOKEN]").await;
    assert_eq!(new.field.as_deref(), Some("/new"));
    for path in ["env", "fresh"] {
        let error = desk.write(path, "TOKEN=[redacted:TOKEN]\nREGION=south\n").await.unwrap_err();
        assert!(error.message.contains("would write the placeholder"), "{error:?}");
    }
    assert_eq!(desk.bytes("env"), b"TOKEN=hunter2hunter2\nREGION=north\n");
    assert!(!desk.path("fresh").exists());
    // a file that speaks of marks is a file like any other
    desk.read("notes").await.unwrap();
    desk.edit("notes", "it shows [redacted:KIND]", "we show [redacted:KIND]").await.unwrap();
    desk.write("notes", "they show [redacted:KIND]\n").await.unwrap();
    assert_eq!(desk.bytes("notes"), b"they show [redacted:KIND]\n");
    desk.write("fresh", "an index [redacted] or [redacted:two words]").await.unwrap();
}

#[tokio::test]
async fn no_lines_from_the_middle_of_a_private_key_are_shown() {
    let (open, close) = (["-----BEG", "IN "].concat(), ["-----E", "ND "].concat());
    let lines: Vec<String> = (0..30).map(|line| format!("aB3dE5gH7jK9mN{line:02}")).collect();
    let key = format!("first\n{open}RSA PRIVATE KEY-----\n{}\n{close}RSA PRIVATE KEY-----\nlast\n", lines.join("\n"));
    let mut desk = Desk::with(&[("key", key.as_bytes())]);
    for (from, to) in [(1, 100), (1, 10), (2, 2), (3, 3), (10, 20), (20, 100), (32, 34)] {
        let read = desk.call("read_file", json!({ "path": "key", "from": from, "to": to })).await.unwrap();
        let text = read["text"].as_str().unwrap();
        assert!(!text.contains("aB3d") && text.contains("[redacted:private-key]"), "{from} to {to}: {text}");
        assert_eq!(text.contains("first"), from == 1);
        assert_eq!(text.contains("last"), to >= 34, "{from} to {to}: {text}");
    }
    assert_eq!(desk.call("read_file", json!({ "path": "key", "from": 34 })).await.unwrap()["text"], "last\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever the order of reads, edits and writes: the file holds what the calls that were done say, and no byte more.
    #[test]
    fn the_file_is_what_the_calls_made_of_it(steps in prop::collection::vec((0u8..4, 0usize..6), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut desk = Desk::with(&[("f", b"w0 w1 w2\r\nw3 \xff w4 w5\r\n")]);
            let mut model = b"w0 w1 w2\r\nw3 \xff w4 w5\r\n".to_vec();
            let mut known = false;
            for (step, word) in steps {
                let old = format!("w{word}");
                match step {
                    0 => known = desk.read("f").await.is_ok(),
                    1 => {
                        let done = desk.edit("f", &old, &format!("({old}")).await;
                        let once = model.windows(2).filter(|window| *window == old.as_bytes()).count() == 1;
                        prop_assert_eq!(done.is_ok(), known && once);
                        if done.is_ok() {
                            let at = model.windows(2).position(|window| window == old.as_bytes()).unwrap();
                            model.insert(at, b'(');
                        }
                    }
                    2 => {
                        // somebody else
                        model.extend(b"!");
                        fs::write(desk.path("f"), &model).unwrap();
                        known = false;
                    }
                    _ => {
                        let done = desk.write("f", "w0 w1\nw2").await;
                        prop_assert_eq!(done.is_ok(), known);
                        if done.is_ok() {
                            let crlf = !model.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r')
                                && model.contains(&b'\n');
                            model = if crlf { b"w0 w1\r\nw2".to_vec() } else { b"w0 w1\nw2".to_vec() };
                        }
                    }
                }
                prop_assert_eq!(desk.bytes("f").escape_ascii().to_string(), model.escape_ascii().to_string());
            }
            Ok(())
        })?;
    }
}
