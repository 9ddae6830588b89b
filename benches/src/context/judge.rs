//! Holds every request against the plan, as it arrives: what must be visible, what must not, and what it cost. Nothing of
//! what the client claims goes in, only what it sent.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use longrein_core::context::estimate::{Estimator, Features};

use super::plan::{Needle, Plan, What};
use super::request::{Request, Role, Segment, shared};

/// All that is known about a run.
pub(crate) struct Judge {
    plan: Arc<Plan>,
    /// Tokens the server serves.
    served: u64,
    /// Tokens the client knows it may use: what it was told, until it was refused.
    known: u64,
    /// The latest requests: what a server's cache still holds.
    cache: VecDeque<Vec<Arc<Segment>>>,
    before: Option<(u64, Vec<Arc<Segment>>)>,
    watching: Watching,
    everything: Everything,
    estimator: Estimator,
    pub(crate) found: Findings,
}

/// Which of the watched texts a request shows.
#[derive(Default)]
struct Watching {
    anywhere: Vec<bool>,
    /// Outside of what tools printed.
    outside: Vec<bool>,
    /// In the last tokens.
    at_end: Vec<bool>,
}

/// What was counted over a run.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) requests: u64,
    pub(crate) over_limit: Tally,
    pub(crate) refused: u64,
    pub(crate) broken_pairs: Tally,
    pub(crate) constraints: Retention,
    pub(crate) loops: Retention,
    pub(crate) effects: Retention,
    pub(crate) repeated: u64,
    pub(crate) stale: Tally,
    pub(crate) probes: u64,
    /// Visible when asked for, and visible after one recall.
    pub(crate) probes_shown: u64,
    pub(crate) probes_recalled: Tally,
    pub(crate) sent: Vec<u64>,
    pub(crate) hits: u64,
    pub(crate) breaks: u64,
    pub(crate) invalidated: u64,
    pub(crate) compactions: u64,
    pub(crate) summaries: u64,
    pub(crate) output: u64,
    pub(crate) cost: [f64; PROFILES.len()],
    pub(crate) cost_of_everything: [f64; PROFILES.len()],
    /// Own CPU between two requests of one process.
    pub(crate) cpu: Vec<Duration>,
    /// From the end of a response to the next request, of turns that carried on and of turns that cut back.
    pub(crate) gaps: Vec<Duration>,
    pub(crate) gaps_of_rebuilds: Vec<Duration>,
    pub(crate) gaps_of_recalls: Vec<Duration>,
    /// How far the estimator of core was off, in tokens, and how often a request was above its bound.
    pub(crate) off: Vec<u64>,
    pub(crate) bound_missed: u64,
    /// Requests after a kill, and those of them that are not the one that was lost.
    pub(crate) resent: u64,
    pub(crate) resent_otherwise: Tally,
}

/// Something that must not happen, how often it did, and the first time.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) times: u64,
    pub(crate) first: Option<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, what: impl FnOnce() -> String) {
        self.times += 1;
        if self.first.is_none() {
            self.first = Some(what());
        }
    }
}

/// Of what must be shown at many requests: at how many it was.
#[derive(Default)]
pub(crate) struct Retention {
    pub(crate) due: u64,
    pub(crate) shown: u64,
    pub(crate) at_end: u64,
    pub(crate) first_loss: Option<String>,
}

impl Retention {
    fn add(&mut self, shown: bool, at_end: bool, loss: impl FnOnce() -> String) {
        self.due += 1;
        self.shown += u64::from(shown);
        self.at_end += u64::from(at_end);
        if !shown && self.first_loss.is_none() {
            self.first_loss = Some(loss());
        }
    }
}

/// How the client was found when a request arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// Own CPU since the request before; none where another process sent that one.
    pub(crate) cpu: Option<Duration>,
    /// Since the response to the request before was written.
    pub(crate) gap: Option<Duration>,
    /// Whether this answers a recall.
    pub(crate) after_recall: bool,
}

/// What a server would say it counted, and what the model sees.
pub(crate) struct Counted {
    pub(crate) tokens: u64,
    pub(crate) cached: u64,
    pub(crate) fits: bool,
}

impl Judge {
    pub(crate) fn new(plan: Arc<Plan>, declared: u64, served: u64) -> Self {
        Self {
            plan,
            served,
            known: declared,
            cache: VecDeque::new(),
            before: None,
            watching: Watching::default(),
            everything: Everything::default(),
            estimator: Estimator::new(),
            found: Findings::default(),
        }
    }

