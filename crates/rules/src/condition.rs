//! Conditions: CEL expressions that are true or are not, over values that enter as JSON.
//!
//! Every number enters as a double, because `1` and `1.0` are one number to whoever writes JSON. Integers beyond 2^53
//! lose their last digits by that: compare long ids as strings. A name that is not there is an error, never false.
//!
//! Evaluation ends: the expression's size and depth are bounded when it is compiled, and what its loops may visit is
//! bounded before they start. A panic of the CEL library becomes an error.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::objects::{Key, Map};
use cel::{Context, ExecutionError, Program, Value};
use serde_json::Value as Json;

/// A compiled condition.
pub struct Condition {
    source: String,
    program: Program,
    names: BTreeSet<String>,
    /// Fields that are taken of a variable by their name: `outputs.plan`, `outputs["plan"]`.
    fields: BTreeSet<(String, String)>,
    depth: u32,
    /// How deep its loops (`all`, `exists`, `map`, `filter`) stand in each other.
    loops: u32,
}

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionMistake {
    #[error("it is {bytes} bytes long; at most {SOURCE_MAX_BYTES} are read. Compute in the tool, compare here")]
    TooLong { bytes: usize },
    #[error("it is nested too deeply (at most {DEPTH_MAX} levels, {LOOPS_MAX} loops in each other)")]
    TooDeep,
    #[error("it does not parse: {problem}")]
    Syntax { problem: String },
    #[error("\"{name}\" is not defined here; there are: {defined}")]
    Undefined { name: String, defined: String },
    #[error("there is no function \"{name}\"; there are: {}", FUNCTIONS.join(", "))]
    NoFunction { name: String },
}

/// Why a condition does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    #[error("`{condition}` is false")]
    False { condition: String },
    #[error("`{condition}` gives a {found}, not true or false")]
    NoBool { condition: String, found: &'static str },
    #[error("`{condition}` could not be evaluated: {problem}")]
    Failed { condition: String, problem: String },
}

impl Condition {
    /// Compiles `source`, which may look at the variables named in `defined` and at no others.
    pub fn compile<'a>(source: &str, defined: impl IntoIterator<Item = &'a str>) -> Result<Self, ConditionMistake> {
        if source.len() > SOURCE_MAX_BYTES {
            return Err(ConditionMistake::TooLong { bytes: source.len() });
        }
        let defined: BTreeSet<&str> = defined.into_iter().collect();
        let broken = || ConditionMistake::Syntax { problem: BROKEN.to_owned() };
        on_deep_stack(|| Self::parse(source, &defined)).unwrap_or_else(|| Err(broken()))
    }

    fn parse(source: &str, defined: &BTreeSet<&str>) -> Result<Self, ConditionMistake> {
        let program = Program::compile(source).map_err(|errors| {
            let problem = match errors.errors.first() {
                Some(error) => format!("line {}, column {}: {}", error.pos.0, error.pos.1, error.msg),
                None => "no reason given".to_owned(),
            };
            let hint = if lone_equals(source) { "; compare with ==" } else { "" };
            ConditionMistake::Syntax { problem: format!("{problem}{hint}") }
        })?;
        let shape = Shape::of(program.expression()).ok_or(ConditionMistake::TooDeep)?;
        let mut names = BTreeSet::new();
        free_names(program.expression(), &mut Vec::new(), &mut names);
        if let Some(name) = names.iter().find(|name| !defined.contains(name.as_str())) {
            let defined = defined.iter().copied().collect::<Vec<_>>().join(", ");
            return Err(ConditionMistake::Undefined { name: name.clone(), defined });
        }
        let unknown = shape.functions.iter().find(|name| is_word(name) && !FUNCTIONS.contains(&name.as_str()));
        if let Some(name) = unknown {
            return Err(ConditionMistake::NoFunction { name: name.clone() });
        }
        let mut fields = BTreeSet::new();
        fields_taken(program.expression(), &mut fields);
        Ok(Self { source: source.to_owned(), program, names, fields, depth: shape.depth, loops: shape.loops })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The variables it looks at.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// The fields it takes of a variable by name.
    pub fn fields_of(&self, variable: &str) -> Vec<&str> {
        self.fields.iter().filter(|(of, _)| of == variable).map(|(_, field)| field.as_str()).collect()
    }

    /// Ok if it is true of these values.
    pub fn hold(&self, values: &BTreeMap<&str, &Json>) -> Result<(), Unmet> {
        let condition = || shorten(&self.source, SHOWN_MAX_BYTES);
        let failed = |problem: String| Unmet::Failed { condition: condition(), problem };
        let used = values.iter().filter(|(name, _)| self.names.contains(**name));
        let nodes: u64 = used.clone().map(|(_, value)| count(value)).fold(1, u64::saturating_add);
        if nodes.saturating_pow(self.loops) > VISITS_MAX {
            return Err(failed(format!("its loops would visit too much: {nodes} values, {} deep", self.loops)));
        }
        let evaluate = || {
            let mut context = Context::default();
            for (name, value) in used {
                context.add_variable_from_value((*name).to_owned(), enter(value));
            }
            self.program.execute(&context)
        };
        let outcome = if self.depth <= DEPTH_INLINE {
            catch_unwind(AssertUnwindSafe(evaluate)).ok()
        } else {
            on_deep_stack(evaluate)
        };
        match outcome {
            None => Err(failed(BROKEN.to_owned())),
            Some(Err(error)) => Err(failed(explain(&error))),
            Some(Ok(Value::Bool(true))) => Ok(()),
            Some(Ok(Value::Bool(false))) => Err(Unmet::False { condition: condition() }),
            Some(Ok(other)) => Err(Unmet::NoBool { condition: condition(), found: kind(&other) }),
        }
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Condition({})", self.source)
    }
}

