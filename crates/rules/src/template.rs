//! Templates: the text of an answer, rendered from verified data, so that no number in it is anybody's invention.
//!
//! Strict: a name or field that is not there is an error. Bounded by fuel. Nothing is escaped, nothing is included.
//! Numbers with a fraction are shown with at most 15 significant digits, which is what a double holds; whole ones
//! without a point.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::value::{Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde_json::Value as Json;

/// A compiled template.
pub struct Template(Environment<'static>);

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateMistake {
    #[error("it is {bytes} bytes long; at most {SOURCE_MAX_BYTES} are read")]
    TooLong { bytes: usize },
    #[error("{0}")]
    Syntax(String),
    #[error("\"{name}\" is not defined here; there are: {defined}")]
    Undefined { name: String, defined: String },
}

impl Template {
    /// Compiles `source`, which may use the names in `defined`.
    pub fn compile<'a>(source: &str, defined: impl IntoIterator<Item = &'a str>) -> Result<Self, TemplateMistake> {
        if source.len() > SOURCE_MAX_BYTES {
            return Err(TemplateMistake::TooLong { bytes: source.len() });
        }
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(|output, state, value| match shown(value)? {
            Some(text) => Ok(output.write_str(&text)?),
            None => minijinja::escape_formatter(output, state, value),
        });
        let globals: BTreeSet<String> = environment.globals().map(|(name, _)| name.to_string()).collect();
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|error| TemplateMistake::Syntax(explain(&error)))?;
        let defined: BTreeSet<&str> = defined.into_iter().collect();
        let template = environment.get_template(NAME).map_err(|error| TemplateMistake::Syntax(explain(&error)))?;
        let used: BTreeSet<String> = template.undeclared_variables(false).into_iter().collect();
        if let Some(name) = used.into_iter().find(|name| !defined.contains(name.as_str()) && !globals.contains(name)) {
            let defined = defined.into_iter().collect::<Vec<_>>().join(", ");
            return Err(TemplateMistake::Undefined { name, defined });
        }
        Ok(Self(environment))
    }

    /// The text, or what is wrong.
    pub fn render(&self, values: &BTreeMap<&str, &Json>) -> Result<String, String> {
        let template = self.0.get_template(NAME).map_err(|error| explain(&error))?;
        let values: BTreeMap<&str, Value> =
            values.iter().map(|(name, value)| (*name, Value::from(Serde(*value)))).collect();
        template.render(values).map_err(|error| explain(&error))
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Template")
    }
}

/// The expression that a text is, if it is one and nothing else: `{{ … }}`.
pub(crate) fn expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}") && !inner.contains("{%")).then_some(inner.trim())
}

/// The value of an expression, as JSON.
pub(crate) fn evaluate(expression: &str, values: &BTreeMap<&str, &Json>) -> Result<Json, String> {
    if expression.len() > SOURCE_MAX_BYTES {
        return Err(TemplateMistake::TooLong { bytes: expression.len() }.to_string());
    }
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    let values: BTreeMap<&str, Value> =
        values.iter().map(|(name, value)| (*name, Value::from(Serde(*value)))).collect();
    let compiled = environment.compile_expression(expression).map_err(|error| explain(&error))?;
    let value = compiled.eval(values).map_err(|error| explain(&error))?;
    if value.is_undefined() {
        return Err("undefined value".to_owned());
    }
    serde_json::to_value(&value).map_err(|error| error.to_string())
}

/// How a value that the engine would show oddly is shown; None: as the engine does it.
fn shown(value: &Value) -> Result<Option<String>, Error> {
    if value.kind() == ValueKind::None {
        return Ok(Some("null".to_owned()));
    }
    if value.kind() != ValueKind::Number || value.is_integer() {
        return Ok(None);
    }
    let number = f64::try_from(value.clone())?;
    if !number.is_finite() {
        return Err(Error::new(ErrorKind::InvalidOperation, "a division by zero, or a number too large to show"));
    }
    Ok(Some(decimal(number)))
}