    /// The request that asks for the reply of this turn.
    pub(crate) fn look(&mut self, request: &Request, turn: usize, arrival: Arrival) -> Counted {
        let tokens = request.tokens();
        let found = &mut self.found;
        found.requests += 1;
        if tokens > self.served || tokens + request.reserved > self.known {
            let limit = self.served.min(self.known);
            found.over_limit.add(|| format!("turn {turn}: {tokens} + {} reserved > {limit}", request.reserved));
        }
        if let Err(broken) = pairs(&request.segments) {
            found.broken_pairs.add(|| format!("turn {turn}: {broken}"));
        }
        if tokens > self.served {
            // Nobody saw it and nobody pays for it.
            found.refused += 1;
            return Counted { tokens, cached: 0, fits: false };
        }
        found.sent.push(tokens);
        let cached = self.cache(request, tokens, turn, arrival);
        self.watching = Watching::of(&request.segments, self.plan.watched.len());
        self.visibility(turn);
        if self.everything.tokens == 0 {
            self.everything.tokens = tokens;
        }
        Counted { tokens, cached, fits: true }
    }

    /// The client was told how much is served.
    pub(crate) fn told(&mut self) {
        self.known = self.served;
    }

    /// What the cache has of it; remembers it.
    fn cache(&mut self, request: &Request, tokens: u64, turn: usize, arrival: Arrival) -> u64 {
        let found = &mut self.found;
        let in_common = self.cache.iter().map(|earlier| shared(earlier, &request.segments)).max().unwrap_or(0);
        for (cost, profile) in found.cost.iter_mut().zip(PROFILES) {
            *cost += profile.input(in_common.min(tokens), tokens);
        }
        let cached = in_blocks(in_common.min(tokens), OPENAI_BLOCK);
        found.hits += cached;
        let mut cut_back = false;
        if let Some((tokens_before, before)) = &self.before {
            let estimated = Estimated::of(&self.estimator, *tokens_before, before, &request.segments);
            if let Some(Estimated { anchored, added }) = estimated {
                let bound = self.estimator.bound(anchored, &added);
                found.off.push(bound.likely.abs_diff(tokens));
                found.bound_missed += u64::from(bound.upper < tokens);
                self.estimator.learn(&added, tokens.saturating_sub(anchored));
            }
            let kept = shared(before, &request.segments);
            found.invalidated += tokens_before.saturating_sub(kept);
            found.breaks += u64::from(2 * kept < *tokens_before);
            cut_back = 10 * tokens < 7 * tokens_before;
            found.compactions += u64::from(cut_back);
        }
        if let Some(gap) = arrival.gap {
            // The reply with many calls at once takes the time of its tools, whoever runs them.
            let many = turn.checked_sub(1).is_some_and(|before| self.plan.turns[before].calls.len() > 5);
            if cut_back {
                found.gaps_of_rebuilds.extend((!many).then_some(gap));
            } else if arrival.after_recall {
                found.gaps_of_recalls.push(gap);
            } else if !many {
                found.gaps.push(gap);
            }
        }
        found.cpu.extend(arrival.cpu);
        self.before = Some((tokens, request.segments.clone()));
        if self.cache.len() == CACHED_REQUESTS {
            self.cache.pop_front();
        }
        self.cache.push_back(request.segments.clone());
        cached
    }

    fn visibility(&mut self, turn: usize) {
        let (found, watching) = (&mut self.found, &self.watching);
        for needle in &self.plan.needles {
            let retention = match needle.what {
                What::Constraint => &mut found.constraints,
                What::Loop => &mut found.loops,
                What::Effect | What::Fact => continue,
            };
            if (needle.from..=needle.until).contains(&turn) {
                let (shown, at_end) = (watching.anywhere[needle.shown], watching.at_end[needle.shown]);
                retention.add(shown, at_end, || format!("turn {turn}: {}", needle.name));
            }
            let over = turn > needle.until && watching.outside[needle.shown];
            if over && needle.then.is_some_and(|then| !watching.anywhere[then]) {
                found.stale.add(|| format!("turn {turn}: {}", needle.name));
            }
        }
    }

    /// Whether the last request shows this.
    pub(crate) fn shows(&self, needle: usize) -> bool {
        self.watching.anywhere[self.plan.needles[needle].shown]
    }

    fn needle(&self, index: usize) -> &Needle {
        &self.plan.needles[index]
    }