/// Runs `work` where it cannot exhaust the stack: unoptimised, one bracket costs the parser 100 KiB. None: it panicked,
/// or there was no thread to be had.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("condition".to_owned()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

/// What bounds an expression, found without recursion: the expression may be deeper than our stack.
struct Shape {
    depth: u32,
    loops: u32,
    functions: BTreeSet<String>,
}

impl Shape {
    /// None: too deep to evaluate safely.
    fn of(root: &IdedExpr) -> Option<Self> {
        let mut shape = Shape { depth: 0, loops: 0, functions: BTreeSet::new() };
        let mut open = vec![(root, 0_u32, 0_u32)];
        while let Some((node, depth, loops)) = open.pop() {
            if depth > DEPTH_MAX || loops > LOOPS_MAX {
                return None;
            }
            shape.depth = shape.depth.max(depth);
            shape.loops = shape.loops.max(loops);
            match &node.expr {
                Expr::Call(call) => {
                    shape.functions.insert(call.func_name.clone());
                }
                Expr::Comprehension(comprehension) => {
                    for inner in [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result] {
                        open.push((inner, depth + 1, loops + 1));
                    }
                    for outer in [&comprehension.iter_range, &comprehension.accu_init] {
                        open.push((outer, depth + 1, loops));
                    }
                    continue;
                }
                Expr::Unspecified
                | Expr::Ident(_)
                | Expr::List(_)
                | Expr::Literal(_)
                | Expr::Map(_)
                | Expr::Select(_)
                | Expr::Struct(_) => {}
            }
            open.extend(parts(node).into_iter().map(|part| (part, depth + 1, loops)));
        }
        Some(shape)
    }
}