/// 15 significant digits, without trailing zeros and without an exponent.
fn decimal(number: f64) -> String {
    let rounded: f64 = format!("{number:.14e}").parse().unwrap_or(number);
    if rounded == 0.0 { "0".to_owned() } else { rounded.to_string() }
}

fn explain(error: &Error) -> String {
    let mut text = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    if let Some(line) = error.line() {
        text.push_str(&format!(" (line {line}"));
        let quoted = error.range().and_then(|range| error.template_source()?.get(range).map(str::to_owned));
        if let Some(quoted) = quoted {
            text.push_str(&format!(", at `{quoted}`"));
        }
        text.push(')');
    }
    text
}

const NAME: &str = "template";
/// Instructions and bytes of one rendering: some hundred pages.
const FUEL: u64 = 500_000;

/// The longest template. The parser goes down a level per operator, and a longer one could use up the stack.
const SOURCE_MAX_BYTES: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The parser would go down a level per term.
    #[test]
    fn a_template_of_any_length_is_read_or_refused() {
        let long = format!("{{{{ {} }}}}", ["1"; 100_000].join("+"));
        assert!(check(&long).contains("at most 8192"), "{}", check(&long));
        let values = BTreeMap::new();
        assert!(evaluate(&["1"; 100_000].join("+"), &values).is_err_and(|why| why.contains("at most 8192")));
        assert_eq!(evaluate(&["1"; 2_000].join("+"), &values), Ok(json!(2_000)));
    }

    fn check(template: &str) -> String {
        let template = match Template::compile(template, ["rate", "answer"]) {
            Ok(template) => template,
            Err(mistake) => return format!("mistake: {mistake}"),
        };
        let rate = json!({ "per_10k": 120, "exact": 119.99, "sum": 0.1 + 0.2, "whole": 120.0, "tiny": 1e-7,
                           "zero": 0, "none": null, "text": "<b>", "list": [1, 2.5] });
        let answer = json!({ "id": "e1" });
        match template.render(&BTreeMap::from([("rate", &rate), ("answer", &answer)])) {
            Ok(text) => text,
            Err(problem) => format!("error: {problem}"),
        }
    }

    #[test]
    fn numbers_look_like_numbers() {
        for (template, text) in [
            ("{{ '%.2f' | format(rate.per_10k / 100) }} %", "1.20 %"),
            ("{{ '%.2f' | format(rate.exact / 100) }} %", "1.20 %"),
            ("{{ '%.1f of %s' | format(rate.whole, answer.id) }}", "120.0 of e1"),
            ("{{ rate.sum }} {{ rate.whole }} {{ rate.per_10k }} {{ rate.tiny }}", "0.3 120 120 0.0000001"),
            ("{{ rate.per_10k / 100 }} {{ rate.none }} {{ rate.text }}", "1.2 null <b>"),
            ("{% for x in range(2) %}{{ rate.list[x] }};{% endfor %}", "1;2.5;"),
        ] {
            assert_eq!(check(template), text, "{template}");
        }
    }

    #[test]
    fn nothing_undefined_and_nothing_endless() {
        for (template, said) in [
            ("{{ other }}", "mistake: \"other\" is not defined here; there are: answer, rate"),
            ("{{ rate.missing }}", "error: undefined value"),
            ("{{ rate.missing.deep }}", "error: undefined value"),
            ("{{ '%.2f' | format(rate.missing) }}", "error: undefined value"),
            ("{{ rate", "mistake: syntax error"),
            ("{{ rate.per_10k | nofilter }}", "filter"),
            ("{{ rate.per_10k / rate.zero }}", "error: "),
            ("{% for x in range(9999) %}{% for y in range(9999) %}a{% endfor %}{% endfor %}", "error: "),
            ("{% include 'other' %}", "error: "),
            ("{{ '%999999999d' | format(1) }}", "error: "),
        ] {
            let found = check(template);
            assert!(found.contains(said), "{template}: {found}");
        }
    }
}
