//! A program with an agent in it, on one page: a tool that looks, a tool that pays, a person who is asked, and a process
//! that ends in between. `cargo run -p longrein --example embed` needs no network: the model is a script.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use longrein::core::ids::RunId;
use longrein::{Call, CallError, Error, LanguageModel, Longrein, NoArgs, RunState, Script, Task, Tool};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Payment {
    /// The order that is paid.
    order: String,
    /// In cents.
    amount: u32,
}

/// What the model may call. A process that goes on with a run of another brings the same.
fn tools() -> [Tool; 2] {
    let due = Tool::read("list_due", "Orders that are due, with their amounts in cents.", |_: NoArgs, _: Call| async {
        Ok(json!([{ "order": "o-17", "amount": 1200 }]))
    });
    let pay = Tool::external("pay", "Pays one order.", |payment: Payment, call: Call| async move {
        if payment.amount > 100_000 {
            return Err(CallError::new("More than 1,000 must be paid by hand.").at("/amount").not_done());
        }
        // The bank recognises a repetition by this key, whatever is killed in between.
        let key = call.idempotency_key().unwrap_or_default();
        println!("    bank: {} cents for {}, key {}…", payment.amount, payment.order, &key[..8]);
        Ok(json!({ "receipt": format!("r-{}", payment.order) }))
    });
    [due, pay.key(["order"]).idempotent(Duration::from_secs(24 * 3600))]
}

/// The model. In earnest: `LanguageModel::named("openai/gpt-5-mini").api_key(…)`.
fn model() -> LanguageModel {
    Script::new()
        .call("list_due", json!({}))
        .call("pay", json!({ "order": "o-17", "amount": 1200 }))
        .text("Order o-17 is paid, receipt r-o-17.")
        .into()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("runs.db").display());
    let id = ask(&store).await?;
    // Here the process could end, or be killed; tomorrow another one goes on.
    answer(&store, &id).await?;
    Ok(())
}

/// Starts the run. Paying is no read and no rule allows it, so a person is asked, and the run waits.
async fn ask(store: &str) -> Result<RunId, Error> {
    let longrein = Longrein::open(store)?;
    let task = Task::new("Pay what is due.").model(model()).tools(tools()).max_turns(10);
    let mut run = longrein.start(task).await?;
    while let Some(line) = run.next().await {
        println!("  {}", line?.kind());
    }
    Ok(run.id().clone())
}

/// Answers, and goes on.
async fn answer(store: &str, id: &RunId) -> Result<(), Error> {
    let longrein = Longrein::builder(store).tools(tools()).model(model()).open()?;
    for question in longrein.questions(id).await? {
        println!("asked: {} {} ({})", question.tool, question.args, question.reason);
        longrein.approve(id, question.action, "ops").await?;
    }
    let outcome = longrein.resume(id).await?.await?;
    assert_eq!(outcome.state, RunState::Done, "{}", outcome.reason);
    println!("{}", outcome.text.unwrap_or_default());
    Ok(())
}