    /// The model makes sure of an effect; true: it is visible.
    pub(crate) fn check(&mut self, effect: usize, turn: usize) -> bool {
        let (shown, at_end) = (self.shows(effect), self.watching.at_end[self.needle(effect).shown]);
        let name = self.needle(effect).name.clone();
        self.found.effects.add(shown, at_end, || format!("turn {turn}: {name}"));
        shown
    }

    /// The model needs a fact; true: it is visible.
    pub(crate) fn probe(&mut self, fact: usize) -> bool {
        let shown = self.shows(fact);
        self.found.probes += 1;
        self.found.probes_shown += u64::from(shown);
        shown
    }

    /// What one recall brought. `Err` says why there was none.
    pub(crate) fn recalled(&mut self, fact: usize, turn: usize, recall: Result<(), &str>) {
        let name = &self.plan.needles[fact].name;
        match recall {
            Ok(()) if self.shows(fact) => self.found.probes_recalled.times += 1,
            Ok(()) => {
                let query = &self.plan.watched[self.plan.needles[fact].shown].query;
                self.found.probes_recalled.first.get_or_insert(format!("turn {turn}: {name}, asked for \"{query}\""));
            }
            Err(why) => {
                self.found.probes_recalled.first.get_or_insert(format!("turn {turn}: {name}, {why}"));
            }
        }
    }

    /// The model replied this many tokens.
    pub(crate) fn replied(&mut self, output: u64) {
        self.found.output += output;
        for (cost, profile) in self.found.cost.iter_mut().zip(PROFILES) {
            *cost += profile.output * output as f64;
        }
    }

    /// The reply was the plan's: what it and its results would add to a prompt that keeps everything.
    pub(crate) fn grew(&mut self, output: u64, results: u64) {
        self.everything.turn(&mut self.found.cost_of_everything, output);
        self.everything.tokens += output + results;
    }

    /// A call of the harness for itself: it costs, and is no turn.
    pub(crate) fn summary(&mut self, request: &Request, output: u64) {
        let tokens = request.tokens();
        let in_common = self.cache.iter().map(|earlier| shared(earlier, &request.segments)).max().unwrap_or(0);
        for (cost, profile) in self.found.cost.iter_mut().zip(PROFILES) {
            *cost += profile.input(in_common.min(tokens), tokens) + profile.output * output as f64;
        }
        self.found.summaries += 1;
    }

    /// The server forgot what it had cached.
    pub(crate) fn cold(&mut self) {
        self.cache.clear();
        self.everything.cached = 0;
    }
}

/// What a caller of the estimator knows before a request is answered.
struct Estimated {
    /// Tokens of what was there before.
    anchored: u64,
    added: Features,
}

impl Estimated {
    /// None: more was taken out than a last word that changes from request to request.
    fn of(estimator: &Estimator, tokens_before: u64, before: &[Arc<Segment>], now: &[Arc<Segment>]) -> Option<Self> {
        let same = before.iter().zip(now).take_while(|(before, now)| Arc::ptr_eq(before, now)).count();
        if before.len() - same > 1 {
            return None;
        }
        let features = |segments: &[Arc<Segment>]| segments.iter().map(|segment| segment.features).sum();
        let taken_out: Features = features(&before[same..]);
        let anchored = tokens_before.saturating_sub(estimator.estimate(&taken_out));
        Some(Self { anchored, added: features(&now[same..]) })
    }
}

impl Watching {
    fn of(segments: &[Arc<Segment>], watched: usize) -> Self {
        let mut watching =
            Self { anywhere: vec![false; watched], outside: vec![false; watched], at_end: vec![false; watched] };
        let mut after = 0;
        for segment in segments.iter().rev() {
            for &text in &segment.watched {
                watching.anywhere[text] = true;
                watching.outside[text] |= segment.role != Role::Tool;
                watching.at_end[text] |= after < END_TOKENS;
            }
            after += segment.tokens;
        }
        watching
    }
}

/// Whether every call has its one result, before anything else is said.
fn pairs(segments: &[Arc<Segment>]) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    for segment in segments {
        if segment.role == Role::Tool {
            let id = segment.answers.as_deref().unwrap_or("");
            let Some(place) = open.iter().position(|open| *open == id) else {
                return Err(format!("a result for \"{id}\", which no call before it has"));
            };
            open.remove(place);
            continue;
        }
        if let Some(id) = open.first() {
            return Err(format!("the call {id} has no result before the next message"));
        }
        for id in &segment.calls {
            if !ids.insert(id.as_str()) {
                return Err(format!("two calls have the id {id}"));
            }
            open.push(id);
        }
    }
    match open.first() {
        Some(id) => Err(format!("the call {id} has no result")),
        None => Ok(()),
    }
}

