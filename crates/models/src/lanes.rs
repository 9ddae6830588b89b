//! Lanes: all calls of one process to one model with one key share what its server says of its limits, so that a "too many
//! requests" that one run hears holds up the others too, and they do not each have to learn it. Providers count each model
//! apart, so another one of the same key is another lane: it is where a run goes that does not want to wait.
//!
//! Calls enter in the order in which they came. Only the first of those that wait has a timer; whoever stops waiting is gone
//! at once. After a pause one call goes first, and the rest follow when the server has answered it, or one a second.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::pause::span;

/// The longest a lane is closed, whatever its server asks for: as long as a run honours a Retry-After.
const PAUSE_MAX: Duration = Duration::from_secs(120);
/// Where the server does not say how long: doubles with each refusal in a row, up to [`WAIT_MAX`].
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest a lane is closed because an answer said that nothing is left: such counts are refilled all the time.
const EMPTY_MAX: Duration = Duration::from_secs(10);
/// The longest a call waits inside for a lane to open. Beyond that it is refused, so that its run can go elsewhere.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// After a pause, calls follow each other like this until one is answered.
const CAREFUL_GAP: Duration = Duration::from_secs(1);

/// The lanes of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Lanes {
    lanes: Arc<Mutex<HashMap<[u8; 32], Arc<Lane>>>>,
    /// The model they are asked for.
    model: String,
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lanes(…)")
    }
}

impl Lanes {
    /// The same, for calls to this model.
    #[must_use]
    pub(crate) fn to(&self, model: &str) -> Self {
        Self { model: model.to_owned(), ..self.clone() }
    }

    /// The one of this key at this place. The key itself is not kept.
    pub(crate) fn of(&self, place: &str, key: &str) -> Arc<Lane> {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.model, place, key] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(*hasher.finalize().as_bytes()).or_default())
    }
}

/// One key for one model at one server.
#[derive(Default)]
pub(crate) struct Lane {
    /// Held by the first of those that wait. It is fair: first come, first served.
    turnstile: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Something about the state has changed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Closed until then.
    until: Option<Instant>,
    in_flight: u32,
    /// A refusal was heard and no other answer since: when the last call went in.
    careful: Option<Option<Instant>>,
    /// Refusals in a row.
    strikes: u32,
}

enum Gate {
    Open,
    /// Not before then.
    Until(Instant),
    /// When somebody comes out.
    Full,
}

impl State {
    fn gate(&self, now: Instant, at_once: Option<u32>) -> Gate {
        if let Some(until) = self.until.filter(|until| now < *until) {
            return Gate::Until(until);
        }
        if at_once.is_some_and(|most| self.in_flight >= most) {
            return Gate::Full;
        }
        match self.careful.flatten().map(|last| last + CAREFUL_GAP).filter(|next| now < *next) {
            Some(next) => Gate::Until(next),
            None => Gate::Open,
        }
    }
}

