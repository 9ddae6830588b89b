//! Texts of the kinds that tools print, made from a seed: the same seed, the same text.

use std::fmt::Write;

/// Small and repeatable random numbers (SplitMix64): no seed is a bad one, and no version of a library changes a plan.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// From 0 to 1, without 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Log-normal, by the sum of twelve: near enough to a bell within three deviations, which is where a cap cuts it.
    pub(crate) fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let bell: f64 = (0..12).map(|_| self.share()).sum::<f64>() - 6.0;
        median * (sigma * bell).exp()
    }

    /// So many lower-case hex digits.
    pub(crate) fn hex(&mut self, digits: usize) -> String {
        (0..digits).map(|_| char::from(self.pick(b"0123456789abcdef"))).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Code,
    English,
    Chinese,
    Json,
    Log,
    Blob,
}

/// A text of this kind of at least so many bytes, in whole lines.
pub(crate) fn text(dice: &mut Dice, kind: Kind, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 200);
    while text.len() < bytes {
        match kind {
            Kind::Code => passage(dice, CODE, &mut text, bytes),
            Kind::English => passage(dice, ENGLISH, &mut text, bytes),
            Kind::Chinese => chinese(dice, &mut text),
            Kind::Json => json(dice, &mut text),
            Kind::Log => log(dice, &mut text),
            Kind::Blob => blob(dice, &mut text, bytes),
        }
    }
    text
}

/// Lines in a row from one of these files.
fn passage(dice: &mut Dice, files: &[&str], text: &mut String, bytes: usize) {
    let file = dice.pick(files);
    let lines = file.lines().count();
    for line in file.lines().skip(dice.below(lines)) {
        if text.len() >= bytes {
            return;
        }
        text.push_str(line);
        text.push('\n');
    }
}

fn chinese(dice: &mut Dice, text: &mut String) {
    for _ in 0..=dice.below(4) {
        text.push_str(dice.pick(CHINESE));
    }
    text.push('\n');
}

fn json(dice: &mut Dice, text: &mut String) {
    let (service, verb) = (dice.pick(NAMES), dice.pick(VERBS));
    let (id, at) = (dice.hex(8), 1_790_000_000 + dice.below(9_000_000));
    let (errors, share) = (dice.below(5_000), dice.share());
    writeln!(
        text,
        r#"{{"id":"{id}","service":"{service}","at":{at},"errors":{errors},"share":{share:.6},"ok":{},"tags":["{verb}","{}"],"owner":{{"name":"{}","team":null}}}}"#,
        errors < 2_500,
        dice.pick(NAMES),
        dice.pick(NAMES),
    )
    .expect("a string takes everything");
}

fn log(dice: &mut Dice, text: &mut String) {
    let (hour, minute, second, millis) = (dice.below(24), dice.below(60), dice.below(60), dice.below(1000));
    let level = dice.pick(&["INFO ", "INFO ", "DEBUG", "WARN ", "ERROR"]);
    let (name, verb) = (dice.pick(NAMES), dice.pick(VERBS));
    let (pid, took) = (dice.below(65_536), dice.below(20_000));
    writeln!(
        text,
        "2026-11-{:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z {level} [{name}-{pid}] {name}::{verb}: request 0x{} took {took} ms (10.0.{}.{})",
        1 + dice.below(28),
        dice.hex(8),
        dice.below(256),
        dice.below(256),
    )
    .expect("a string takes everything");
}

/// Base64 in lines of 76, as mail and certificates have it.
fn blob(dice: &mut Dice, text: &mut String, bytes: usize) {
    const SIGNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    while text.len() < bytes {
        text.extend((0..76).map(|_| char::from(dice.pick(SIGNS))));
        text.push('\n');
    }
}

/// Our own code and prose, from parts that seldom change.
const CODE: &[&str] = &[
    include_str!("../../crates/rules/src/condition.rs"),
    include_str!("../../crates/policy/src/shell/scan.rs"),
    include_str!("../../crates/workspace/src/edit.rs"),
];
const ENGLISH: &[&str] = &[
    include_str!("../../docs/decisions/0001-journal.md"),
    include_str!("../../docs/decisions/0003-effects.md"),
    include_str!("../../docs/decisions/0005-tools-are-programs.md"),
];

const CHINESE: &[&str] = &[
    "上下文是有限的资源，不能随意浪费。",
    "模型提出建议，程序执行，环境给出回答。",
    "每一次修改之前，都要先写下意图。",
    "服务器在昨天晚上重新启动了三次，原因还不清楚。",
    "请检查第二十七行的错误，然后再运行测试。",
    "如果没有证据，就不要猜测任何数字。",
    "数据库的索引已经损坏，需要从备份恢复。",
    "约束条件：不得修改公共接口，也不得删除日志。",
    "缓存命中率从百分之九十下降到了百分之六十。",
    "他们决定把旧的模块拆分成两个更小的部分。",
    "这个函数的返回值在并发情况下可能是错误的。",
    "订单编号与付款记录不一致，请人工核对。",
];
const NAMES: &[&str] = &[
    "checkout",
    "billing",
    "inventory",
    "gateway",
    "scheduler",
    "ledger",
    "notifications",
    "search_index",
    "user-profile",
    "auth",
    "payments_reconciler",
    "cdn",
];
const VERBS: &[&str] = &[
    "started",
    "refresh_token",
    "commit",
    "rollback",
    "retry",
    "flush_cache",
    "resolve",
    "handshake",
    "evict",
    "open",
];