/// The run as it would be if nothing were ever left out and no window ended.
#[derive(Default)]
struct Everything {
    tokens: u64,
    /// Tokens of its request before.
    cached: u64,
}

impl Everything {
    fn turn(&mut self, costs: &mut [f64; PROFILES.len()], output: u64) {
        for (cost, profile) in costs.iter_mut().zip(PROFILES) {
            *cost += profile.input(self.cached, self.tokens) + profile.output * output as f64;
        }
        self.cached = self.tokens;
    }
}

/// What tokens cost, in units of an input token that is neither cached nor written to a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    read: f64,
    write: f64,
    output: f64,
    /// Tokens are cached in steps of this.
    block: u64,
}

pub(crate) const PROFILES: [Profile; 5] = [
    Profile { name: "anthropic_5m", read: 0.1, write: 1.25, output: 5.0, block: 1 },
    Profile { name: "anthropic_1h", read: 0.1, write: 2.0, output: 5.0, block: 1 },
    Profile { name: "openai", read: 0.1, write: 1.0, output: 8.0, block: OPENAI_BLOCK },
    Profile { name: "openai_56", read: 0.1, write: 1.25, output: 8.0, block: OPENAI_BLOCK },
    Profile { name: "none", read: 1.0, write: 1.0, output: 8.0, block: 1 },
];

impl Profile {
    fn input(&self, in_common: u64, tokens: u64) -> f64 {
        let hit = in_blocks(in_common, self.block);
        self.read * hit as f64 + self.write * (tokens - hit) as f64
    }
}

fn in_blocks(tokens: u64, block: u64) -> u64 {
    if tokens < CACHE_LEAST { 0 } else { tokens / block * block }
}

