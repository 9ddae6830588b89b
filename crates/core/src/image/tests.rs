//! Images in a run: with their words, in the counts, and gone with them.

use super::*;
use crate::budget::Limit;
use crate::context::archive::{self, Says};
use crate::context::estimate::Estimator;
use crate::context::meter::{Bulk, Meter};
use crate::context::render;
use crate::context::window::RENDERING;
use crate::decide;
use crate::event::{Event, GenerationStarted, InputReceived, RebuildWhy, Received};
use crate::ids::{ActionId, InputId, ModelName, RunId, Seq};
use crate::prompt::Purpose;
use crate::run::Run;
use crate::task::{ModelSpec, Protocol, Task};
use crate::time::Timestamp;

fn image(name: &str, width: u16) -> ImageRef {
    let bytes = [b"GIF89a".as_slice(), &width.to_le_bytes(), b"\xe0\x01"].concat();
    ImageRef::read(name, &bytes).unwrap()
}

fn message(images: Vec<ImageRef>) -> Event {
    Event::InputReceived(InputReceived {
        input: InputId::new("i1"),
        body: Received::Message("And this?".to_owned()),
        images,
    })
}

/// Asked with one image, and once more with another.
fn run(model: ModelSpec) -> Run {
    let task = Task { images: vec![image("goal.gif", 640)], model, ..crate::snapshot::no_task().as_ref().clone() };
    let mut run = Run::new(&decide::begin(RunId::new("r"), task, "test"), Timestamp(1));
    run.apply(Seq(2), Timestamp(2), &message(vec![image("later.gif", 320)]));
    run
}

fn model(name: &str) -> ModelSpec {
    ModelSpec::plain(ModelName::new(name), 100)
}

fn names(run: &Run) -> Vec<&str> {
    of_items(run.window.items.iter()).map(|image| image.name.as_str()).collect()
}

fn rebuilt(mut run: Run, limit: u64) -> Run {
    let started = Box::new(GenerationStarted {
        generation: 2,
        why: RebuildWhy::Full,
        rendering: RENDERING,
        limit,
        reserved: 1,
        before: 1,
        after: 1,
        kept: None,
        steps: Vec::new(),
        readmitted: Vec::new(),
    });
    run.apply(Seq(3), Timestamp(3), &Event::GenerationStarted(started));
    run
}

fn header(run: &Run) -> String {
    let harness = run.window.items.iter().filter_map(|item| match item.as_ref() {
        Item::Harness(text) => Some(text.as_str()),
        Item::User(_)
        | Item::Pictured { .. }
        | Item::Exhibit { .. }
        | Item::Assistant { .. }
        | Item::Observation { .. } => None,
    });
    harness.collect()
}

#[test]
fn a_turn_shows_so_many_images_of_its_results_and_names_the_others() {
    let image = ImageRef::read("image", b"GIF89a\x80\x02\xe0\x01").unwrap();
    let heavy = ImageRef { bytes: crate::image::IMAGE_BYTES_MAX, ..image.clone() };
    let shows = |results: &[(u32, &[ImageRef])]| {
        let item = observe::exhibit(results.iter().map(|(action, images)| (ActionId(*action), *images)))?;
        let Item::Exhibit { text, images } = item else { panic!("{item:?}") };
        Some((images.iter().map(|image| image.name.clone()).collect::<Vec<_>>().join(" "), text))
    };
    assert_eq!(shows(&[(1, &[]), (2, &[])]), None);
    let (names, text) =
        shows(&[(1, std::slice::from_ref(&image)), (2, &[]), (3, &[image.clone(), image.clone()])]).unwrap();
    assert_eq!(names, "a1.1 a3.1 a3.2");
    assert!(text.starts_with("<longrein>\n") && text.ends_with("\n</longrein>") && !text.contains("[image"), "{text}");
    let many = vec![image; TURN_IMAGES_MAX];
    let (names, text) = shows(&[(1, &many), (2, &many[..1])]).unwrap();
    assert_eq!(names.split(' ').count(), TURN_IMAGES_MAX);
    assert!(text.contains("[image a2.1 640×480 gif: not shown, a turn shows no more]"), "{text}");
    // by their bytes as well
    let (names, text) = shows(&[(1, &[heavy.clone(), heavy, many[0].clone()])]).unwrap();
    assert!(names == "a1.1 a1.3" && text.contains("[image a1.2 "), "{names} {text}");
}

