//! The archive: whatever a run has seen is found again, by handle and by words.

use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;

use bytes::Bytes;
use longrein_core::budget::{Limits, Usage};
use longrein_core::context::archive::Handle;
use longrein_core::context::settings::ContextSpec;
use longrein_core::event::{
    ActionFinished, ActionProposed, ActionSettled, CheckFinished, Event, How, InputReceived, ModelReplied, Proposer,
    Received, RunStarted, Settled, SettledBy,
};
use longrein_core::ids::{ActionId, AttemptId, CheckName, Digest, InputId, ModelName, RunId, Seq, ToolName, TurnId};
use longrein_core::input::Truth;
use longrein_core::outcome::{Finish, Outcome, Reply, ToolError, class};
use longrein_core::payload::{Content, Payload, place};
use longrein_core::program::Program;
use longrein_core::task::{EffectClass, ModelSpec, PolicyRules, Task};
use longrein_ports::{Claim, EXCERPT_AROUND_BYTES, Found, Piece, Unread};

use crate::common::{Bench, batch, event, every_backend};

/// A run in the making.
struct Past<'a> {
    bench: &'a Bench,
    claim: Claim,
    head: u64,
    actions: u32,
}

impl<'a> Past<'a> {
    async fn of(bench: &'a Bench, run: &str, goal: &str) -> Self {
        let claim = bench.claim(run, 1).await.unwrap();
        let mut past = Self { bench, claim, head: 0, actions: 0 };
        let started = RunStarted {
            run: RunId::new(run),
            task: task(goal),
            binary: "0".into(),
            root: None,
            descent: None,
            brings: vec![],
            first_tree: None,
        };
        past.add(vec![Event::RunStarted(Box::new(started))], vec![]).await;
        past
    }

    async fn add(&mut self, events: Vec<Event>, blobs: Vec<(Digest, Payload)>) -> u64 {
        let news: Vec<_> = events.into_iter().zip(1..).map(|(new, n)| event((self.head + n) * 1000, new)).collect();
        let mut sent = batch(&self.claim, self.head, &format!("b{}", self.head), news);
        sent.blobs = blobs.into_iter().map(|(digest, body)| (digest, Bytes::from(body.as_str().to_owned()))).collect();
        self.head = self.bench.append(&self.claim, sent).await.unwrap().head.0;
        self.head
    }

    async fn message(&mut self, text: &str) -> Handle {
        let body = Received::Message(text.to_owned());
        let input = InputId::new(self.head.to_string());
        Handle::Message(Seq(self
            .add(vec![Event::InputReceived(InputReceived { input, body, images: Vec::new() })], vec![])
            .await))
    }

    fn proposed(&mut self, tool: &str, args: &str) -> (ActionId, Event) {
        self.actions += 1;
        let args = Payload::parse(args).unwrap();
        let proposed = ActionProposed {
            action: ActionId(self.actions),
            index: 0,
            tool: ToolName::new(tool),
            call: self.actions.to_string(),
            effect: EffectClass::Read,
            digest: args.digest(),
            args,
            sent: None,
            key: None,
            path: None,
            after: vec![],
            proposer: Proposer::Model,
        };
        (ActionId(self.actions), Event::ActionProposed(proposed))
    }

    async fn action(&mut self, tool: &str, args: &str, result: &str) -> Handle {
        let (action, proposed) = self.proposed(tool, args);
        let (content, blob) = place(Payload::string(result));
        let finished = finished(action, Outcome::Done(content));
        self.add(vec![proposed, finished], blob.into_iter().collect()).await;
        Handle::Action(action)
    }

    async fn find(&self, query: &str) -> Vec<Found> {
        self.bench.journal.find(&self.claim.run, query, 5).await.unwrap()
    }

    async fn first(&self, query: &str) -> Option<Handle> {
        self.find(query).await.first().map(|found| found.handle)
    }

