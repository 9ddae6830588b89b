//! Every file in `scenarios/` comes true. The format is described in `longrein_sim::scenario`.

use std::path::Path;

#[test]
fn scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of scenarios is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "scenario"))
        .collect();
    files.sort();
    assert!(files.len() >= 20, "only {} scenarios are there", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(&file).expect("a scenario can be read");
        if let Err(what) = longrein_sim::scenario::run(&text) {
            wrong.push(format!("{name}: {what}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_scenario_that_does_not_come_true_says_which_line() {
    let text = "user: hello\nmodel: \"hi\"\nexpect: cancelled\n";
    let error = longrein_sim::scenario::run(text).expect_err("it ends done");
    assert!(error.starts_with("line 3: `expect: cancelled`"), "{error}");
}