#[test]
fn images_leave_with_their_message_and_it_is_said() {
    let asked = run(model("openai/m"));
    assert_eq!(names(&asked), ["goal.gif", "later.gif"]);
    // Nothing accounts for it yet: it stays, however little room there is.
    assert_eq!(names(&rebuilt(asked.clone(), 1_000)), ["goal.gif", "later.gif"]);
    let mut answered = asked;
    answered.memory.answered();
    let roomy = rebuilt(answered.clone(), 200_000);
    assert_eq!(names(&roomy), ["goal.gif", "later.gif"]);
    assert!(!header(&roomy).contains(GONE));
    let narrow = rebuilt(answered, 1_000);
    assert_eq!(names(&narrow), ["goal.gif"]);
    let said = header(&narrow);
    assert!(said.contains(&format!("And this? [image later.gif 320×480 gif: {GONE}]")), "{said}");
}

/// Bytes bound what of old images stays, where there is room for their tokens.
#[test]
fn old_images_give_way_where_their_bytes_do_not_fit() {
    let mut run = run(model("openai/m"));
    for seq in 3..9 {
        let heavy = ImageRef { bytes: IMAGE_BYTES_MAX / 4, ..image(&format!("{seq}.gif"), 300) };
        run.apply(Seq(seq), Timestamp(2), &message(vec![heavy]));
    }
    run.memory.answered();
    assert_eq!(
        names(&rebuilt(run, 1_000_000)),
        ["goal.gif", "7.gif", "8.gif"],
        "a quarter of a request, the newest first"
    );
}

#[test]
fn recall_says_that_it_cannot_show_them() {
    let event = message(vec![image("later.gif", 320)]);
    let says = archive::entry(Seq(2), &event).unwrap().says;
    assert_eq!(says[0], Says::Text("And this?"));
    assert!(
        matches!(&says[1], Says::Label(label) if label.contains("later.gif") && label.contains("recall cannot show it"))
    );
}

#[test]
fn images_are_counted_where_they_are_sent() {
    let bulk = |model: ModelSpec| {
        let run = run(model);
        let mut meter = Meter::new(Estimator::new(), None, "", &[]);
        meter.measure(&run);
        (meter.bulk(), meter.request(&run, None).upper)
    };
    let (sent, tokens): (Bulk, u64) = bulk(model("openai/m"));
    let (told, fewer) = bulk(ModelSpec { images: Some(false), ..model("openai/m") });
    assert_eq!((sent.images, told.images), (2, 0));
    assert!(tokens > fewer + 1_000, "{tokens} {fewer}");
}

#[test]
fn a_prompt_says_whether_images_are_taken() {
    let images = |model: ModelSpec| render::render(&run(model), Purpose::Work, Arc::from([]), 1).images;
    assert_eq!(images(model("anthropic/m")), Images::default());
    assert_eq!(images(ModelSpec { images: Some(false), ..model("ollama/m") }), Images::NotTaken);
    assert_eq!(images(ModelSpec { protocol: Protocol::Json, ..model("ollama/m") }), Images::NotTaken);
    assert_eq!(images(model("script/s.toml")), Images::NotTaken);
}

/// Megabytes of base64 are no millions of tokens.
#[test]
fn a_budget_of_tokens_is_not_spent_on_the_bytes_of_an_image() {
    let mut run = run(model("openai/m"));
    run.limits.tokens = Limit::At(50_000);
    let heavy = ImageRef { bytes: IMAGE_BYTES_MAX, ..image("heavy.gif", 1_000) };
    let sent = heavy.sent_bytes();
    run.apply(Seq(3), Timestamp(2), &message(vec![heavy]));
    assert_eq!(decide::output_allowance(&run, sent + 5_000), 100);
    run.model.images = Some(false);
    assert_eq!(decide::output_allowance(&run, sent + 5_000), 0, "text of that length would be");
}
