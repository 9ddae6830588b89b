//! What happens in a run, made from a seed before it begins: what the scripted model says at each turn, what its tools print,
//! what the operator sends, and what must never be lost on the way.
//!
//! Everything that is looked for in requests holds a code that occurs nowhere else ([`Watched`]), so a match is a match.

use std::collections::BTreeSet;

use crate::texts::{self, Dice, Kind};

/// How long a run is and how much the model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) name: &'static str,
    pub(crate) turns: usize,
    /// Tokens.
    pub(crate) window: u64,
}

pub(crate) const SIZES: [Size; 4] = [
    Size { name: "S", turns: 200, window: 32_000 },
    Size { name: "M", turns: 600, window: 32_000 },
    Size { name: "L", turns: 5_000, window: 32_000 },
    Size { name: "W", turns: 600, window: 200_000 },
];

/// What one run is made of.
pub(crate) struct Plan {
    pub(crate) size: Size,
    /// Answered in order; after the last the model says its answer.
    pub(crate) turns: Vec<Turn>,
    pub(crate) needles: Vec<Needle>,
    pub(crate) watched: Vec<Watched>,
    /// What the tool prints that is asked for output 0, 1, 2, …
    pub(crate) outputs: Vec<String>,
    /// Constraints of the task file.
    pub(crate) constraints: Vec<String>,
    /// Files of the workspace: path and content.
    pub(crate) rule_files: Vec<(String, String)>,
}

/// What the model says in answer to one request.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) says: String,
    pub(crate) calls: Vec<Call>,
    /// What the operator sends while the model thinks: it is in the next request.
    pub(crate) message: Option<String>,
    /// Effects that the model makes sure of; one that is not visible it repeats.
    pub(crate) checks: Vec<usize>,
    /// Facts that the model needs; one that is not visible it recalls.
    pub(crate) probes: Vec<usize>,
}

/// A call the model makes. Indices are of needles.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// Prints an output.
    Look { tool: &'static str, output: usize },
    /// Reads a file of the workspace.
    ReadFile { path: String },
    /// Acts on the world.
    Deploy { effect: usize },
    /// Notes something down; `replaces` is what it takes the place of.
    Note { kind: &'static str, text: String, about: usize, replaces: Option<usize> },
    /// Closes an open loop.
    Close { text: String, about: usize },
}

/// Tools that print an output, as the model sees them.
pub(crate) const LOOKS: [&str; 3] = ["run_tests", "query_logs", "show_source"];

/// Something that must be there when it is needed.
#[derive(Debug)]
pub(crate) struct Needle {
    pub(crate) what: What,
    /// The text that shows it is there.
    pub(crate) shown: usize,
    /// The first request that must show it.
    pub(crate) from: usize,
    /// The last one.
    pub(crate) until: usize,
    /// After `until`: what must be visible if the old text still is.
    pub(crate) then: Option<usize>,
    /// How a person would name it in the report.
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Constraint,
    Loop,
    Effect,
    Fact,
}

/// A text that is looked for in each request: whole, and at its code.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) text: String,
    /// Where its code stands in it.
    pub(crate) at: usize,
    /// What a model would ask for to find it again.
    pub(crate) query: String,
}

/// All codes begin with this and are this long; no other text has it.
pub(crate) const CODE_MARK: &str = "zq";
pub(crate) const CODE_BYTES: usize = 11;

/// What beside size and seed shapes a plan.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras {
    /// Some outputs are images in base64.
    pub(crate) images: bool,
}

pub(crate) fn make(size: Size, seed: u64, extras: Extras) -> Plan {
    let turns = (0..size.turns).map(|_| Turn::default()).collect();
    let plan = Plan {
        size,
        turns,
        needles: Vec::new(),
        watched: Vec::new(),
        outputs: Vec::new(),
        constraints: Vec::new(),
        rule_files: Vec::new(),
    };
    let mut maker = Maker { plan, dice: Dice::new(seed), extras };
    maker.outputs();
    maker.constraints();
    maker.loops();
    maker.effects();
    maker.facts();
    maker.plan
}

/// A plan while it grows.
struct Maker {
    plan: Plan,
    dice: Dice,
    extras: Extras,
}

impl Maker {
    fn turns(&self) -> usize {
        self.plan.size.turns
    }

    /// A turn between these shares of the run.
    fn turn(&mut self, from: f64, to: f64) -> usize {
        let share = from + (to - from) * self.dice.share();
        ((share * self.turns() as f64) as usize).clamp(1, self.turns() - 2)
    }

