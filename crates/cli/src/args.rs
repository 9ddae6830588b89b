//! The command line, as clap sees it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::failure::{Failure, Form, Status};

/// Runs a language model's work so that it survives crashes, keeps its budget and asks before it acts.
#[derive(Debug, Parser)]
#[command(name = "longrein", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true, after_help = STATUSES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) globals: Globals,
}

/// The statuses of the command line, for `--help`.
const STATUSES: &str = "\
Statuses: 0 done · 2 a budget ran out · 3 waits for a person · 4 failed · 5 model not reachable · 6 conversation too long · \
7 cancelled · 64 usage · 65 bad task or data · 66 no such run or action · 69 held or store unavailable · 70 internal · \
75 --crash-at · 78 configuration · 130 interrupted · 143 terminated. Where a run can go on, the last line on stderr is the \
command that does it.

Try: longrein run --task examples/checkout/task.toml";

#[derive(Debug, Args, Clone)]
pub(crate) struct Globals {
    /// Where runs are kept: sqlite:PATH, or memory: for a run nobody needs again [default: in LONGREIN_HOME]
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_name = "URL",
        env = "LONGREIN_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,
    /// Print machine-readable JSON on stdout (one event a line for runs)
    #[arg(long, global = true, display_order = 901)]
    pub(crate) json: bool,
    /// No progress on stderr
    #[arg(long, short = 'q', global = true, display_order = 902)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a run, or go on with one under --id
    #[command(alias = "exec")]
    Run(Box<RunArgs>),
    /// Go on with an unfinished run, from any directory
    Resume(Box<ResumeArgs>),
    /// Send a message to a run, running or not
    Send(SendArgs),
    /// List the runs
    Runs(RunsArgs),
    /// One run at a glance
    Show(OneRun),
    /// A run's journal, readable
    Log(LogArgs),
    /// The request a run's model is or was sent, by zone, with token counts
    Context(ContextArgs),
    /// What waits for a person, over all runs
    Approvals(NoArgs),
    /// Say yes to actions that wait
    Approve(ApproveArgs),
    /// Say no to actions that wait
    Deny(DenyArgs),
    /// Tell what became of an effect whose outcome is unknown
    Settle(SettleArgs),
    /// Trust a source from now on: what was read of it taints no run any more
    Endorse(EndorseArgs),
    /// Undo what a run changed in its workspace; shows the paths first. What acted on the world stays
    Rollback(RollbackArgs),
    /// Bring a run to rest; says what is done and not undone
    Cancel(OneRun),
    /// Check every record of a run's journal
    Verify(OneRun),
    /// What models are configured, where they are, and whether they answer
    Models(ModelsArgs),
    /// A new run from a point of another's journal
    Fork(ForkArgs),
    /// Print a run for other programs to read
    Export(ExportArgs),
    /// Remove runs that have ended; their ids and business keys are not used again
    Rm(RmArgs),
    /// Remove large results that no run refers to any more
    Gc(GcArgs),
    /// Trust the files of its own that a workspace brings, as they are now: .longrein/config.toml, which may only tighten, and
    /// .mcp.json, which starts programs. Shows what they say, and asks
    Trust(TrustArgs),
    /// Permission rules, without a run
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Programs: the loop's shape as data
    #[command(subcommand)]
    Program(ProgramCommand),
    /// Which tools a run has: effect, source, schema, whether they can run here, and what their descriptions lack
    Tools(ToolsArgs),
    /// What works here: store, file modes, SQLite, kernel, git, model configuration, terminal
    Doctor(DoctorArgs),
    /// Serve runs to programs that speak the Model Context Protocol, on stdin and stdout or over HTTP on this machine
    Mcp(McpArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page (roff); read it with: longrein man | man -l -
    Man(NoArgs),
    #[command(external_subcommand)]
    Later(Vec<String>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Say what the gate would rule of each call in a file. Nothing is run
    Check(PolicyCheckArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProgramCommand {
    /// The programs that come along
    List(NoArgs),
    /// Check a program and draw it, as text and as a Mermaid flowchart. Nothing is run
    Show(ProgramShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProgramShowArgs {
    /// react, direct, plan, reflexion, or a program file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) program: String,
    /// The task it is to run in: whether that has the tools, facts and checks it names
    #[arg(long, value_name = "FILE")]
    pub(crate) task: Option<PathBuf>,
    /// Only the Mermaid flowchart
    #[arg(long, conflicts_with = "source")]
    pub(crate) mermaid: bool,
    /// Only the program file of one that comes along, to copy and change
    #[arg(long, conflicts_with = "task")]
    pub(crate) source: bool,
    /// K=V: replaces ${K} in the task file. Repeatable
    #[arg(long = "var", value_name = "K=V")]
    pub(crate) vars: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyCheckArgs {
    /// One call a line: {"id", "tool", "args", "mode", "workspace", "context"}. "-" reads stdin
    pub(crate) file: PathBuf,
    /// The task whose rules and tools count
    #[arg(long, value_name = "FILE")]
    pub(crate) task: Option<PathBuf>,
    /// The workspace of lines that name none [default: the task's, else here]
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// Allow calls without asking. Repeatable
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,
    /// Ask before calls. Repeatable
    #[arg(long, value_name = "RULE")]
    pub(crate) ask: Vec<String>,
    /// Never make calls. Repeatable
    #[arg(long, value_name = "RULE")]
    pub(crate) deny: Vec<String>,
    /// K=V: replaces ${K} in the task file. Repeatable
    #[arg(long = "var", value_name = "K=V")]
    pub(crate) vars: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// The workspace [default: the git root, else here]
    pub(crate) dir: Option<PathBuf>,
    /// Do not ask: what is shown is trusted
    #[arg(long)]
    pub(crate) yes: bool,
    /// List what is trusted, and whether it is still as it was
    #[arg(long, conflicts_with_all = ["dir", "forget"])]
    pub(crate) list: bool,
    /// Trust it no more
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    pub(crate) forget: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct NoArgs {}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// A task file (TOML); without it, the built-in tools
    #[arg(long, value_name = "FILE")]
    pub(crate) task: Option<PathBuf>,
    /// K=V: replaces ${K} in the task file. Repeatable
    #[arg(long = "var", value_name = "K=V")]
    pub(crate) vars: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Try to reach the configured model too
    #[arg(long)]
    pub(crate) probe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Ask no server: list what is configured
    #[arg(long)]
    pub(crate) no_probe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    /// The last event that comes along, as `log` numbers them; rounded down to the end of a turn [default: all]
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
    /// The new run's id [default: a random one]
    #[arg(long = "as", value_name = "ID")]
    pub(crate) new: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub(crate) format: ExportFormat,
    /// With what a provider said beside a reply: thoughts, signatures, fields nobody reads (jsonl only)
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The events, one a line, with large results in their places
    Jsonl,
    /// The conversation as one line of OpenAI chat messages
    Openai,
    /// The conversation in the Agent Trajectory Interchange Format
    Atif,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The runs' ids, or beginnings of them that no other run has
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Remove ended runs too that nothing was heard of for this long, for example 90d
    #[arg(long, value_name = "TIME")]
    pub(crate) older_than: Option<String>,
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask before runs are removed, on a terminal
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args, Default)]
pub(crate) struct RunArgs {
    /// What to do. "-" reads it from stdin; piped stdin beside a prompt is context
    pub(crate) prompt: Option<String>,
    /// A task file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) task: Option<PathBuf>,
    /// An image to show with the goal: png, jpeg, gif or webp. Repeatable
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// Start under this id, or go on with the run that has it
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// PROVIDER/MODEL: openai/NAME (any compatible server), openai-responses/NAME, anthropic/NAME, gemini/NAME, ollama/NAME,
    /// script/FILE
    #[arg(short = 'm', long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
    /// The workspace [default: the task's, else the git root, else here]
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// An acceptance check: a command that must exit 0 before the run is done. Repeatable
    #[arg(long = "check", value_name = "CMD")]
    pub(crate) checks: Vec<String>,
    /// Allow calls without asking: a tool by name, or tool(pattern), as in shell(git status *). Repeatable
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,
    /// Ask before calls: a tool by name, or tool(pattern). Repeatable
    #[arg(long, value_name = "RULE")]
    pub(crate) ask: Vec<String>,
    /// Never make calls: a tool by name, or tool(pattern), as in write_file(.github/**). Repeatable
    #[arg(long, value_name = "RULE")]
    pub(crate) deny: Vec<String>,
    /// Answered model turns
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_turns: Option<String>,
    /// Attempts at model calls, failed and lost ones too
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_model_calls: Option<String>,
    /// Tool calls
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_tool_calls: Option<String>,
    /// Tokens in and out, over all attempts
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_tokens_total: Option<String>,
    /// Dollars
    #[arg(long, value_name = "USD", allow_hyphen_values = true)]
    pub(crate) max_budget_usd: Option<String>,
    /// Working time, for example 10m; waits for people do not count
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) max_time: Option<String>,
    /// A point in time (RFC 3339) at which the run ends
    #[arg(long, value_name = "WHEN")]
    pub(crate) deadline: Option<String>,
    /// K=V: replaces ${K} in the task file. Repeatable
    #[arg(long = "var", value_name = "K=V")]
    pub(crate) vars: Vec<String>,
    #[command(flatten)]
    pub(crate) drive: DriveArgs,
    /// The loop's shape: react, direct, plan, reflexion, or a program file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) program: Option<String>,
    /// A JSON Schema that the answer must fit
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
    /// Serve over HTTP on this loopback address, under /mcp, instead of stdin and stdout
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) http: Option<std::net::SocketAddr>,
    /// The variable that holds the token a client must show (with --http)
    #[arg(long, value_name = "NAME", default_value = "LONGREIN_MCP_TOKEN")]
    pub(crate) token_env: String,
    /// The client speaks for a person: offer approve, deny and settle, and let it loosen the permission mode
    #[arg(long)]
    pub(crate) operator: bool,
    /// How much a run may do without asking, at most: plan, ask, accept-edits, auto, shadow [default: the configuration's, else
    /// ask; a task file's own]
    #[arg(long, value_name = "MODE")]
    pub(crate) permission_mode: Option<String>,
    /// Start only task files that lie in this folder. Repeatable [default: any]
    #[arg(long = "tasks", value_name = "DIR")]
    pub(crate) tasks: Vec<PathBuf>,
    /// Runs that are driven at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) max_runs: u16,
}

/// What `run` and `resume` share.
#[derive(Debug, Args, Default)]
pub(crate) struct DriveArgs {
    /// What to do when a call needs a person's yes [default: prompt on a terminal, else deny; what waits already goes on
    /// waiting]
    #[arg(long, value_name = "HOW")]
    pub(crate) on_ask: Option<OnAsk>,
    /// How much it may do without asking: plan (only reads), ask, accept-edits, auto (what the sandbox contains), shadow (only
    /// says what it would do) [default: the task's, else ask]
    #[arg(long, value_name = "MODE")]
    pub(crate) permission_mode: Option<String>,
    /// How commands are confined: best (the strongest that works here), required (the full one or no run), external (trusted
    /// to the surroundings) [default: best]
    #[arg(long, value_name = "HOW")]
    pub(crate) sandbox: Option<String>,
    /// Write the answer to this file too, if the run is done
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output_last_message: Option<PathBuf>,
    /// Die at a named point (POINT or POINT:N), to see that a run survives it; "list" prints the points
    #[arg(long, value_name = "POINT[:N]")]
    pub(crate) crash_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnAsk {
    /// Ask here, on the terminal
    Prompt,
    /// Park the run (status 3) until somebody approves or denies
    Wait,
    /// Say no
    Deny,
}

#[derive(Debug, Args, Default)]
pub(crate) struct ResumeArgs {
    /// The run's id; without it, the unfinished runs are listed
    pub(crate) id: Option<String>,
    /// The unfinished run that was at work last
    #[arg(long, conflicts_with = "id")]
    pub(crate) last: bool,
    /// Raise the budget of turns by N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) add_turns: Option<String>,
    /// Raise the budget of model calls by N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) add_model_calls: Option<String>,
    /// Raise the budget of tool calls by N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) add_tool_calls: Option<String>,
    /// Raise the budget of tokens by N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) add_tokens: Option<String>,
    /// Raise the budget of dollars by USD
    #[arg(long, value_name = "USD", allow_hyphen_values = true)]
    pub(crate) add_usd: Option<String>,
    /// Raise the budget of working time, for example by 10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) add_time: Option<String>,
    /// Go on with another model
    #[arg(short = 'm', long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
    /// Say this to the model first
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// An image to go with the message: png, jpeg, gif or webp. Repeatable
    #[arg(long = "image", value_name = "FILE", requires = "message")]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) drive: DriveArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    /// What to tell the model
    pub(crate) text: String,
    /// An image to go with it: png, jpeg, gif or webp. Repeatable
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    /// Back to before this action, for example a4: it and all that came after are undone. Without it, everything
    #[arg(long, value_name = "ACTION")]
    pub(crate) to: Option<String>,
    /// Do it without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EndorseArgs {
    /// A host, a server or an absolute path, as `longrein show ID` lists it. A host is that host only
    #[arg(conflicts_with_all = ["list", "forget"])]
    pub(crate) source: Option<String>,
    /// Print the sources that are trusted
    #[arg(long)]
    pub(crate) list: bool,
    /// Trust this source no more
    #[arg(long, value_name = "SOURCE", conflicts_with = "list")]
    pub(crate) forget: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Sums over all runs instead: how they ended, what failed, what it cost
    #[arg(long)]
    pub(crate) stats: bool,
    /// Children too: the runs that other runs asked for
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    /// Go on printing until the run rests or waits
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// With what a provider said beside a reply: thoughts, signatures, fields nobody reads; and with its refusals whole
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    /// The request as it was sent for this turn, in its last attempt [default: as it would be sent now]
    #[arg(long, value_name = "N")]
    pub(crate) turn: Option<u32>,
    /// Zones and one line a piece, without their texts
    #[arg(long)]
    pub(crate) summary: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    /// Actions, for example a7
    #[arg(required = true, value_name = "ACTION")]
    pub(crate) actions: Vec<String>,
    /// Every call exactly like it too, for the rest of this run: same tool, same arguments. Not for a run that has read what
    /// others could have written
    #[arg(long)]
    pub(crate) always: bool,
    /// Why; kept in the journal
    #[arg(long)]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    /// Actions, for example a7
    #[arg(required = true, value_name = "ACTION")]
    pub(crate) actions: Vec<String>,
    /// Told to the model
    #[arg(long)]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    /// The run's id, or a beginning of it that no other run has
    pub(crate) id: String,
    /// The action whose outcome is unknown, for example a4
    pub(crate) action: String,
    /// What really became of it
    #[arg(long = "as", value_name = "TRUTH")]
    pub(crate) truth: SettleAs,
    /// Its result, as JSON, if it was done
    #[arg(long, value_name = "JSON")]
    pub(crate) result: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SettleAs {
    Done,
    NotDone,
}

/// Prints what clap has to say, with our statuses: 0 for help and version, else 64.
pub(crate) fn usage(error: &clap::Error, form: Form) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion, UnknownArgument};
    let is_asked_for = matches!(error.kind(), DisplayHelp | DisplayVersion);
    let meant = if error.kind() == UnknownArgument { unquoted(std::env::args().skip(1)) } else { None };
    if form == Form::Json && !is_asked_for {
        let said = error.render().to_string();
        let problem = said.trim_start_matches("error: ").trim_end();
        return Failure { status: Status::Usage, problem: problem.to_owned(), way_out: meant }.print(form);
    }
    // Nothing can be done about a closed stdout or stderr here.
    let _ = error.print();
    if let Some(command) = meant {
        crate::out::tell!("a prompt of several words goes in quotes:");
        crate::out::tell!("{command}");
    }
    if is_asked_for { ExitCode::SUCCESS } else { Status::Usage.into() }
}

/// The command that was meant where the words of a prompt follow `run` without quotes. None: flags are among them, so that
/// nobody knows which word belongs to which.
fn unquoted(words: impl Iterator<Item = String>) -> Option<String> {
    let words: Vec<String> = words.collect();
    let (command, prompt) = words.split_first()?;
    let is_run = command == "run" || command == "exec";
    let is_plain = prompt.len() > 1 && prompt.iter().all(|word| !word.starts_with('-'));
    (is_run && is_plain).then(|| format!("longrein {command} {}", crate::context::quoted(&prompt.join(" "))))
}

/// Commands of the contract that a later version brings.
const LATER: &[&str] = &["serve", "worker", "acp", "eval"];

pub(crate) fn not_yet(words: &[String]) -> Failure {
    let word = words.first().map(String::as_str).unwrap_or_default();
    if LATER.contains(&word) {
        Failure::new(Status::Usage, format!("not yet: \"{word}\" comes with a later version"))
    } else {
        Failure::new(Status::Usage, format!("there is no command \"{}\"", crate::words::safe(word)))
            .way_out("longrein --help")
    }
}

/// The other way round: servers of somebody else's whose tools are used.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// The servers whose tools are used, and whether they let us in
    List(McpListArgs),
    /// Log in to a server at an address, with a browser
    Login(McpLoginArgs),
    /// Remove the tokens of a server
    Logout(McpLogoutArgs),
}

#[derive(Debug, Args)]
pub(crate) struct McpListArgs {
    /// Those of a task file as well
    #[arg(long, value_name = "FILE")]
    pub(crate) task: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct McpLoginArgs {
    /// Of the server, as its table is called
    pub(crate) name: String,
    /// The task file that declares it
    #[arg(long, value_name = "FILE")]
    pub(crate) task: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct McpLogoutArgs {
    /// Of the server, as its table is called
    pub(crate) name: String,
    /// The task file that declares it
    #[arg(long, value_name = "FILE")]
    pub(crate) task: Option<PathBuf>,
}