    async fn piece(&self, handle: &str) -> Option<Piece> {
        self.bench.journal.piece(&self.claim.run, &handle.parse().unwrap()).await.unwrap()
    }
}

fn finished(action: ActionId, outcome: Outcome) -> Event {
    let how = How::Observed;
    Event::ActionFinished(ActionFinished {
        action,
        attempt: 1,
        effect: EffectClass::Read,
        outcome,
        how,
        cost_micros: 0,
        brings: vec![],
        left: None,
    })
}

fn task(goal: &str) -> Task {
    Task {
        goal: goal.to_owned(),
        instructions: String::new(),
        constraints: Vec::new(),
        program: Program::React,
        model: ModelSpec::plain(ModelName::new("m"), 500),
        workspace: "/w".to_owned(),
        folder: "/w".to_owned(),
        principal: Payload::null(),
        limits: Limits::default(),
        inputs: BTreeMap::new(),
        tools: Vec::new(),
        acceptance: Vec::new(),
        answer: None,
        policy: PolicyRules::default(),
        permission_mode: longrein_core::task::Mode::Ask,
        hooks: Vec::new(),
        rules: Vec::new(),
        context: ContextSpec::default(),
        routes: Vec::new(),
        sources: BTreeMap::new(),
        servers: Default::default(),
        snapshots: longrein_core::task::Snapshots::default(),
        piped_from: None,
        questions_expire_ms: None,
        images: Vec::new(),
        pins: BTreeMap::new(),
    }
}

/// Text in which nothing is to be found.
fn filler(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 20);
    for n in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(["lorem", "ipsum", "dolor", "sit", "amet"][n % 5]);
        text.push(if n % 12 == 11 { '\n' } else { ' ' });
    }
    text
}

