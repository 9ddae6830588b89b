//! The judgement of a final reply: does it have the shape the task asks for, does it cite live evidence of the right
//! tools, does the rule over that evidence hold, and how does it read.
//!
//! Every refusal is written for the model: what is wrong, where, and what to try.

use std::collections::{BTreeMap, BTreeSet};

use longrein_core::check::{Accepted, Judgement, Standing};
use longrein_core::ids::{EvidenceId, ToolName};
use longrein_core::payload::Payload;
use longrein_core::task::{AnswerSpec, Binding, Builtin, Numbers};
use longrein_ports::Cited;
use serde_json::Value as Json;

use crate::condition::{Condition, ConditionMistake, shorten};
use crate::found::{self, Found};
use crate::numbers::{self, Of};
use crate::schema::{Schema, SchemaMistake};
use crate::template::{Template, TemplateMistake};

/// The name of the answer itself in checks and templates.
pub const BOUND_ANSWER: &str = "answer";

/// What the final answer of a task must be, compiled.
#[derive(Debug)]
pub struct Answer {
    schema: Option<Schema>,
    evidence: BTreeMap<String, Binding>,
    check: Option<Condition>,
    template: Option<Template>,
    numbers: Option<Numbers>,
    /// Keys that the schema names.
    keys: BTreeSet<String>,
}