/// Requests a server's cache holds.
const CACHED_REQUESTS: usize = 8;
/// No cache holds less.
const CACHE_LEAST: u64 = 1_024;
const OPENAI_BLOCK: u64 = 128;
/// What counts as the end of a request.
const END_TOKENS: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: Role, calls: &[&str], answers: Option<&str>) -> Arc<Segment> {
        Arc::new(Segment {
            raw: "x".into(),
            tokens: 1,
            features: Features::default(),
            role,
            calls: calls.iter().map(|id| (*id).to_owned()).collect(),
            answers: answers.map(str::to_owned),
            watched: Vec::new(),
        })
    }

    fn judged(messages: &[(Role, &[&str], Option<&str>)]) -> String {
        let segments: Vec<_> = messages.iter().map(|(role, calls, answers)| message(*role, calls, *answers)).collect();
        pairs(&segments).err().unwrap_or_default()
    }

    #[test]
    fn every_way_to_break_a_pair_is_seen() {
        let (user, model, tool) = (Role::User, Role::Assistant, Role::Tool);
        assert_eq!(
            judged(&[(user, &[], None), (model, &["a", "b"], None), (tool, &[], Some("b")), (tool, &[], Some("a"))]),
            ""
        );
        assert!(judged(&[(model, &["a"], None)]).contains("no result"));
        assert!(
            judged(&[(model, &["a"], None), (user, &[], None), (tool, &[], Some("a"))]).contains("before the next")
        );
        assert!(judged(&[(tool, &[], Some("a"))]).contains("no call before it"));
        assert!(
            judged(&[(model, &["a"], None), (tool, &[], Some("a")), (tool, &[], Some("a"))]).contains("no call before")
        );
        let twice: &[(Role, &[&str], Option<&str>)] =
            &[(model, &["a"], None), (tool, &[], Some("a")), (model, &["a"], None), (tool, &[], Some("a"))];
        assert!(judged(twice).contains("two calls"));
    }

    #[test]
    fn a_cache_works_in_blocks_and_from_a_least() {
        assert_eq!(in_blocks(1_023, 128), 0);
        assert_eq!(in_blocks(1_300, 128), 1_280);
        let profile = PROFILES[0];
        assert!((profile.input(2_000, 3_000) - (200.0 + 1_250.0)).abs() < 1e-9);
    }

    /// A judge of the smallest plan, and what reads for it.
    fn judge() -> (Judge, crate::context::request::Reader) {
        let plan = Arc::new(crate::context::plan::make(crate::context::plan::SIZES[0], 1, Default::default()));
        let tokenizer = tiktoken::get_encoding("o200k_base").expect("it is built in");
        let reader = crate::context::request::Reader::new(tokenizer, &plan.watched);
        (Judge::new(plan, 32_000, 32_000), reader)
    }

    const QUIET: Arrival = Arrival { cpu: None, gap: None, after_recall: false };

    fn body(system: &str, result: &str) -> Vec<u8> {
        let messages = serde_json::json!([
            { "role": "system", "content": system },
            { "role": "assistant", "content": null,
              "tool_calls": [{ "id": "a", "type": "function", "function": { "name": "look", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "a", "content": result },
        ]);
        serde_json::json!({ "model": "mock", "messages": messages, "max_tokens": 4_000 }).to_string().into_bytes()
    }

    #[test]
    fn a_constraint_that_is_missing_once_is_lost_and_named() {
        let (mut judge, mut reader) = judge();
        let all = judge.plan.constraints.join("\n");
        let request = reader.read(&body(&all, "x")).expect("a request");
        judge.look(&request, 0, QUIET);
        assert_eq!((judge.found.constraints.due, judge.found.constraints.shown), (4, 4));
        let request = reader.read(&body(&judge.plan.constraints[1..].join("\n"), "x")).expect("a request");
        judge.look(&request, 1, QUIET);
        assert_eq!((judge.found.constraints.due, judge.found.constraints.shown), (8, 7));
        assert_eq!(judge.found.constraints.first_loss.as_deref(), Some("turn 1: constraint 0 of the task"));
    }

    #[test]
    fn a_closed_loop_is_stale_where_only_its_opening_is_left_outside_of_results() {
        let (mut judge, mut reader) = judge();
        let plan = Arc::clone(&judge.plan);
        let needle = plan.needles.iter().find(|needle| needle.what == What::Loop).expect("the plan has loops");
        let opening = &plan.watched[needle.shown].text;
        let closing = &plan.watched[needle.then.expect("a loop is closed")].text;
        let after = needle.until + 1;
        for (system, result, stale) in
            [("", opening, 0), (opening.as_str(), closing, 0), (opening, &String::new(), 1), ("", closing, 1)]
        {
            let request = reader.read(&body(system, result)).expect("a request");
            judge.look(&request, after, QUIET);
            assert_eq!(judge.found.stale.times, stale, "{system} / {result}");
        }
    }

    #[test]
    fn what_a_prompt_shares_with_an_earlier_one_is_cached() {
        let (mut judge, mut reader) = judge();
        let long = "one two three four five six seven eight nine ten ".repeat(200);
        let request = reader.read(&body(&long, "x")).expect("a request");
        assert_eq!(judge.look(&request, 0, QUIET).cached, 0);
        let request = reader.read(&body(&long, "y")).expect("a request");
        let counted = judge.look(&request, 1, QUIET);
        assert!(counted.cached > counted.tokens * 9 / 10 && counted.cached.is_multiple_of(128), "{}", counted.cached);
        let request = reader.read(&body(&format!("new {long}"), "y")).expect("a request");
        assert_eq!(judge.look(&request, 2, QUIET).cached, 0);
        assert_eq!(judge.found.breaks, 1);
        judge.cold();
        assert_eq!(judge.look(&request, 3, QUIET).cached, 0);
    }

    #[test]
    fn a_client_may_learn_once_that_less_is_served() {
        let (_, mut reader) = judge();
        let plan = Arc::new(crate::context::plan::make(crate::context::plan::SIZES[0], 1, Default::default()));
        let mut judge = Judge::new(plan, 10_000, 2_500);
        let request = reader.read(&body(&"word ".repeat(2_000), "x")).expect("a request");
        assert!(judge.look(&request, 0, QUIET).fits);
        assert_eq!(judge.found.over_limit.times, 0);
        let longer = reader.read(&body(&"word ".repeat(3_000), "x")).expect("a request");
        assert!(!judge.look(&longer, 1, QUIET).fits);
        assert_eq!((judge.found.over_limit.times, judge.found.refused), (1, 1));
        assert!(judge.look(&request, 2, QUIET).fits);
        assert_eq!(judge.found.over_limit.times, 1);
        judge.told();
        // now it is known, and counts with what is reserved
        assert!(judge.look(&request, 2, QUIET).fits);
        assert_eq!(judge.found.over_limit.times, 2);
    }
}