    fn code(&mut self, letter: char) -> String {
        let number = self.plan.watched.len();
        format!("{CODE_MARK}{letter}{number:04}{}", self.dice.hex(4))
    }

    fn watch(&mut self, text: String, code: &str, query: String) -> usize {
        let at = text.find(code).expect("the text has its code");
        self.plan.watched.push(Watched { text, at, query });
        self.plan.watched.len() - 1
    }

    // ---- what tools print ----

    fn outputs(&mut self) {
        for turn in 0..self.turns() {
            let tool = self.dice.pick(&LOOKS);
            let (kind, size) = (self.kind(), self.output_size());
            let output = self.output(kind, size);
            self.plan.turns[turn].calls.push(Call::Look { tool, output });
            if self.dice.below(3) == 0 {
                let words = texts::text(&mut self.dice, Kind::English, 120);
                self.plan.turns[turn].says = words.trim().chars().filter(|sign| *sign != '`').collect();
            }
        }
        // One reply with many calls at once.
        let turn = self.turns() / 3;
        for _ in 0..PARALLEL - 1 {
            let (kind, tool) = (self.kind(), self.dice.pick(&LOOKS));
            let size = self.plan.size.window as f64 * 0.003;
            let output = self.output(kind, size);
            self.plan.turns[turn].calls.push(Call::Look { tool, output });
        }
    }

    fn kind(&mut self) -> Kind {
        if self.extras.images && self.dice.below(20) == 0 {
            return Kind::Blob;
        }
        match self.dice.below(100) {
            0..35 => Kind::Code,
            35..60 => Kind::Log,
            60..80 => Kind::Json,
            80..95 => Kind::English,
            _ => Kind::Chinese,
        }
    }

    /// In tokens.
    fn output_size(&mut self) -> f64 {
        let window = self.plan.size.window as f64;
        self.dice.log_normal(OUTPUT_MEDIAN * window, OUTPUT_SIGMA).min(OUTPUT_CAP * window)
    }

    fn output(&mut self, kind: Kind, tokens: f64) -> usize {
        let bytes = (tokens * bytes_per_token(kind)) as usize;
        let text = texts::text(&mut self.dice, kind, bytes.max(60));
        self.plan.outputs.push(text);
        self.plan.outputs.len() - 1
    }

    // ---- what must not be lost ----

    fn constraints(&mut self) {
        let mut replaceable = Vec::new();
        for _ in 0..CONSTRAINTS_AT_START {
            let (text, shown) = self.constraint();
            self.plan.constraints.push(text);
            let name = format!("constraint {} of the task", self.plan.needles.len());
            replaceable.push(self.must_show(What::Constraint, shown, 0, name));
        }
        for number in 0..CONSTRAINTS_LATER {
            let share = (number as f64 + 0.5) / CONSTRAINTS_LATER as f64;
            let turn = self.turn(share * 0.7, share * 0.7 + 0.05);
            let (text, shown) = self.constraint();
            if RULE_FILES.contains(&number) {
                let path = format!("area{number}/AGENTS.md");
                self.plan.rule_files.push((path.clone(), format!("# Rules of this folder\n\n- {text}\n")));
                self.plan.turns[turn].calls.push(Call::ReadFile { path });
                let name = format!("constraint of a rule file read at {turn}");
                self.must_show(What::Constraint, shown, turn + 1, name);
                continue;
            }
            self.send(turn, format!("One more thing that holds from now on. {text}"));
            let name = format!("constraint sent at {turn}");
            let about = self.must_show(What::Constraint, shown, turn + 1, name);
            replaceable.push(about);
            if number % 2 == 0 {
                let note = Call::Note { kind: "constraint", text, about, replaces: None };
                self.plan.turns[turn + 1].calls.push(note);
            }
        }
        // One that was there from the start, one that the model noted, one that nobody did.
        for (number, old) in [replaceable[1], replaceable[4], replaceable[5]].into_iter().enumerate() {
            let turn = self.turn(0.55 + 0.12 * number as f64, 0.60 + 0.12 * number as f64);
            let (text, shown) = self.constraint();
            let old_text = self.plan.watched[self.plan.needles[old].shown].text.clone();
            self.send(turn, format!("This no longer holds: \"{old_text}\" Instead: {text}"));
            self.plan.needles[old].until = turn;
            self.plan.needles[old].then = Some(shown);
            let about = self.must_show(What::Constraint, shown, turn + 1, format!("constraint replaced at {turn}"));
            let note = Call::Note { kind: "constraint", text, about, replaces: Some(old) };
            self.plan.turns[turn + 1].calls.push(note);
        }
    }