/// What is wrong with `[answer]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerMistake {
    #[error("{0}")]
    Schema(#[from] SchemaMistake),
    #[error("\"{0}\" cannot be used as a name in conditions; take letters, digits and _, and not \"{BOUND_ANSWER}\"")]
    Name(String),
    #[error("the field of \"{0}\" is empty")]
    Field(String),
    #[error("{0}")]
    Check(#[from] ConditionMistake),
    #[error("{0}")]
    Template(#[from] TemplateMistake),
}

impl AnswerMistake {
    /// The key of `[answer]` it is in.
    pub fn key(&self) -> String {
        match self {
            AnswerMistake::Schema(_) => "schema".to_owned(),
            AnswerMistake::Name(name) => format!("evidence.{name}"),
            AnswerMistake::Field(name) => format!("evidence.{name}.field"),
            AnswerMistake::Check(_) => "check".to_owned(),
            AnswerMistake::Template(_) => "template".to_owned(),
        }
    }
}

impl Answer {
    pub fn compile(spec: &AnswerSpec) -> Result<Self, AnswerMistake> {
        for (name, binding) in &spec.evidence {
            if name == BOUND_ANSWER || !is_name(name) {
                return Err(AnswerMistake::Name(name.clone()));
            }
            if binding.field.split('.').any(str::is_empty) {
                return Err(AnswerMistake::Field(name.clone()));
            }
        }
        let names = || spec.evidence.keys().map(String::as_str).chain([BOUND_ANSWER]);
        let mut keys = BTreeSet::new();
        let schema = match &spec.schema {
            Some(schema) => {
                // a payload is JSON; only a depth beyond the parser's can fail, and that is no schema
                let schema: Json = schema.read().unwrap_or(Json::Null);
                keys_of(&schema, &mut keys);
                Some(Schema::compile(&schema)?)
            }
            None => None,
        };
        Ok(Self {
            schema,
            evidence: spec.evidence.clone(),
            check: spec.check.as_deref().map(|check| Condition::compile(check, names())).transpose()?,
            template: spec.template.as_deref().map(|template| Template::compile(template, names())).transpose()?,
            numbers: spec.numbers,
            keys,
        })
    }

    /// The evidence ids in the bound fields of a reply, each once; what cannot be read is left to [`Answer::judge`].
    pub fn cites(&self, text: &str) -> Vec<EvidenceId> {
        self.parse(text).map(|answer| cited_by(&self.evidence, &answer)).unwrap_or_default()
    }

    pub fn judge(&self, text: &str, cited: &BTreeMap<EvidenceId, Cited>) -> Judgement {
        match self.accept(text, cited) {
            Ok(accepted) => Judgement::Accepted(accepted),
            Err(reason) => Judgement::Refused(reason),
        }
    }

    fn accept(&self, text: &str, cited: &BTreeMap<EvidenceId, Cited>) -> Result<Accepted, String> {
        let answer = self.parse(text)?;
        self.fits(&answer)?;
        let bound = self.bind(&answer, cited)?;
        let mut values: BTreeMap<&str, &Json> = bound.iter().map(|(name, evidence)| (*name, &evidence.data)).collect();
        values.insert(BOUND_ANSWER, &answer);
        if let Some(check) = &self.check {
            check.hold(&values).map_err(|unmet| {
                format!(
                    "The answer does not agree with the evidence it cites: {unmet}. Compare the answer with the data of \
                     {}, correct it or cite other evidence, and reply again.",
                    listing(bound.iter().map(|(name, evidence)| format!("{name} ({})", evidence.id)))
                )
            })?;
        }
        if let Some(Numbers::Evidence) = self.numbers {
            self.numbers_are_known(&answer, cited)?;
        }
        let payload = Payload::of(&answer).expect("a JSON value always serialises");
        let rendered = match &self.template {
            Some(template) => template.render(&values).map_err(|problem| {
                format!("The answer cannot be put into words with the evidence it cites: {problem}. Check its fields.")
            })?,
            None => payload.as_str().to_owned(),
        };
        let proven = self.check.as_ref().is_some_and(|check| bound.keys().any(|name| check.names().contains(*name)));
        let mut evidence: Vec<EvidenceId> = bound.values().map(|evidence| evidence.id).collect();
        evidence.sort_unstable();
        evidence.dedup();
        let standing = if proven { Standing::Proven } else { Standing::Claimed };
        Ok(Accepted { answer: payload, rendered, evidence, standing })
    }

    /// The one JSON value of a reply: an object, or a list where the schema takes one.
    fn parse(&self, text: &str) -> Result<Json, String> {
        let fits = |value: &Json| match &self.schema {
            Some(schema) => schema.faults(value).is_empty(),
            None => value.is_object(),
        };
        let answer = parse(text, fits)?;
        if answer.is_object() || self.schema.as_ref().is_some_and(|schema| schema.faults(&answer).is_empty()) {
            return Ok(answer);
        }
        Err("The answer is JSON but no object. Reply with one JSON object and nothing else.".to_owned())
    }

    /// Every number of the answer occurs in live evidence.
    fn numbers_are_known(&self, answer: &Json, cited: &BTreeMap<EvidenceId, Cited>) -> Result<(), String> {
        let is_citation = |text: &str| text.parse::<EvidenceId>().is_ok() || self.keys.contains(text);
        let (mut said, mut known) = (Vec::new(), Vec::new());
        numbers::all(answer, Of::Answer, &is_citation, &mut said);
        let is_live = |evidence: &&Cited| evidence.void_since.is_none() && !is_own_words(&evidence.tool);
        for evidence in cited.values().filter(is_live) {
            let data: Json = evidence.data.read().map_err(|error| format!("evidence cannot be read: {error}"))?;
            numbers::all(&data, Of::Evidence, &|_| false, &mut known);
        }
        match numbers::invented(&said, &known) {
            None => Ok(()),
            Some(number) => Err(format!(
                "The number {} of the answer is in no live evidence of this run; it stands at {}. Take numbers from results \
                 as they are, in plain digits, rounded at most; have a tool calculate what is not there, or leave it out.",
                number.written(),
                number.place()
            )),
        }
    }

    fn fits(&self, answer: &Json) -> Result<(), String> {
        let faults = self.schema.as_ref().map(|schema| schema.faults(answer)).unwrap_or_default();
        if faults.is_empty() {
            return Ok(());
        }
        let mut reason = "The answer does not fit its schema:".to_owned();
        for fault in faults {
            reason.push_str(&format!("\n- {fault}"));
        }
        reason.push_str("\nCorrect these and reply with the whole JSON object again.");
        Err(reason)
    }

    /// Follows each binding to its evidence. The reason names every binding that leads nowhere.
    fn bind<'a>(
        &'a self,
        answer: &Json,
        cited: &BTreeMap<EvidenceId, Cited>,
    ) -> Result<BTreeMap<&'a str, Bound>, String> {
        let mut bound = BTreeMap::new();
        let mut problems = String::new();
        for (name, binding) in &self.evidence {
            match follow(binding, answer, cited) {
                Ok(found) => {
                    bound.insert(name.as_str(), found);
                }
                Err(problem) => problems.push_str(&format!("\n- {}: {problem}", binding.field)),
            }
        }
        if problems.is_empty() {
            return Ok(bound);
        }
        Err(format!("The answer does not cite its evidence:{problems}"))
    }
}