/// The direct parts of an expression.
fn parts(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).collect(),
        Expr::Comprehension(inner) => {
            vec![&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Struct(made) => made.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// Collects the names an expression takes from outside: not those its own loops bind, not the names of types.
/// Recursion is safe: [`Shape::of`] has bounded the depth.
fn free_names<'e>(node: &'e IdedExpr, bound: &mut Vec<&'e str>, free: &mut BTreeSet<String>) {
    match &node.expr {
        Expr::Ident(name) => {
            if !bound.contains(&name.as_str()) && !TYPES.contains(&name.as_str()) {
                free.insert(name.clone());
            }
        }
        Expr::Comprehension(inner) => {
            free_names(&inner.iter_range, bound, free);
            free_names(&inner.accu_init, bound, free);
            let outside = bound.len();
            bound.push(&inner.accu_var);
            bound.push(&inner.iter_var);
            bound.extend(inner.iter_var2.as_deref());
            for part in [&inner.loop_cond, &inner.loop_step, &inner.result] {
                free_names(part, bound, free);
            }
            bound.truncate(outside);
        }
        Expr::Unspecified
        | Expr::Call(_)
        | Expr::List(_)
        | Expr::Literal(_)
        | Expr::Map(_)
        | Expr::Select(_)
        | Expr::Struct(_) => {
            for part in parts(node) {
                free_names(part, bound, free);
            }
        }
    }
}

/// Collects what is taken of variables by a written name. Recursion is safe: [`Shape::of`] has bounded the depth.
fn fields_taken(node: &IdedExpr, taken: &mut BTreeSet<(String, String)>) {
    if let Expr::Select(select) = &node.expr
        && let Expr::Ident(of) = &select.operand.expr
    {
        taken.insert((of.clone(), select.field.clone()));
    }
    if let Expr::Call(call) = &node.expr
        && call.func_name == "_[_]"
        && let [of, field] = &call.args[..]
        && let (Expr::Ident(of), Expr::Literal(LiteralValue::String(field))) = (&of.expr, &field.expr)
    {
        taken.insert((of.clone(), field.inner().to_owned()));
    }
    for part in parts(node) {
        fields_taken(part, taken);
    }
}

/// JSON as CEL sees it.
fn enter(value: &Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Array(items) => Value::List(Arc::new(items.iter().map(enter).collect())),
        Json::Object(fields) => {
            let map: HashMap<Key, Value> =
                fields.iter().map(|(key, value)| (Key::String(Arc::new(key.clone())), enter(value))).collect();
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

fn count(value: &Json) -> u64 {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 1,
        Json::Array(items) => items.iter().map(count).fold(1, u64::saturating_add),
        Json::Object(fields) => fields.values().map(count).fold(1, u64::saturating_add),
    }
}

/// An error of the CEL library in our words, with the way out where there is one.
fn explain(error: &ExecutionError) -> String {
    if let ExecutionError::NoSuchKey(key) = error {
        return format!("there is no \"{key}\" in the value it is looked up in");
    }
    if let ExecutionError::UnsupportedBinaryOperator(operator, left, right) = error {
        let text = format!("\"{operator}\" cannot take a {} and a {}", kind(left), kind(right));
        let mixed = matches!(
            (left, right),
            (Value::Float(_), Value::Int(_) | Value::UInt(_)) | (Value::Int(_) | Value::UInt(_), Value::Float(_))
        );
        return if mixed { format!("{text}: one is a double, one is not. {DOUBLES}") } else { text };
    }
    let text = shorten(&error.to_string(), SHOWN_MAX_BYTES);
    if let ExecutionError::NoSuchOverload(overload) = error {
        let types = overload.argument_types();
        let has = |name: &str| types.iter().any(|found| found == name);
        if has("double") && (has("int") || has("uint")) {
            return format!("{text}. {DOUBLES}");
        }
    }
    text
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "list",
        Value::Map(_) | Value::Struct(_) => "map",
        Value::Function(..) | Value::Opaque(_) => "value of its own kind",
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Bytes(_) => "byte string",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    }
}

/// At most `limit` bytes of `text`, cut at a character.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// Whether a text has a `=` that is no part of `==`, `!=`, `<=` or `>=`, outside its strings.
fn lone_equals(source: &str) -> bool {
    let mut quote = None;
    let mut before = ' ';
    let mut letters = source.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(_), '\\') => {
                letters.next();
            }
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '=') if !"=!<>".contains(before) && letters.peek() != Some(&'=') => return true,
            (None, _) => {}
        }
        before = letter;
    }
    false
}

/// Operators have names such as `_+_`; what a person calls has a word.
fn is_word(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.starts_with('_')
}

