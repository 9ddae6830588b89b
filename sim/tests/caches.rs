//! What is kept beside the journal may be as slow as it likes, or never come back: no run and no request waits for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::event::{End, Event};
use longrein_core::ids::RunId;
use longrein_driver::{Begin, Standing, Stop, WhenAsked};
use longrein_ports::{BoxFuture, Cabinet, JournalError, Snapshot};
use longrein_sim::laws;
use longrein_sim::people::Answer;
use longrein_sim::process::Process;
use longrein_sim::scribe;
use longrein_sim::story::in_virtual_time;
use longrein_sim::town::{Drove, Layers, Town, task};

/// Longer than a model takes to answer here.
const SLOW: Duration = Duration::from_secs(60);

/// Snapshots are never done, values after a while.
struct Slow(Arc<dyn Cabinet>);

impl Cabinet for Slow {
    fn keep_snapshot<'a>(&'a self, _: &'a RunId, _: &'a Snapshot) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(std::future::pending())
    }
    fn snapshots<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Snapshot>, JournalError>> {
        self.0.snapshots(run)
    }
    fn remember<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            tokio::time::sleep(SLOW).await;
            self.0.remember(key, value).await
        })
    }
    fn recollect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        self.0.recollect(key)
    }
}

struct SlowCabinet;

impl Layers for SlowCabinet {
    fn cabinet(&self, _: &Arc<Process>, inner: Arc<dyn Cabinet>) -> Arc<dyn Cabinet> {
        Arc::new(Slow(inner))
    }
}

#[test]
fn no_request_waits_for_a_cache() {
    in_virtual_time(async {
        let (town, id) = (Town::new(1, Arc::new(SlowCabinet)), RunId::new("r1"));
        let mut task = task("r1");
        scribe::small_window(&mut task);
        task.context.summary = None;
        town.brain.script(scribe::talk(40).into_iter().chain([Answer::say("done")]));
        let begin = Begin::New { task: Box::new(task), blobs: Vec::new() };
        let drove = town.drive(&town.process("h1"), &id, begin, WhenAsked::Park, Stop::new()).await;
        let Drove::Back(Ok(driven)) = drove else { panic!("it came to no end") };
        let Standing::Rested(ended) = &driven.standing else { panic!("{:?}", driven.standing) };
        assert!(matches!(ended.end, End::Done(_)), "{ended:?}");
        laws::check(&town, &id).await;
        assert_eq!(town.record.breaches(), []);
        let events = town.store.shadow().runs.get(&id).expect("it was started").events.clone();
        let mut rebuilds = 0;
        for (place, rebuilt) in events.iter().enumerate() {
            if let Event::GenerationStarted(_) = rebuilt.event {
                let replied = events[place..].iter().find(|new| matches!(new.event, Event::ModelReplied(_)));
                let took = replied.expect("every request here is answered").at.since(rebuilt.at);
                assert!(took < SLOW, "generation {rebuilds}: its request was answered after {took:?}");
                rebuilds += 1;
            }
        }
        assert!(rebuilds > 1, "{rebuilds}");
    });
}