    fn constraint(&mut self) -> (String, usize) {
        let code = self.code('c');
        let text = self.dice.pick(CONSTRAINTS).replace("CODE", &code);
        let shown = self.watch(text.clone(), &code, code.clone());
        (text, shown)
    }

    /// A message of the operator's. Two in one turn are one message.
    fn send(&mut self, turn: usize, text: String) {
        let message = self.plan.turns[turn].message.take();
        self.plan.turns[turn].message = Some(message.map_or(text.clone(), |before| format!("{before}\n\n{text}")));
    }

    fn must_show(&mut self, what: What, shown: usize, from: usize, name: String) -> usize {
        let until = self.turns();
        self.plan.needles.push(Needle { what, shown, from, until, then: None, name });
        self.plan.needles.len() - 1
    }

    fn loops(&mut self) {
        for number in 0..self.turns() / TURNS_PER_LOOP {
            let opened = self.turn(0.02, 0.85);
            let longest = LOOP_LONGEST.min(self.turns() / 2);
            let closed = (opened + LOOP_SHORTEST + self.dice.below(longest - LOOP_SHORTEST)).min(self.turns() - 1);
            let code = self.code('l');
            let text = self.dice.pick(LOOPS).replace("CODE", &code);
            let shown = self.watch(text.clone(), &code, code.clone());
            let about = self.must_show(What::Loop, shown, opened + 1, format!("loop {number} opened at {opened}"));
            let code = self.code('d');
            let done = format!("Answered under {code}: it was the connection pool.");
            let then = self.watch(done.clone(), &code, code.clone());
            self.plan.needles[about].until = closed;
            self.plan.needles[about].then = Some(then);
            let note = Call::Note { kind: "open_loop", text, about, replaces: None };
            self.plan.turns[opened].calls.push(note);
            self.plan.turns[closed].calls.push(Call::Close { text: done, about });
        }
    }

    fn effects(&mut self) {
        for number in 0..self.turns() / TURNS_PER_EFFECT {
            let turn = self.turn(0.02, 0.85);
            let code = self.code('e');
            let shown = self.watch(code.clone(), &code, code.clone());
            let effect = self.must_show(What::Effect, shown, turn + 1, format!("effect {number} of turn {turn}"));
            self.plan.turns[turn].calls.push(Call::Deploy { effect });
            for later in EFFECT_CHECKS {
                if let Some(turn) = self.plan.turns.get_mut(turn + later) {
                    turn.checks.push(effect);
                }
            }
        }
    }