/// A condition longer than this is a program.
const SOURCE_MAX_BYTES: usize = 8 * 1024;
/// Nobody reads a deeper one.
const DEPTH_MAX: u32 = 100;
/// Up to here the caller's own stack does: unoptimised, a level of evaluation costs some 25 KiB.
const DEPTH_INLINE: u32 = 16;
/// Room for the parser's own limit of 96 brackets, in unoptimised builds. Only touched pages are ever taken.
const STACK_BYTES: usize = 64 * 1024 * 1024;
const DOUBLES: &str = "Numbers from JSON are doubles: write 100.0, not 100, to calculate with them";
const BROKEN: &str = "the CEL library broke on it";
/// Loops within loops: three are lists of lists of lists.
const LOOPS_MAX: u32 = 3;
/// What loops may visit together: about a second.
const VISITS_MAX: u64 = 2_000_000;
/// How much of a condition or a value is quoted.
const SHOWN_MAX_BYTES: usize = 300;
/// Names of types, which are no variables.
const TYPES: [&str; 13] = [
    "bool",
    "bytes",
    "double",
    "dyn",
    "duration",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "type",
    "uint",
];
/// What conditions may call.
const FUNCTIONS: [&str; 18] = [
    "all",
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "exists",
    "exists_one",
    "filter",
    "has",
    "int",
    "map",
    "matches",
    "size",
    "startsWith",
    "string",
    "type",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(condition: &str, value: &Json) -> String {
        let condition = match Condition::compile(condition, ["args", "facts"]) {
            Ok(condition) => condition,
            Err(mistake) => return format!("mistake: {mistake}"),
        };
        let nothing = json!({});
        match condition.hold(&BTreeMap::from([("args", value), ("facts", &nothing)])) {
            Ok(()) => "holds".to_owned(),
            Err(unmet) => unmet.to_string(),
        }
    }

    #[test]
    fn numbers_are_doubles_wherever_they_come_from() {
        for (condition, value) in [
            ("args.n == 100", json!({ "n": 100 })),
            ("args.n == 100.0", json!({ "n": 100 })),
            ("args.n <= 100.0 && args.n > 99", json!({ "n": 100 })),
            ("args.a * 10000.0 / args.b == args.rate", json!({ "a": 1200, "b": 100_000, "rate": 120 })),
            ("args.a * 10000.0 / args.b == args.rate", json!({ "a": 1, "b": 3, "rate": 3333.3333333333335 })),
            ("args.list[1] == 2.0 && size(args.list) == 2", json!({ "list": [1, 2] })),
            ("args.list.all(x, x > 0.0) && args.list.exists(x, x == 2.0)", json!({ "list": [1, 2] })),
            ("has(args.a) && !has(args.b)", json!({ "a": 1 })),
            ("args.s.matches('^[a-z]+$') && args.s.startsWith('a')", json!({ "s": "abc" })),
            ("'a' in args.list", json!({ "list": ["a"] })),
            ("args.x == null", json!({ "x": null })),
            ("int(args.n) % 2 == 0", json!({ "n": 4 })),
        ] {
            assert_eq!(check(condition, &value), "holds", "{condition}");
        }
    }

    #[test]
    fn what_does_not_hold_says_why() {
        for (condition, value, said) in [
            ("args.n < 1.0", json!({ "n": 1 }), "`args.n < 1.0` is false"),
            ("args.m < 1.0", json!({ "n": 1 }), "there is no \"m\""),
            ("args.n.deep < 1.0", json!({ "n": 1 }), "could not be evaluated"),
            ("args.n * 2 > 1.0", json!({ "n": 1 }), "write 100.0, not 100"),
            ("args.n + 1.0", json!({ "n": 1 }), "gives a number, not true or false"),
            ("args.s > 1.0", json!({ "s": "a" }), "could not be evaluated"),
            ("other.n > 1.0", json!({}), "mistake: \"other\" is not defined here; there are: args, facts"),
            ("args.list.all(x, x > y)", json!({}), "mistake: \"y\" is not defined here"),
            ("frob(args)", json!({}), "mistake: there is no function \"frob\""),
            ("args.n >", json!({}), "mistake: it does not parse"),
            ("", json!({}), "mistake: it does not parse"),
            ("args.n = 1.0", json!({}), "; compare with =="),
            ("args.n == 'a", json!({}), "mistake: it does not parse"),
        ] {
            let found = check(condition, &value);
            assert!(found.contains(said), "{condition}: {found}");
        }
    }

    #[test]
    fn nothing_an_operator_can_write_brings_it_down() {
        for text in [
            "(".repeat(4000),
            "!".repeat(4000) + "true",
            "-".repeat(4000) + "1",
            format!("args{} == 1.0", ".a".repeat(3000)),
            format!("{}1.0 > 0.0", "1.0 + ".repeat(1300)),
            "[".repeat(3000) + &"]".repeat(3000),
            format!("{}true{}", "args.all(x, ".repeat(20), ")".repeat(20)),
            "'\\u{110000}' == ''".to_owned(),
            "\u{0}\u{202e}".to_owned(),
            "1 ? 2".to_owned(),
            "a".repeat(10_000),
            format!("{}true", "true && ".repeat(90)),
            "b'\\xff' == b''".to_owned(),
            "9223372036854775807 + 1 == 0".to_owned(),
            "99999999999999999999 == 0".to_owned(),
            "1 / 0 == 1".to_owned(),
            "args.s.matches(args.s)".to_owned(),
        ] {
            let found = check(&text, &json!({ "s": "(" }));
            assert_ne!(found, "", "{text}");
        }
    }

    #[test]
    fn loops_are_bounded_by_what_they_would_visit() {
        let many = json!({ "list": vec![1; 5000] });
        assert_eq!(check("args.list.all(x, x == 1.0)", &many), "holds");
        let found = check("args.list.all(x, args.list.all(y, x == y))", &many);
        assert!(found.contains("would visit too much"), "{found}");
    }
}
