//! The token estimator against real tokenizers, on the kinds of text that tools print.

#[path = "../src/texts.rs"]
mod texts;

use longrein_core::context::estimate::{Estimator, Features};
use texts::{Dice, Kind};
use tiktoken::CoreBpe;

fn tokenizers() -> Vec<(&'static str, &'static CoreBpe)> {
    ["o200k_base", "llama3", "qwen2"].map(|name| (name, tiktoken::get_encoding(name).expect("it is built in"))).to_vec()
}

const KINDS: [Kind; 6] = [Kind::Code, Kind::English, Kind::Chinese, Kind::Json, Kind::Log, Kind::Blob];

/// What every server adds to a message in some way: role and delimiters.
const AROUND: u64 = 4;

fn count(tokenizer: &CoreBpe, text: &str) -> u64 {
    tokenizer.count(text) as u64 + AROUND
}

#[test]
fn a_new_estimator_is_never_over() {
    let mut dice = Dice::new(1);
    let mut report = String::new();
    for (name, tokenizer) in tokenizers() {
        for kind in KINDS {
            let mut ratios = Vec::new();
            for size in [200, 1_000, 4_000, 20_000] {
                for _ in 0..10 {
                    let text = texts::text(&mut dice, kind, size);
                    let (truth, features) = (count(tokenizer, &text), Features::of_message(&text));
                    let estimator = Estimator::new();
                    let upper = estimator.upper(&features);
                    assert!(truth <= upper, "{name}, {kind:?}: {truth} tokens, bound {upper}\n{text}");
                    ratios.push(truth as f64 / estimator.estimate(&features) as f64);
                }
            }
            ratios.sort_by(f64::total_cmp);
            let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
            report += &format!("{name:<12}{:<10}{least:.2} {median:.2} {most:.2}\n", format!("{kind:?}"));
        }
    }
    eprintln!("tokens over estimate, of a new one: least, median, most\n{report}");
}

const WINDOW: f64 = 200_000.0;

/// A conversation: each turn appends a message of some kind and size, and is told what was truly counted.
#[test]
fn after_thirty_turns_the_next_request_is_known_to_a_hundredth_of_the_window() {
    for (name, tokenizer) in tokenizers() {
        let mut dice = Dice::new(7);
        let mut estimator = Estimator::new();
        let (mut errors, mut missed, mut slack) = (Vec::new(), 0, Vec::new());
        let turns = 400;
        for turn in 0..turns {
            // mostly code, logs and prose; one in ten of the others
            let kind = if dice.below(10) == 0 {
                dice.pick(&KINDS)
            } else {
                dice.pick(&[Kind::Code, Kind::English, Kind::Json, Kind::Log])
            };
            let bytes = dice.log_normal(0.01 * WINDOW, 1.2).min(0.3 * WINDOW) * 3.5;
            let text = texts::text(&mut dice, kind, bytes as usize);
            let (truth, added) = (count(tokenizer, &text), Features::of_message(&text));
            let bound = estimator.bound(50_000, &added);
            if turn >= 30 {
                errors.push(bound.likely.abs_diff(50_000 + truth) as f64 / WINDOW);
                slack.push((bound.upper - bound.likely) as f64 / WINDOW);
                missed += u32::from(bound.upper < 50_000 + truth);
            }
            estimator.learn(&added, truth);
        }
        errors.sort_by(f64::total_cmp);
        slack.sort_by(f64::total_cmp);
        let p99 = errors[errors.len() * 99 / 100];
        eprintln!(
            "{name:<12} error median {:.3} %, p99 {:.3} % of the window; bound {:.3} % above (median), missed {missed} of {}",
            errors[errors.len() / 2] * 100.0,
            p99 * 100.0,
            slack[slack.len() / 2] * 100.0,
            errors.len()
        );
        assert!(p99 <= 0.01, "{name}: {p99}");
        assert!(f64::from(missed) <= 0.01 * errors.len() as f64, "{name}: {missed}");
    }
}