every_backend! {
    async fn every_kind_of_piece_comes_back_by_handle(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "Mend the \"gate\".\nThen paint it.").await;
        let reply = Reply { text: "I look first.".into(), calls: vec![], finish: Finish::ToolCalls, usage: None, repaired: None, wired: None };
        let attempt = AttemptId { turn: TurnId(1), attempt: 1 };
        let (settled, usage) = (Settled::Reported, Usage::default());
        past.add(vec![Event::ModelReplied(ModelReplied { attempt, reply, usage, settled, micros: 0 })], vec![]).await;
        past.action("read_file", r#"{"path":"gate.txt"}"#, "line one\nline two").await;
        let told = past.message("Use green.").await;
        let (paid, proposed) = past.proposed("pay", r#"{"note":"a\nb"}"#);
        let error = ToolError::new(class::UNKNOWN_OUTCOME, "The line went dead.").hint("Ask the bank.");
        past.add(vec![proposed, finished(paid, Outcome::Unknown(error))], vec![]).await;
        let truth = Truth::Done(Content::Inline(Payload::string("receipt 77")));
        let by = SettledBy::Person { input: InputId::new("s"), by: "ann".into() };
        past.add(vec![Event::ActionSettled(ActionSettled { action: paid, truth, by, brings: vec![] })], vec![]).await;
        let (evidence, _) = place(Payload::string("2 tests failed"));
        let verdict = longrein_core::check::Verdict {
            finding: longrein_core::check::Finding::Failed, evidence, exit_status: Some(1), took_ms: 3,
            proof: Default::default(),
        };
        let check = past.add(vec![Event::CheckFinished(CheckFinished { check: CheckName::new("unit"), round: 2, action: None, verdict, brings: vec![], phase: None })], vec![]).await;

        let goal = past.piece("u1").await.unwrap();
        assert_eq!((goal.what.as_str(), goal.text.as_str(), goal.at.0), ("user message", "Mend the \"gate\".\nThen paint it.", 1000));
        assert_eq!(past.piece("t1").await.unwrap().text, "I look first.");
        let read = past.piece("a1").await.unwrap();
        assert_eq!(read.what, "read_file");
        assert_eq!(read.text, "read_file was called with\n{\"path\":\"gate.txt\"}\nIts result:\nline one\nline two");
        assert_eq!(past.piece("e1").await, Some(read), "evidence is found with its action");
        assert_eq!(past.piece(&told.to_string()).await.unwrap().text, "Use green.");
        let pay = past.piece("a2").await.unwrap();
        assert_eq!(pay.text.lines().collect::<Vec<_>>(), [
            "pay was called with", "{\"note\":\"a", "b\"}", "Nobody knows what became of it (unknown_outcome):",
            "The line went dead.", "Ask the bank.", "It is known now that it was done:", "receipt 77",
        ]);
        assert!(pay.at > past.piece("a1").await.unwrap().at);
        let unit = past.piece(&format!("c{check}")).await.unwrap();
        assert_eq!((unit.what.as_str(), unit.text.as_str()), ("check unit", "Check unit failed in round 2.\n2 tests failed"));
        // A call that could not be read is kept as it was sent.
        for (sent, shown) in [(r#"{"path":"p","wrong":"a\nvalve"}"#, "{\"path\":\"p\",\n\"wrong\":\"a\nvalve\"}"), (r#"{"cut":"a valve"#, r#"{"cut":"a valve"#)] {
            let (refused, mut proposed) = past.proposed("write", "null");
            if let Event::ActionProposed(proposed) = &mut proposed {
                proposed.sent = Some(Payload::parse(sent).unwrap_or_else(|_| Payload::string(sent)));
            }
            past.add(vec![proposed], vec![]).await;
            let piece = past.piece(&refused.to_string()).await.unwrap();
            assert_eq!(piece.call(), format!("write was called with\n{shown}"));
            assert_eq!(past.first("valve").await, Some(Handle::Action(refused)));
        }
        for nothing in ["a5", "t2", "u2", "c1", "a4294967295", "u18446744073709551615"] {
            assert_eq!(past.piece(nothing).await, None, "{nothing}");
        }
        assert_eq!(past.first("receipt").await, Some(Handle::Action(paid)));
        assert_eq!(past.first("green").await, Some(told));
        assert_eq!(past.first("look first").await, Some(Handle::Reply(TurnId(1))));
        assert_eq!(past.first("gate.txt").await, Some(Handle::Action(ActionId(1))));
    }

    async fn a_fact_in_the_middle_of_a_big_output_is_found(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "Find out.").await;
        for n in 0..20 {
            past.action("shell", "{}", &format!("{}staging one, port {n}, key two", filler(2_000))).await;
        }
        let half = filler(500_000);
        let line = half.lines().count() as u64 + 3;
        let big = format!("{half}\nThe staging key is \"zq-8841\".\n{half}");
        let there = past.action("shell", r#"{"command":"dump"}"#, &big).await;
        for n in 0..20 {
            past.action("shell", "{}", &format!("{} staging {n} … {} key", filler(500), filler(500))).await;
        }
        let found = past.find("the staging key").await;
        assert_eq!(found[0].handle, there, "{found:?}");
        assert_eq!(found[0].what, "shell");
        assert!(found[0].excerpt.contains("zq-8841"), "{}", found[0].excerpt);
        assert!(found[0].excerpt.len() <= 3 * EXCERPT_AROUND_BYTES + 8, "{}", found[0].excerpt.len());
        let whole = past.piece(&there.to_string()).await.unwrap().text;
        // Before it stand the call, its arguments and what announces the result.
        assert_eq!(whole.lines().position(|line| line.contains("zq-8841")).map(|line| line as u64 - 2), Some(found[0].line));
        assert!(found[0].line.abs_diff(line) <= 2, "{} is about {line}", found[0].line);
        assert_eq!(past.first("zq 8841").await, Some(there));
        assert_eq!(past.first("8841").await, Some(there));
        assert_eq!(past.first("ZQ-8841?").await, Some(there));
    }

    async fn several_matches_in_one_piece_are_one_place(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        let text = format!("needle\n{}needle of gold\n{}needle", filler(5_000), filler(5_000));
        past.action("shell", r#"{"q":"gold"}"#, &text).await;
        past.message("Nothing here.").await;
        let found = past.find("gold needle").await;
        assert_eq!(found.len(), 1);
        assert!(found[0].excerpt.contains("needle of gold"), "{}", found[0].excerpt);
    }

    async fn what_holds_all_words_comes_before_what_holds_one_often(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        let apart = past.message(&format!("alpha {} beta", filler(2_000))).await;
        let near = past.action("shell", "{}", &format!("{}beta then alpha {}", filler(9_000), filler(9_000))).await;
        let often = past.message(&"alpha ".repeat(50)).await;
        for _ in 0..5 {
            past.message("gamma").await;
        }
        let order: Vec<_> = past.find("alpha beta").await.iter().map(|found| found.handle).collect();
        assert_eq!(order, [near, apart, often]);
        assert_eq!(past.bench.journal.find(&past.claim.run, "alpha beta", 2).await.unwrap().len(), 2);
        assert_eq!(past.bench.journal.find(&past.claim.run, "alpha beta", 0).await.unwrap(), []);
    }

    async fn what_was_looked_up_before_is_not_found_but_can_be_read(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        let fact = past.action("shell", "{}", &format!("{}the harbour code is 4711{}", filler(5_000), filler(5_000))).await;
        let echo = past.action("recall", r#"{"query":"harbour code zebra 🎉"}"#, "the harbour code is 4711").await;
        let order: Vec<_> = past.find("harbour code").await.iter().map(|found| found.handle).collect();
        assert_eq!(order, [fact]);
        assert_eq!(past.first("arbour").await, Some(fact));
        for nowhere in ["zebra", "zebr", "🎉"] {
            assert_eq!(past.first(nowhere).await, None, "{nowhere}");
        }
        assert!(past.piece(&echo.to_string()).await.unwrap().text.contains("zebra"));
    }

    /// What the control block counts can be read whole, a line each; and no query finds a list.
    async fn lists_are_read_and_never_found(bench: &Bench) {
        let mut past = Past::of(bench, "r", "go").await;
        assert!(past.piece("effects").await.is_none(), "nothing was done yet");
        for number in 0..40 {
            let (id, mut proposed) = past.proposed("deploy", &format!(r#"{{"service":"zq{number}"}}"#));
            if let Event::ActionProposed(proposed) = &mut proposed {
                proposed.effect = EffectClass::External;
            }
            let mut ended = finished(id, Outcome::Done(Content::Inline(Payload::string("line one\nline two"))));
            if let Event::ActionFinished(ended) = &mut ended {
                ended.effect = EffectClass::External;
            }
            past.add(vec![proposed, ended], vec![]).await;
            past.action("look", "{}", "no effect").await;
        }
        past.message("be careful\nwith zq7").await;
        let effects = past.piece("effects").await.expect("there were some");
        assert_eq!(effects.result().lines().count(), 80);
        assert!(effects.text.contains("a1 deploy {\"service\":\"zq0\"}: proposed"), "{}", effects.text);
        assert!(effects.text.contains("a79: done → "), "{}", effects.text);
        let messages = past.piece("messages").await.expect("there was one");
        assert!(messages.text.ends_with(": be careful ⏎ with zq7"), "{}", messages.text);
        assert!(past.piece("files").await.is_none() && past.piece("notes").await.is_none());
        for query in ["zq7", "deploy", "proposed", "be careful", "\"}: propo"] {
            let found = past.find(query).await;
            assert!(found.iter().all(|found| !matches!(found.handle, Handle::List(_))), "{query}: {found:?}");
        }
    }

    async fn lines_of_an_action_are_lines_of_its_result(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        let (action, proposed) = past.proposed("shell", r#"{"command":"grep\nquill"}"#);
        past.add(vec![proposed], vec![]).await;
        let running = past.piece("a1").await.unwrap();
        assert_eq!((running.call(), running.result()), (running.text.as_str(), ""));
        let printed = Payload::of(&serde_json::json!({ "status": 0, "output": "one\ntwo\nthe needle\n" })).unwrap();
        past.add(vec![finished(action, Outcome::Done(Content::Inline(printed)))], vec![]).await;
        let piece = past.piece("a1").await.unwrap();
        assert!(piece.result().starts_with("one\ntwo\nthe needle\n"), "{}", piece.result());
        assert!(piece.call().starts_with("shell was called with\n{\"command\":\"grep\nquill\"}\n"), "{}", piece.call());
        assert_eq!(past.find("needle").await[0].line, 3);
        assert_eq!(past.find("quill").await[0].line, 0, "in the call");

        let (failed, proposed) = past.proposed("shell", "{}");
        let data = Content::Inline(Payload::string("first\nbroken pipe"));
        let error = ToolError { data: Some(data), ..ToolError::new(class::EXIT, "It ended badly.") };
        past.add(vec![proposed, finished(failed, Outcome::Error(error))], vec![]).await;
        assert_eq!(past.piece("a2").await.unwrap().result(), "first\nbroken pipe");
        assert_eq!(past.find("broken").await[0].line, 2);
        let (refused, proposed) = past.proposed("shell", "{}");
        let error = ToolError::new(class::TIMEOUT, "Too late.");
        past.add(vec![proposed, finished(refused, Outcome::Error(error))], vec![]).await;
        assert_eq!(past.piece("a3").await.unwrap().result(), "It failed (timeout):\nToo late.");
        assert_eq!(past.piece("u1").await.unwrap().result(), "x");
    }

    async fn every_byte_of_one_long_line_can_be_read_by_lines(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        let line = filler(200_000).replace('\n', " ");
        past.action("shell", "{}", &format!("{line} needle {line}")).await;
        let found = past.find("needle").await.remove(0);
        let piece = past.piece("a1").await.unwrap();
        let place = usize::try_from(found.line).unwrap() - 1;
        let lines: Vec<_> = longrein_ports::lines(piece.result()).skip(place).take(2).collect();
        assert!(found.line > 90 && lines.concat().contains("needle"), "{}: {lines:?}", found.line);
    }

    async fn parts_of_words_other_scripts_and_signs_are_found(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        let chinese = past.message("请先备份生产数据库再部署").await;
        let korean = past.message("데이터베이스를 백업하세요").await;
        let thai = past.action("shell", "{}", "กรุณาสำรองข้อมูลก่อน").await;
        let party = past.message("all green 🎉 ship it").await;
        let part = past.message("see src/extraordinary_module.rs").await;
        let signs = past.message("use the ?? operator and ::<> there").await;
        let nul = past.action("shell", "{}", "before\0 after_nul").await;
        let accent = past.message("Le Café ÉTOILE").await;
        for (query, handle) in [
            ("数据库", chinese), ("生产数据库 backup", chinese), ("베이스", korean), ("ข้อมูล", thai), ("🎉", party),
            ("aordinary_mod", part), ("extraordinary_module.rs", part), ("??", signs), ("::<>", signs),
            ("after_nul", nul), ("étoile", accent), ("CAFÉ", accent),
        ] {
            assert_eq!(past.first(query).await, Some(handle), "{query}");
        }
    }

    async fn an_action_is_one_piece_however_late_its_end(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        let (action, proposed) = past.proposed("deploy", r#"{"target":"moonbase"}"#);
        past.add(vec![proposed], vec![]).await;
        assert_eq!(past.first("moonbase").await, Some(Handle::Action(action)));
        for n in 0..300 {
            past.message(&format!("meanwhile {n}")).await;
        }
        assert_eq!(past.first("meanwhile 299").await.map(|handle| handle.to_string()), Some(format!("u{}", past.head)));
        past.add(vec![finished(action, Outcome::Done(Content::Inline(Payload::string("touchdown"))))], vec![]).await;
        let found = past.find("touchdown moonbase").await;
        assert_eq!(found.iter().map(|found| found.handle).collect::<Vec<_>>(), [Handle::Action(action)]);
        assert!(found[0].excerpt.contains("moonbase") && found[0].excerpt.contains("touchdown"));
    }

    async fn runs_do_not_see_each_other(bench: &Bench) {
        let mut one = Past::of(bench, "one", "shared word").await;
        let mut two = Past::of(bench, "two", "shared word").await;
        one.message("secret of one").await;
        two.action("shell", "{}", "secret of two").await;
        assert_eq!(one.find("secret").await.len(), 1);
        assert_eq!(one.first("secret").await.map(|handle| handle.to_string()), Some("u2".into()));
        assert_eq!(two.first("secret").await.map(|handle| handle.to_string()), Some("a1".into()));
        assert_eq!(one.piece("a1").await, None);
        assert_eq!(bench.journal.find(&RunId::new("nobody"), "secret", 5).await.unwrap(), []);
        assert_eq!(bench.journal.piece(&RunId::new("nobody"), &Handle::Message(Seq(1))).await.unwrap(), None);
        bench.journal.index(&RunId::new("nobody")).await.unwrap();
    }

    async fn a_removed_run_is_not_found(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        past.message("secret").await;
        assert_eq!(past.find("secret").await.len(), 1);
        bench.journal.release(&past.claim).await.unwrap();
        bench.journal.purge(from_ref(&past.claim.run), Unread::Goes).await.unwrap();
        assert_eq!(past.find("secret").await, []);
        assert_eq!(past.piece("u1").await, None);
        bench.journal.index(&past.claim.run).await.unwrap();
        assert!(!bench.cache_of(&past.claim.run).exists());
    }

    async fn a_lost_blob_says_so(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "x").await;
        let (action, proposed) = past.proposed("shell", "{}");
        let (content, blob) = place(Payload::string(&format!("begin {} end", filler(50_000))));
        assert!(blob.is_some());
        past.add(vec![proposed, finished(action, Outcome::Done(content))], vec![]).await;
        let text = past.piece("a1").await.unwrap().text;
        assert!(text.contains("begin lorem") && text.contains("is lost"), "{}", &text[text.len() - 200..]);
        assert_eq!(past.first("begin").await, Some(Handle::Action(action)));
    }

    async fn any_bytes_are_a_query(bench: &Bench) {
        let mut past = Past::of(bench, "r1", "Do NEAR(it) \"now\" AND not later* ^2 {x}: col:val -minus").await;
        past.action("shell", r#"{"command":"grep -r '\"*' ."}"#, "数据 🎉 \0 tab\there é ß İ").await;
        past.message("or and not near phrase").await;
        let parts = [
            "\"", "*", "NEAR(", ")", "AND", "OR", "NOT", "^", "{", "}", ":", "-", "+", "\0", "🎉", "数据", " ", "\n", "'", ";",
            "--", "/*", "\\", "words", "rank", "%", "_", "é", "\u{301}", "İ", "ß", "Ⓐ", "\u{202e}", "now", "x", "1e9", "\u{fffd}", "\u{10ffff}",
        ];
        // Not random, but no two alike: a fixed walk over the parts.
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut queries = BTreeSet::new();
        while queries.len() < 10_000 {
            let mut query = String::new();
            for _ in 0..1 + state % 6 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                query.push_str(parts[usize::try_from(state % parts.len() as u64).unwrap()]);
            }
            queries.insert(query);
        }
        for query in &queries {
            if let Err(error) = bench.journal.find(&past.claim.run, query, 3).await {
                panic!("{query:?}: {error}");
            }
        }
        for query in ["", " \n", &"x".repeat(1 << 20), &"🎉 now ".repeat(100_000)] {
            let found = past.find(query).await;
            assert!(query.trim().is_empty() == found.is_empty() || query.len() == 1 << 20, "{found:?}");
        }
    }
}

/// Both backends tell the same of one past.
#[tokio::test]
async fn memory_and_file_give_the_same_answers() {
    let (memory, sqlite) = (Bench::memory(), Bench::sqlite());
    let mut told = Vec::new();
    for bench in [&memory, &sqlite] {
        let mut past = Past::of(bench, "r1", "Move the orders service to the new cluster.").await;
        let words = ["orders", "service", "cluster", "port", "staging", "数据库", "Größe", "timeout", "retry", "5433"];
        for n in 0..120_usize {
            let text: Vec<&str> = (0..3 + n % 17).map(|k| words[(n * 7 + k * k * 3 + k) % (3 + n % 8)]).collect();
            let text = format!("{} {}", text.join(if n % 3 == 0 { " " } else { "\n" }), filler(n * 13));
            if n % 2 == 0 {
                past.message(&text).await;
            } else {
                past.action("shell", &format!("{{\"n\":{n}}}"), &text).await;
            }
        }
        // More than a word may be in and still be weighed.
        for n in 0..320 {
            past.message(&format!(
                "orders {} {}",
                if n % 40 == 3 { "abroad" } else { "service" },
                ["port", "x y z"][n % 2]
            ))
            .await;
        }
        let mut answers = Vec::new();
        for query in [
            "orders abroad",
            "abroad orders port",
            "service orders",
            "orders timeout",
            "cluster orders abroad timeout",
            "orders",
            "orders service",
            "cluster port staging",
            "数据库",
            "库 timeout",
            "größe",
            "retry 5433",
            "servic",
            "n 17",
            "nothing of this",
            "the orders service on the staging cluster",
            "??",
        ] {
            answers.push((query, past.find(query).await));
        }
        told.push(answers);
    }
    let sqlite_told = told.pop().unwrap();
    for (one, other) in told.pop().unwrap().into_iter().zip(sqlite_told) {
        assert_eq!(one, other);
    }
}

mod file {
    use super::*;
    use longrein_ports::Archive;
    use longrein_store::{SqliteJournal, SystemClock};
    use std::sync::Arc;

    fn open(bench: &Bench) -> SqliteJournal {
        SqliteJournal::open(&bench.path(), Arc::new(SystemClock::default())).unwrap()
    }

    #[tokio::test]
    async fn two_handles_index_one_run_at_once() {
        let bench = Bench::sqlite();
        let mut past = Past::of(&bench, "r1", "x").await;
        let others: Vec<Arc<SqliteJournal>> = (0..3).map(|_| Arc::new(open(&bench))).collect();
        for round in 0..5 {
            for n in 0..100 {
                past.message(&format!("word{n} of round{round}")).await;
            }
            let asked: Vec<_> = others
                .iter()
                .map(|other| {
                    let (other, run) = (Arc::clone(other), past.claim.run.clone());
                    tokio::spawn(async move { other.find(&run, &format!("round{round} word99"), 1).await })
                })
                .collect();
            for asked in asked {
                let found = asked.await.unwrap().unwrap();
                assert_eq!(found[0].handle.to_string(), format!("u{}", past.head));
            }
        }
        assert_eq!(past.find("word7 round3").await.len(), 5);
        assert!(bench.is_whole(&past.claim.run).await);
    }

    #[tokio::test]
    async fn a_lost_or_damaged_index_is_made_anew() {
        let bench = Bench::sqlite();
        let mut past = Past::of(&bench, "r1", "x").await;
        for n in 0..50 {
            past.message(&format!("needle{n} {}", filler(200))).await;
        }
        assert_eq!(past.find("needle7").await.len(), 1);
        let folder = bench.cache_of(&past.claim.run);
        for damage in ["remove", "empty", "garbage", "flip"] {
            let next = open(&bench);
            for entry in std::fs::read_dir(&folder).unwrap() {
                let file = entry.unwrap().path();
                // A log and its index beside it would put everything right again.
                let is_main = file.extension().is_some_and(|extension| extension == "db");
                match damage {
                    "remove" => std::fs::remove_file(&file).unwrap(),
                    _ if !is_main => std::fs::remove_file(&file).unwrap(),
                    "empty" => std::fs::write(&file, b"").unwrap(),
                    "garbage" => std::fs::write(&file, filler(100_000)).unwrap(),
                    _ => {
                        let mut bytes = std::fs::read(&file).unwrap();
                        bytes.iter_mut().skip(100).step_by(7).for_each(|byte| *byte ^= 0x5A);
                        std::fs::write(&file, bytes).unwrap();
                    }
                }
            }
            let found = next.find(&past.claim.run, "needle7", 5).await.unwrap();
            assert_eq!(found.len(), 1, "{damage}");
            assert!(bench.is_whole(&past.claim.run).await, "verify takes no notice of an index");
        }
    }

    /// A store that was put back from a backup, or lost its end with the power, beside the index of what it was.
    #[tokio::test]
    async fn an_index_of_another_history_is_made_anew() {
        let bench = Bench::sqlite();
        let mut past = Past::of(&bench, "r1", "x").await;
        past.message("what was").await;
        past.message("lost").await;
        assert_eq!(past.find("lost").await.len(), 1);
        let raw = rusqlite::Connection::open(bench.path()).unwrap();
        let other = Bench::sqlite();
        let mut instead = Past::of(&other, "r1", "x").await;
        instead.message("what was").await;
        for n in 0..3 {
            instead.message(&format!("instead {n}")).await;
        }
        raw.execute_batch(&format!(
            "ATTACH '{}' AS other;
             DELETE FROM events; INSERT INTO events SELECT * FROM other.events;
             DELETE FROM runs; INSERT INTO runs SELECT * FROM other.runs;",
            other.path().display()
        ))
        .unwrap();
        assert_eq!(past.find("lost").await, []);
        assert_eq!(past.find("instead").await.len(), 3);
        assert_eq!(past.piece("u3").await.unwrap().text, "instead 0");
    }

    #[tokio::test]
    async fn a_collection_takes_the_caches_of_removed_runs() {
        let bench = Bench::sqlite();
        let mut past = Past::of(&bench, "r1", "x").await;
        past.message("here").await;
        assert_eq!(past.find("here").await.len(), 1);
        // What a process that was killed in the middle of a purge leaves.
        let left = bench.cache_of(&RunId::new("gone"));
        std::fs::create_dir_all(&left).unwrap();
        std::fs::write(left.join("snapshot-3"), b"x").unwrap();
        bench.journal.collect(std::time::Duration::ZERO).await.unwrap();
        assert!(!left.exists());
        assert!(bench.cache_of(&past.claim.run).exists());
        assert_eq!(past.find("here").await.len(), 1);
    }

    #[tokio::test]
    async fn caches_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let bench = Bench::sqlite();
        let mut past = Past::of(&bench, "r1", "x").await;
        past.message("here").await;
        past.find("here").await;
        let snapshot = longrein_ports::Snapshot { seq: Seq(2), catalogue: String::new(), body: Bytes::new() };
        bench.journal.keep_snapshot(&past.claim.run, &snapshot).await.unwrap();
        bench.journal.remember("k", Bytes::new()).await.unwrap();
        let mut folders = vec![bench.path().with_file_name("longrein.db-cache")];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700, "{}", folder.display());
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
                    files += 1;
                }
            }
        }
        assert!(files >= 3, "an index, a snapshot and a value");
    }

    #[tokio::test]
    async fn many_runs_are_looked_through_in_turn() {
        let bench = Bench::sqlite();
        let mut pasts = Vec::new();
        for n in 0..30 {
            pasts.push(Past::of(&bench, &format!("r{n}"), &format!("goal{n} of all")).await);
        }
        for _ in 0..3 {
            for (n, past) in pasts.iter().enumerate() {
                assert_eq!(past.find(&format!("goal{n}")).await.len(), 1);
                assert_eq!(past.find("goal77").await.len(), 0);
            }
        }
    }
}
