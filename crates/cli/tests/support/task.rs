//! Small tasks: a few tools in shell, and a script of replies.

use super::World;

/// Writes `task.toml` and its script. `more` goes between the head and the tools' tables; `replies` are `[[reply]]`s.
pub(crate) fn task(world: &World, more: &str, replies: &str) {
    world.write("task.toml", &format!("{HEAD}model = \"script/replies.toml\"\n{more}"));
    world.write("replies.toml", replies);
}

/// Writes `task.toml` for a model behind HTTP.
pub(crate) fn wire_task(world: &World, more: &str) {
    world.write("task.toml", &format!("{HEAD}model = \"openai/test\"\n{more}"));
}

/// Writes `task.toml` for this model.
pub(crate) fn model_task(world: &World, model: &str, more: &str) {
    world.write("task.toml", &format!("{HEAD}model = \"{model}\"\n{more}"));
}

/// Writes the operator's configuration.
pub(crate) fn configure(world: &World, text: &str) {
    let file = world.user().join(".config/longrein/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

const HEAD: &str = "goal = \"Do it.\"\nworkspace = \".\"\n";

/// A tool that runs a line of shell, in the task's folder. `more`: further keys of its table.
pub(crate) fn tool(name: &str, effect: &str, shell: &str, more: &str) -> String {
    format!(
        "[[tools]]\nname = \"{name}\"\ndescription = \"Does {name}.\"\neffect = \"{effect}\"\n\
         command = [\"sh\", \"-c\", '''{shell}''']\n{more}\n"
    )
}

/// A line in the ledger per start; what it prints is its result.
pub(crate) fn books(name: &str) -> String {
    format!("echo {name} >> ledger; echo '{{\"booked\":\"{name}\"}}'")
}

/// A reply that calls one tool.
pub(crate) fn calls(tool: &str, args: &str) -> String {
    format!("[[reply]]\ncalls = [{{ name = \"{tool}\", args = {args} }}]\nusage = {{ input = 100, output = 10 }}\n")
}

/// A reply that is an answer.
pub(crate) fn says(text: &str) -> String {
    format!("[[reply]]\ntext = \"{text}\"\nusage = {{ input = 100, output = 10 }}\n")
}

/// How often the ledger has this line.
pub(crate) fn booked(world: &World, line: &str) -> usize {
    world.read("ledger").lines().filter(|booked| *booked == line).count()
}