    /// Each stands in the middle of a large output. Half of them are asked for by plain words that other facts share.
    fn facts(&mut self) {
        let mut taken = BTreeSet::new();
        for number in 0..self.turns() / TURNS_PER_FACT {
            let turn = loop {
                let turn = self.turn(0.02, 0.80);
                if taken.insert(turn) {
                    break turn;
                }
            };
            let value = self.code('v');
            let query = if number % 2 == 0 {
                let (colour, animal) = (number / 2 % COLOURS.len(), number / 2 / COLOURS.len() % ANIMALS.len());
                format!("signing port of the {} {} service {}", COLOURS[colour], ANIMALS[animal], number / 288)
            } else {
                format!("retention of bucket {}", self.dice.hex(8))
            };
            let line = format!("note: the {query} is {value}\n");
            let window = self.plan.size.window as f64;
            let tokens = window * (FACT_LEAST + (FACT_MOST - FACT_LEAST) * self.dice.share());
            let kind = self.kind();
            let mut text = texts::text(&mut self.dice, kind, (tokens * bytes_per_token(kind)) as usize);
            let middle = text[..floor(&text, text.len() / 2)].rfind('\n').map_or(0, |end| end + 1);
            text.insert_str(middle, &line);
            let output = self.plan.outputs.len();
            self.plan.outputs.push(text);
            // Takes the place of what this turn would have looked at.
            self.plan.turns[turn].calls[0] = Call::Look { tool: self.dice.pick(&LOOKS), output };
            let shown = self.watch(value.clone(), &value, query);
            let fact = self.must_show(What::Fact, shown, turn + 1, format!("fact {number} of turn {turn}"));
            let last = self.turns() - 1;
            let longest = (self.turns() / 2).max(FACT_SOONEST + 1);
            let probed = (turn + FACT_SOONEST + self.dice.below(longest - FACT_SOONEST)).min(last);
            self.plan.turns[probed].probes.push(fact);
        }
    }
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Roughly, to make outputs of a size in tokens; what they are in truth is counted.
fn bytes_per_token(kind: Kind) -> f64 {
    match kind {
        Kind::Code => 3.6,
        Kind::English => 4.4,
        Kind::Chinese => 4.2,
        Kind::Json => 2.9,
        Kind::Log => 2.2,
        Kind::Blob => 1.4,
    }
}

/// Shares of the window.
const OUTPUT_MEDIAN: f64 = 0.01;
const OUTPUT_SIGMA: f64 = 1.2;
const OUTPUT_CAP: f64 = 0.30;
/// Calls of the one reply that has many.
const PARALLEL: usize = 30;

const CONSTRAINTS_AT_START: usize = 4;
const CONSTRAINTS_LATER: usize = 8;
/// Which of the later ones stand in a rule file; the others are sent.
const RULE_FILES: [usize; 3] = [2, 5, 7];

const TURNS_PER_LOOP: usize = 25;
const LOOP_SHORTEST: usize = 15;
const LOOP_LONGEST: usize = 150;

const TURNS_PER_EFFECT: usize = 25;
/// How many turns later the model makes sure.
const EFFECT_CHECKS: [usize; 3] = [15, 45, 90];

const TURNS_PER_FACT: usize = 12;
/// Turns before a fact may be asked for.
const FACT_SOONEST: usize = 15;
/// Size of the output a fact stands in, as a share of the window.
const FACT_LEAST: f64 = 0.03;
const FACT_MOST: f64 = 0.10;

const CONSTRAINTS: &[&str] = &[
    "Never change the schema CODE without asking the owner of the billing data first.",
    "Do not restart the service CODE between eight in the morning and six in the evening.",
    "Keep the public interface of CODE as it is, even where it is ugly.",
    "Write every migration of CODE so that it can be undone.",
    "Nothing from the customer table CODE may appear in a log or in a commit message.",
    "Tests of CODE run against the copy and never against the original.",
];
const LOOPS: &[&str] = &[
    "Find out why CODE times out after its second retry.",
    "Ask whether CODE may be removed, nobody seems to call it.",
    "The numbers of CODE differ between the two reports, look into it.",
    "Run CODE again when the nightly build is through.",
];
const COLOURS: [&str; 12] = [
    "amber", "crimson", "olive", "indigo", "silver", "copper", "violet", "scarlet", "ivory", "teal", "umber", "golden",
];
const ANIMALS: [&str; 12] =
    ["falcon", "otter", "badger", "heron", "lynx", "marten", "osprey", "beaver", "weasel", "plover", "bison", "gecko"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_plan_and_another_is_another() {
        let text = |seed| {
            let plan = make(SIZES[0], seed, Extras::default());
            format!("{:?} {:?} {:?} {:?}", plan.turns, plan.needles, plan.watched, plan.outputs)
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn every_kind_of_loss_can_happen_in_the_smallest_run() {
        for seed in 0..20 {
            let plan = make(SIZES[0], seed, Extras::default());
            let count = |what| plan.needles.iter().filter(|needle| needle.what == what).count();
            assert_eq!(count(What::Constraint), CONSTRAINTS_AT_START + CONSTRAINTS_LATER + 3);
            assert_eq!((count(What::Loop), count(What::Effect), count(What::Fact)), (8, 8, 16));
            assert!(plan.needles.iter().all(|needle| needle.from <= needle.until && needle.until <= plan.size.turns));
            assert_eq!(plan.turns.iter().map(|turn| turn.probes.len()).sum::<usize>(), 16);
            assert!(plan.turns.iter().any(|turn| turn.calls.len() >= PARALLEL));
            assert_eq!(plan.rule_files.len(), RULE_FILES.len());
        }
    }

    #[test]
    fn a_code_stands_in_one_watched_text_only() {
        let plan = make(SIZES[0], 3, Extras::default());
        for watched in &plan.watched {
            let code = &watched.text[watched.at..watched.at + CODE_BYTES];
            let places = plan.watched.iter().filter(|other| other.text.contains(code)).count();
            assert_eq!(places, 1, "{code}");
        }
    }
}