/// The right to have one call on the way. Given back when it is dropped.
pub(crate) struct Pass(Arc<Lane>);

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        drop(state);
        self.0.changed.notify_waiters();
    }
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn. Err: so long it would be, and that is too long. `at_once`: the most calls on the way together.
    pub(crate) async fn enter(self: &Arc<Self>, at_once: Option<u32>) -> Result<Pass, Duration> {
        let _first = self.turnstile.lock().await;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // What changes from here on is not missed.
            changed.as_mut().enable();
            let now = Instant::now();
            let until = {
                let mut state = self.lock();
                match state.gate(now, at_once) {
                    Gate::Open => {
                        state.in_flight += 1;
                        if let Some(last) = &mut state.careful {
                            *last = Some(now);
                        }
                        return Ok(Pass(Arc::clone(self)));
                    }
                    Gate::Until(until) if until - now > WAIT_MAX => return Err(until - now),
                    Gate::Until(until) => Some(until),
                    Gate::Full => None,
                }
            };
            match until {
                // Either way the state says what now.
                Some(until) => drop(timeout_at(until, changed).await),
                None => changed.await,
            }
        }
    }

    /// What an answer asked for further on than in its head.
    pub(crate) fn asked(&self, pause: Duration) {
        let until = Instant::now() + pause.min(PAUSE_MAX);
        let mut state = self.lock();
        state.until = Some(state.until.map_or(until, |closed| closed.max(until)));
        drop(state);
        self.changed.notify_waiters();
    }

    /// The head of an answer.
    pub(crate) fn heard(&self, status: StatusCode, headers: &HeaderMap, retry_after_s: Option<u64>) {
        let now = Instant::now();
        let asked = retry_after_s.map(Duration::from_secs);
        let mut state = self.lock();
        let refused = status == StatusCode::TOO_MANY_REQUESTS || (!status.is_success() && asked.is_some());
        let pause = if refused {
            let own = PAUSE_FIRST.saturating_mul(1 << state.strikes.min(8)).min(WAIT_MAX);
            state.strikes = state.strikes.saturating_add(1);
            state.careful = Some(None);
            Some(asked.unwrap_or(own).min(PAUSE_MAX))
        } else {
            state.strikes = 0;
            state.careful = None;
            empty_for(headers).map(|reset| reset.min(EMPTY_MAX))
        };
        if let Some(pause) = pause {
            // A later word never opens what an earlier one has closed for longer.
            state.until = Some(state.until.map_or(now + pause, |until| until.max(now + pause)));
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

/// How long nothing more may be sent, by what an answer says of what is left: OpenAI's and Anthropic's spellings.
fn empty_for(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: String| headers.get(name)?.to_str().ok().map(|text| text.trim().to_owned());
    let is_none = |left: Option<String>| left.and_then(|left| left.parse::<f64>().ok()).is_some_and(|left| left <= 0.0);
    let openai = ["requests", "tokens"].into_iter().filter_map(|kind| {
        let left = text(format!("x-ratelimit-remaining-{kind}"));
        is_none(left).then(|| text(format!("x-ratelimit-reset-{kind}")))?.and_then(|reset| span(&reset))
    });
    let anthropic = ["requests", "tokens", "input-tokens", "output-tokens"].into_iter().filter_map(|kind| {
        let left = text(format!("anthropic-ratelimit-{kind}-remaining"));
        let reset = is_none(left).then(|| text(format!("anthropic-ratelimit-{kind}-reset")))??;
        let reset: jiff::Timestamp = reset.parse().ok()?;
        Duration::try_from(reset.duration_since(server_now(headers))).ok()
    });
    openai.chain(anthropic).max()
}

/// The server's own clock, if it tells the time: what it says of times is meant by it.
fn server_now(headers: &HeaderMap) -> jiff::Timestamp {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    date.map_or_else(jiff::Timestamp::now, |date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (reqwest::header::HeaderName::from_static(name), value.parse().expect("a value")))
            .collect()
    }

    fn too_many(lane: &Lane, after: Option<u64>) {
        lane.heard(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new(), after);
    }

    async fn waited(lane: &Arc<Lane>) -> (Pass, Duration) {
        let began = Instant::now();
        let Ok(pass) = lane.enter(None).await else { panic!("it is not that long") };
        (pass, began.elapsed())
    }

    #[test]
    fn spans_as_servers_write_them() {
        let millis = |text| span(text).map(|span| span.as_millis());
        assert_eq!(millis("20ms"), Some(20));
        assert_eq!(millis("6m0s"), Some(360_000));
        assert_eq!(millis("2m59.56s"), Some(179_560));
        assert_eq!(millis("1h2m"), Some(3_720_000));
        for text in ["", "s", "5", "1x", "..s", "-1s", "1s2", "1e400s", "9999999999999999999999h"] {
            assert_eq!(span(text), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_refusal_holds_up_all_and_the_rest_follow_one_by_one() {
        let lanes = Lanes::default();
        let lane = lanes.of("https://a/v1", "key");
        drop(waited(&lane).await);
        too_many(&lane, Some(7));
        let began = Instant::now();
        let entered: Vec<_> = (0..3)
            .map(|_| {
                let lane = lanes.of("https://a/v1", "key");
                tokio::spawn(async move {
                    let (pass, _) = waited(&lane).await;
                    (pass, began.elapsed().as_secs())
                })
            })
            .collect();
        let mut passes = Vec::new();
        for (task, at) in entered.into_iter().zip([7, 8, 9]) {
            let (pass, elapsed) = task.await.expect("it enters");
            assert_eq!(elapsed, at);
            passes.push(pass);
        }
        for other in [lanes.of("https://a/v1", "another key"), lanes.to("another model").of("https://a/v1", "key")] {
            assert_eq!(waited(&other).await.1, Duration::ZERO, "another key, or model, is another lane");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_opens_the_lane_for_all() {
        let lane = Arc::new(Lane::default());
        too_many(&lane, Some(2));
        let (_first, elapsed) = waited(&lane).await;
        assert_eq!(elapsed.as_secs(), 2);
        lane.heard(StatusCode::OK, &HeaderMap::new(), None);
        for _ in 0..10 {
            assert_eq!(waited(&lane).await.1, Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_at_once_in_the_order_they_came() {
        let lane = Arc::new(Lane::default());
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..6 {
            let (lane, done) = (Arc::clone(&lane), done.clone());
            tokio::spawn(async move {
                let Ok(_pass) = lane.enter(Some(2)).await else { panic!("nothing is closed") };
                assert!(lane.lock().in_flight <= 2);
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _ = done.send(number);
            });
            tokio::task::yield_now().await;
        }
        drop(done);
        let began = Instant::now();
        let mut seen = Vec::new();
        while let Some(number) = order.recv().await {
            seen.push(number);
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
        assert_eq!(began.elapsed().as_secs(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_waiting_leaves_nothing_behind() {
        let lane = Arc::new(Lane::default());
        too_many(&lane, Some(20));
        let waiting = Arc::clone(&lane);
        let task = tokio::spawn(async move { waiting.enter(Some(1)).await.map(drop) });
        tokio::time::sleep(Duration::from_secs(1)).await;
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
        let (_pass, elapsed) = waited(&lane).await;
        assert_eq!(elapsed.as_secs(), 19);
        assert_eq!(lane.lock().in_flight, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_would_take_too_long_is_refused_at_once_and_no_server_closes_it_for_hours() {
        let lane = Arc::new(Lane::default());
        too_many(&lane, Some(86_400));
        let began = Instant::now();
        let Err(left) = lane.enter(None).await else { panic!("it is closed") };
        assert_eq!((left, began.elapsed()), (PAUSE_MAX, Duration::ZERO));
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(waited(&lane).await.1.as_secs(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_answer_says_is_left_counts() {
        let openai = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "3s")];
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:04Z"),
            ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ];
        let plenty = [("x-ratelimit-remaining-tokens", "10"), ("x-ratelimit-reset-tokens", "3s")];
        let odd = [("x-ratelimit-remaining-tokens", "none"), ("x-ratelimit-reset-tokens", "soon")];
        let hours = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "17h")];
        for (said, seconds) in
            [(&openai[..], 3), (&anthropic[..], 4), (&plenty[..], 0), (&odd[..], 0), (&hours[..], EMPTY_MAX.as_secs())]
        {
            let lane = Arc::new(Lane::default());
            lane.heard(StatusCode::OK, &headers(said), None);
            assert_eq!(waited(&lane).await.1.as_secs(), seconds, "{said:?}");
        }
    }
}