/// The keys that a schema names: they are the task's words, not the model's.
fn keys_of(schema: &Json, keys: &mut BTreeSet<String>) {
    match schema {
        Json::Object(fields) => {
            for (name, below) in fields {
                if let ("properties", Json::Object(properties)) = (name.as_str(), below) {
                    keys.extend(properties.keys().cloned());
                }
                keys_of(below, keys);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| keys_of(item, keys)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Without an answer's specification the text itself is the answer, and the model's word.
pub(crate) fn judge_plain(text: &str) -> Judgement {
    Judgement::Accepted(Accepted {
        answer: Payload::string(text),
        rendered: text.to_owned(),
        evidence: Vec::new(),
        standing: Standing::Claimed,
    })
}

/// What these tools say is what the model said before, or what stands in other evidence.
fn is_own_words(tool: &ToolName) -> bool {
    [Builtin::Note, Builtin::Recall].iter().any(|own| own.as_str() == tool.as_str())
}

/// The evidence ids in the bound fields of an answer, each once.
fn cited_by(evidence: &BTreeMap<String, Binding>, answer: &Json) -> Vec<EvidenceId> {
    let mut ids: Vec<EvidenceId> =
        evidence.values().filter_map(|binding| field(answer, &binding.field)?.as_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Whether a text can be a variable in conditions and templates alike.
pub fn is_name(text: &str) -> bool {
    text.bytes()
        .enumerate()
        .all(|(at, byte)| byte == b'_' || byte.is_ascii_alphabetic() || at > 0 && byte.is_ascii_digit())
        && !text.is_empty()
        && !RESERVED.contains(&text)
}

struct Bound {
    id: EvidenceId,
    data: Json,
}

fn follow(binding: &Binding, answer: &Json, cited: &BTreeMap<EvidenceId, Cited>) -> Result<Bound, String> {
    let tool = &binding.tool;
    let way_out = format!("Put the id (e1, e2, …) from the observation of a successful {tool} call here");
    let found = field(answer, &binding.field).ok_or_else(|| format!("is missing. {way_out}."))?;
    let id: EvidenceId = found
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{} is no evidence id. {way_out}.", shorten(&found.to_string(), QUOTE_MAX_BYTES)))?;
    let evidence = cited.get(&id).ok_or_else(|| format!("there is no evidence {id} in this run. {way_out}."))?;
    if evidence.tool != *tool {
        return Err(format!("{id} came from {}, not from {tool}. {way_out}.", evidence.tool));
    }
    if let Some(since) = evidence.void_since {
        return Err(format!(
            "{id} is void since #{since}: something was written or done after it, and it may be stale. Call {tool} again and cite that."
        ));
    }
    let data = evidence.data.read().map_err(|error| format!("the data of {id} cannot be read: {error}"))?;
    Ok(Bound { id, data })
}

/// A field by its dotted path; a number picks from a list.
fn field<'a>(value: &'a Json, path: &str) -> Option<&'a Json> {
    path.split('.').try_fold(value, |value, step| match value {
        Json::Object(fields) => fields.get(step),
        Json::Array(items) => items.get(step.parse::<usize>().ok()?),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
    })
}

/// The one JSON object or list of a reply, whatever words or fences stand around it.
fn parse(text: &str, fits: impl Fn(&Json) -> bool) -> Result<Json, String> {
    match found::find(text, fits) {
        Found::One(answer) => Ok(answer),
        Found::None(problem) => {
            Err(format!("The answer is not JSON ({problem}). Reply with one JSON object and nothing else."))
        }
        Found::Inexact(problem) => Err(format!(
            "The answer cannot be kept as it is written: {problem}. Reply with one JSON object that has each key once and no \
             such number; a longer number can be a string."
        )),
        Found::Many(count) => Err(format!(
            "The answer holds {count} JSON objects, and which one is meant cannot be told. Reply with one JSON object and \
             nothing else."
        )),
    }
}

fn listing(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    if names.is_empty() { "the evidence".to_owned() } else { names.join(", ") }
}

/// How much of a wrong value is quoted.
const QUOTE_MAX_BYTES: usize = 80;
/// Words of CEL or of the template language.
const RESERVED: [&str; 49] = [
    "and",
    "as",
    "autoescape",
    "block",
    "bool",
    "break",
    "bytes",
    "call",
    "const",
    "continue",
    "do",
    "double",
    "dyn",
    "elif",
    "else",
    "extends",
    "false",
    "filter",
    "for",
    "from",
    "function",
    "if",
    "import",
    "in",
    "include",
    "int",
    "is",
    "let",
    "list",
    "loop",
    "macro",
    "map",
    "namespace",
    "none",
    "not",
    "null",
    "null_type",
    "or",
    "package",
    "range",
    "raw",
    "self",
    "set",
    "string",
    "true",
    "type",
    "uint",
    "while",
    "with",
];

#[cfg(test)]
mod tests {
    use longrein_core::ids::{Seq, ToolName};
    use serde_json::json;

    use super::*;

    /// The specification of the checkout example.
    fn checkout() -> AnswerSpec {
        let bind = |field: &str, tool: &str| Binding { field: field.to_owned(), tool: ToolName::new(tool) };
        AnswerSpec {
            schema: Some(
                Payload::of(&json!({
                    "type": "object", "required": ["metric_id", "calculation_id", "conclusion"],
                    "properties": { "conclusion": { "enum": ["above", "not above"] }, "metric_id": { "type": "string" } },
                }))
                .unwrap(),
            ),
            evidence: BTreeMap::from([
                ("metrics".to_owned(), bind("metric_id", "read_metrics")),
                ("rate".to_owned(), bind("calculation_id", "error_rate")),
            ]),
            check: Some(
                "rate.source_id == answer.metric_id && rate.per_10k == metrics.errors * 10000.0 / metrics.requests && \
                 (answer.conclusion == 'above') == (metrics.errors * 10000.0 > metrics.threshold_bp * metrics.requests)"
                    .to_owned(),
            ),
            template: Some(
                "{{ metrics.service }}: {{ '%.2f' | format(rate.per_10k / 100) }} %. {{ answer.metric_id }}".to_owned(),
            ),
            numbers: None,
        }
    }

    fn cited() -> BTreeMap<EvidenceId, Cited> {
        let metrics = json!({ "service": "checkout", "errors": 1200, "requests": 100_000, "threshold_bp": 100 });
        let rate = json!({ "per_10k": 120, "source_id": "e1" });
        let cite = |tool: &str, data: &Json, void_since: Option<Seq>| Cited {
            tool: ToolName::new(tool),
            data: Payload::of(data).unwrap(),
            void_since,
        };
        BTreeMap::from([
            (EvidenceId(1), cite("read_metrics", &metrics, None)),
            (EvidenceId(2), cite("error_rate", &rate, None)),
            (EvidenceId(3), cite("error_rate", &rate, Some(Seq(9)))),
            (EvidenceId(4), cite("error_rate", &json!({ "per_10k": 121, "source_id": "e1" }), None)),
        ])
    }

    /// Judges a reply against the checkout specification: the rendered text and standing, or the reason.
    fn check(reply: &str) -> String {
        let answer = Answer::compile(&checkout()).unwrap();
        match answer.judge(reply, &cited()) {
            Judgement::Accepted(accepted) => format!("{:?}: {}", accepted.standing, accepted.rendered),
            Judgement::Refused(reason) => reason,
        }
    }

    #[test]
    fn a_proven_answer_is_rendered_from_its_evidence() {
        let reply = r#"{"metric_id":"e1","calculation_id":"e2","conclusion":"above"}"#;
        assert_eq!(check(reply), "Proven: checkout: 1.20 %. e1");
        assert_eq!(check(&format!("```json\n{reply}\n```\n")), "Proven: checkout: 1.20 %. e1");
        assert_eq!(check(&format!("```\n{reply}\n```")), "Proven: checkout: 1.20 %. e1");
        let answer = Answer::compile(&checkout()).unwrap();
        assert_eq!(answer.cites(reply), vec![EvidenceId(1), EvidenceId(2)]);
        assert_eq!(answer.cites("no JSON"), vec![]);
    }

    #[test]
    fn a_refusal_says_what_where_and_what_to_try() {
        for (reply, said) in [
            ("It is above.", "Reply with one JSON object and nothing else"),
            ("Here: {\"a\":1}", "\"metric_id\" is a required property"),
            ("{\"a\":1} or {\"a\":2}", "holds 2 JSON objects"),
            ("I would say {above}.", "is not JSON"),
            ("{\"metric_id\": {\"a\": 1}, oops", "is not JSON"),
            ("[1]", "no object"),
            ("", "is not JSON"),
            ("```json\n```", "is not JSON"),
            ("```", "is not JSON"),
            (r#"{"metric_id":1,"conclusion":"maybe"}"#, "/metric_id: 1 is not of type \"string\""),
            (r#"{"metric_id":1,"conclusion":"maybe"}"#, "/conclusion: \"maybe\" is not one of"),
            (r#"{"metric_id":1,"conclusion":"maybe"}"#, "\"calculation_id\" is a required property"),
            (
                r#"{"metric_id":"e01","calculation_id":7,"conclusion":"above"}"#,
                "metric_id: \"e01\" is no evidence id. Put the id (e1, e2, …) from the observation of a successful \
                 read_metrics call here.",
            ),
            (r#"{"metric_id":"e1","calculation_id":7,"conclusion":"above"}"#, "calculation_id: 7 is no evidence id"),
            (r#"{"metric_id":"e9","calculation_id":"e2","conclusion":"above"}"#, "there is no evidence e9 in this run"),
            (
                r#"{"metric_id":"e2","calculation_id":"e2","conclusion":"above"}"#,
                "e2 came from error_rate, not from read",
            ),
            (r#"{"metric_id":"e1","calculation_id":"e3","conclusion":"above"}"#, "e3 is void since #9"),
            (r#"{"metric_id":"e1","calculation_id":"e4","conclusion":"above"}"#, "does not agree with the evidence"),
            (r#"{"metric_id":"e1","calculation_id":"e2","conclusion":"not above"}"#, "metrics (e1), rate (e2)"),
        ] {
            let found = check(reply);
            assert!(found.contains(said), "{reply}: {found}");
        }
    }

    #[test]
    fn an_answer_survives_prose_and_fences_and_nothing_else() {
        let reply = r#"{"metric_id":"e1","calculation_id":"e2","conclusion":"above"}"#;
        let proven = "Proven: checkout: 1.20 %. e1";
        for wrapped in [
            format!("Here is my answer:\n\n```json\n{reply}\n```\n\nLet me know."),
            format!("Based on [1] and {{the data}}, the answer is {reply}. That is all."),
            format!("<think>maybe {{\"metric_id\":\"e9\"}}</think>{reply}"),
            // Of several objects the one that fits is meant.
            format!("e1 said {{\"errors\": 1200}}, so: {reply}"),
        ] {
            assert_eq!(check(&wrapped), proven, "{wrapped}");
        }
        for broken in [
            format!("{reply}\n{reply}"),
            reply.trim_end_matches('}').to_owned(),
            format!("{{\"draft\": {reply}"),
            reply.replace("\"above\"", "'above'"),
        ] {
            assert!(check(&broken).contains("Reply with one JSON object"), "{broken}: {}", check(&broken));
        }
    }

    #[test]
    fn a_list_is_an_answer_where_the_schema_says_so() {
        let schema = Payload::parse(r#"{"type":"array","items":{"type":"integer"}}"#).unwrap();
        let answer = Answer::compile(&AnswerSpec::of_schema(schema)).unwrap();
        let judge = |text: &str| match answer.judge(text, &BTreeMap::new()) {
            Judgement::Accepted(accepted) => accepted.answer.as_str().to_owned(),
            Judgement::Refused(reason) => reason,
        };
        assert_eq!(judge("[1,2]"), "[1,2]");
        assert_eq!(judge("They are [1, 2]."), "[1,2]");
        assert!(judge("[1] or [2]").contains("holds 2"));
        assert!(judge("[\"a\"]").contains("no object"), "{}", judge("[\"a\"]"));
    }

    #[test]
    fn a_number_nobody_measured_is_named() {
        let spec = AnswerSpec {
            numbers: Some(Numbers::Evidence),
            evidence: BTreeMap::new(),
            schema: None,
            check: None,
            template: None,
        };
        let answer = Answer::compile(&spec).unwrap();
        let judge = |text: &str| match answer.judge(text, &cited()) {
            Judgement::Accepted(_) => "accepted".to_owned(),
            Judgement::Refused(reason) => reason,
        };
        assert_eq!(judge(r#"{"rate": 120, "of": "1,200 errors in e1", "id": "e1"}"#), "accepted");
        let refused = judge(r#"{"rate": 122, "errors": 1200}"#);
        assert!(refused.starts_with("The number 122 of the answer is in no live evidence"), "{refused}");
        // 121 is there, and what is void does not count: the 120 of e3 is also in e2.
        assert_eq!(judge(r#"{"rate": 121}"#), "accepted");
        // What the model wrote itself is no evidence, and what it found again stands where it was first.
        for tool in ["note", "recall"] {
            let mut cited = cited();
            let data = Payload::of(&json!({ "text": "987654" })).unwrap();
            cited.insert(EvidenceId(5), Cited { tool: ToolName::new(tool), data, void_since: None });
            let judged = answer.judge(r#"{"rate": 987654}"#, &cited);
            assert!(matches!(judged, Judgement::Refused(_)), "{tool}: {judged:?}");
        }
    }

    #[test]
    fn only_a_rule_over_evidence_proves() {
        let mut spec = AnswerSpec { schema: None, check: Some("answer.x == 1.0".to_owned()), ..checkout() };
        spec.evidence.clear();
        spec.template = None;
        let judged = Answer::compile(&spec).unwrap().judge("{\"x\": 1}", &BTreeMap::new());
        let Judgement::Accepted(accepted) = judged else { panic!("{judged:?}") };
        assert_eq!(accepted.standing, Standing::Claimed);
        assert_eq!(accepted.rendered, "{\"x\":1}");
    }

    #[test]
    fn fields_may_lie_deeper() {
        let mut spec = checkout();
        spec.evidence = BTreeMap::from([(
            "rate".to_owned(),
            Binding { field: "sources.0.id".to_owned(), tool: ToolName::new("error_rate") },
        )]);
        spec.schema = None;
        spec.check = Some("rate.per_10k == answer.sources[0].value".to_owned());
        spec.template = None;
        let judged = Answer::compile(&spec).unwrap().judge(r#"{"sources":[{"id":"e2","value":120.0}]}"#, &cited());
        assert!(matches!(judged, Judgement::Accepted(_)), "{judged:?}");
    }

    #[test]
    fn mistakes_are_found_when_it_is_compiled() {
        let broken = |change: &dyn Fn(&mut AnswerSpec)| {
            let mut spec = checkout();
            change(&mut spec);
            let mistake = Answer::compile(&spec).unwrap_err();
            format!("{}: {mistake}", mistake.key())
        };
        assert!(broken(&|spec| spec.check = Some("rates.x".to_owned())).contains("check: \"rates\" is not defined"));
        assert!(broken(&|spec| spec.template = Some("{{ x }}".to_owned())).contains("template: \"x\" is not defined"));
        assert!(broken(&|spec| spec.schema = Some(Payload::parse("7").unwrap())).starts_with("schema: "));
        let binding = Binding { field: String::new(), tool: ToolName::new("t") };
        for name in ["answer", "in", "a-b", "1a", ""] {
            let found = broken(&|spec| {
                spec.evidence.insert(name.to_owned(), binding.clone());
            });
            assert!(found.contains("cannot be used as a name"), "{name}: {found}");
        }
        let found = broken(&|spec| {
            spec.evidence.insert("fine".to_owned(), binding.clone());
        });
        assert_eq!(found, "evidence.fine.field: the field of \"fine\" is empty");
    }
}
