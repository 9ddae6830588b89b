//! The task that is played.

use super::*;

pub(crate) fn tool(name: &str, effect: EffectClass) -> ToolSpec {
    let body = ToolBody::Command(vec![name.to_owned()]);
    ToolSpec {
        description: String::new(),
        parameters: Payload::null(),
        timeout: Duration::from_secs(10),
        overlap: Overlap::Parallel,
        holds: Holds::UntilWrite,
        ..ToolSpec::new(ToolName::new(name), body, effect)
    }
}

pub(crate) fn task(limits: u64, permission_mode: Mode) -> Task {
    use EffectClass::{External, Read, Workspace};
    let reconcile = || vec!["ask".to_owned()];
    let sound = || vec!["sound".to_owned()];
    let day = Some(Duration::from_secs(86_400));
    let tools = vec![
        ToolSpec { provides: vec![FactName::new("seen")], ..tool("look", Read) },
        tool("edit", Workspace),
        ToolSpec { check: sound(), provides: vec![FactName::new("made")], ..tool("craft", Workspace) },
        ToolSpec { check: sound(), compensate: Some(ToolName::new("pay")), ..tool("reserve", External) },
        ToolSpec { check: sound(), ..tool("announce", External) },
        ToolSpec { idempotent: day, ..tool("pay", External) },
        ToolSpec { reconcile: reconcile(), ..tool("ship", External) },
        ToolSpec { on_unknown: OnUnknown::Tell, ..tool("email", External) },
        ToolSpec {
            key: Some(KeySpec { args: Vec::new(), scope: KeyScope::Run }),
            reconcile: reconcile(),
            idempotent: day,
            ..tool("book", External)
        },
        ToolSpec { requires: vec![FactName::new("seen")], max_calls: Some(1), ..tool("publish", External) },
        ToolSpec { depends_on: vec![ToolName::new("edit")], overlap: Overlap::OneAtATime, ..tool("release", External) },
    ];
    let small = Limits {
        turns: Limit::At(6),
        model_calls: Limit::At(9),
        tool_calls: Limit::At(5),
        tokens: Limit::At(20_000),
        ..Limits::default()
    };
    let check = CheckSpec {
        name: CheckName::new("tests"),
        command: vec!["true".to_owned()],
        by: None,
        timeout: Duration::from_secs(5),
        protect: Vec::new(),
    };
    Task {
        goal: "work".to_owned(),
        instructions: String::new(),
        constraints: Vec::new(),
        program: Program::React,
        model: ModelSpec::plain(ModelName::new("m"), 500),
        workspace: "/w".to_owned(),
        folder: "/w".to_owned(),
        principal: Payload::null(),
        limits: if limits == 0 { small } else { Limits::default() },
        inputs: std::collections::BTreeMap::new(),
        tools,
        acceptance: if limits.is_multiple_of(2) { vec![check] } else { Vec::new() },
        answer: None,
        policy: PolicyRules::default(),
        permission_mode,
        hooks: if limits >= 2 { hooks() } else { Vec::new() },
        rules: Vec::new(),
        context: ContextSpec::default(),
        routes: Vec::new(),
        sources: std::collections::BTreeMap::new(),
        servers: Default::default(),
        snapshots: longrein_core::task::Snapshots::default(),
        piped_from: None,
        questions_expire_ms: None,
        images: Vec::new(),
        pins: std::collections::BTreeMap::new(),
    }
}

/// Ways out, and choices of each kind.
pub(crate) fn routes() -> Vec<Route> {
    let all = Route {
        model: ModelSpec::plain(ModelName::new("all"), 500),
        on: ROUTABLE.into_iter().collect(),
        phases: BTreeSet::new(),
        context_over: None,
        spent_over: None,
        images: false,
    };
    let model = |name: &str, limit: u64| ModelSpec {
        context_limit: Some(limit),
        ..ModelSpec::plain(ModelName::new(name), 400)
    };
    let choice = |route: Route| Route { on: BTreeSet::new(), ..route };
    vec![
        choice(Route { model: model("worker", 9_000), phases: [PhaseName::new("work")].into(), ..all.clone() }),
        choice(Route { model: model("large", 900_000), context_over: Some(900), ..all.clone() }),
        choice(Route { model: model("seer", 50_000), images: true, ..all.clone() }),
        Route { model: model("busy", 50_000), on: [ModelErrorClass::RateLimited].into(), ..all.clone() },
        Route { model: model("roomy", 500_000), on: [ModelErrorClass::ContextExhausted].into(), ..all.clone() },
        all,
    ]
}

/// One phase of each kind that runs by itself, in a circle.
pub(crate) fn phases() -> Phases {
    let phase = |name: &str, kind, visits, next: &[(Option<&str>, To)]| Phase {
        name: PhaseName::new(name),
        kind,
        visits,
        memory: Some(Memory { list: "lessons".to_owned(), text: String::new() }),
        next: next.iter().map(|(when, to)| Next { when: when.map(str::to_owned), to: to.clone() }).collect(),
    };
    let to = |name: &str| To::Phase(PhaseName::new(name));
    let tools = Some(vec![ToolName::new("look"), ToolName::new("pay")]);
    let agent = Agent { instructions: "work".to_owned(), tools, turns: Some(2), prose: Prose::Dropped };
    let call = Call { tool: ToolName::new("look"), args: Payload::parse("{}").expect("it is JSON") };
    let schema = Payload::parse("{}").expect("it is JSON");
    Phases {
        name: "all".to_owned(),
        description: "Everything.".to_owned(),
        start: PhaseName::new("look"),
        answer: None,
        phases: vec![
            phase("look", Kind::Call(call), None, &[(Some("a"), To::Failed("no".to_owned())), (None, to("classify"))]),
            phase(
                "classify",
                Kind::Reply(longrein_core::program::Reply { instructions: "x".to_owned(), schema }),
                Some(3),
                &[(None, to("route"))],
            ),
            phase("route", Kind::Branch, None, &[(Some("a"), To::Done), (Some("b"), to("work")), (None, to("test"))]),
            phase("work", Kind::Agent(agent), None, &[(None, to("test"))]),
            phase(
                "test",
                Kind::Checks(Checks { named: Vec::new(), own: Vec::new() }),
                None,
                &[(Some("a"), To::Done), (None, to("classify"))],
            ),
        ],
        own_tools: Vec::new(),
    }
}

/// One hook on everything, and a few on calls.
pub(crate) fn hooks() -> Vec<HookSpec> {
    let on = |event, tools: &[&str]| HookSpec {
        event,
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        command: vec!["hook".to_owned()],
        folder: "/w".to_owned(),
        timeout: Duration::from_secs(5),
        env: Vec::new(),
        source: "test".to_owned(),
    };
    let some = [on(HookEvent::BeforeTool, &["pay", "edit"]), on(HookEvent::BeforeTool, &[]), on(HookEvent::Stop, &[])];
    HookEvent::ALL
        .into_iter()
        .filter(|event| *event != HookEvent::BeforeTool)
        .map(|event| on(event, &[]))
        .chain(some)
        .collect()
}
