use proptest::prelude::*;

use super::*;

fn counted(text: &str) -> Features {
    Features::of(text)
}

#[test]
fn each_kind_is_counted_once() {
    let features = counted("let total = counter_of_everything(42);\n\n    // über 中文 🙂\n");
    let expected = Features {
        bytes: 65,
        // let, total, counter (2), of, everything (2), über without its ü
        words: 8,
        digits: 2,
        // = _ _ ( ); //
        punctuation: 6,
        spaces: 1,
        newlines: 2,
        two_byte: 1,
        three_byte: 2,
        four_byte: 1,
        ..Features::default()
    };
    assert_eq!(features, expected);
}

#[test]
fn a_blob_is_counted_as_a_blob_and_as_nothing_else() {
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    assert_eq!(counted(hash), Features { bytes: 64, blob: 64, ..Features::default() });
    let around = counted(&format!("sha {hash}."));
    assert_eq!(around, Features { bytes: 69, words: 1, punctuation: 1, blob: 64, ..Features::default() });
    // long, but no digits in it: a path
    let path = "crates/core/src/context/estimate/tests/of_long_names";
    assert_eq!(counted(path).blob, 0);
}

#[test]
fn a_new_estimator_is_generous_and_a_taught_one_close() {
    let text = "The quick brown fox jumps over the lazy dog.\n".repeat(40);
    let features = Features::of_message(&text);
    let mut estimator = Estimator::new();
    let truth = 404;
    assert!(estimator.upper(&features) > truth);
    for _ in 0..120 {
        estimator.learn(&features, truth);
    }
    let bound = estimator.bound(10_000, &features);
    assert!(bound.likely.abs_diff(10_000 + truth) <= 8, "{bound:?}");
    assert!(bound.upper >= 10_000 + truth && bound.upper < 10_000 + truth * 11 / 10, "{bound:?}");
}

#[test]
fn a_broken_bound_widens_the_next_twenty() {
    let features = Features::of_message(&"plain words again and again\n".repeat(50));
    let mut estimator = Estimator::new();
    let usual = estimator.estimate(&features);
    for _ in 0..200 {
        estimator.learn(&features, usual);
    }
    let calm = estimator.upper(&features);
    estimator.learn(&features, usual * 2);
    let wide = estimator.upper(&features);
    assert!(wide > calm, "{wide} > {calm}");
    let mut turns = 0;
    while estimator.surprised > 0 {
        estimator.learn(&features, estimator.estimate(&features));
        turns += 1;
    }
    assert_eq!(turns, 20);
}

#[test]
fn text_of_an_unknown_kind_stays_wide_after_many_turns_of_another() {
    let mut estimator = Estimator::new();
    let code = Features::of_message(&"fn main() { let x = 1; }\n".repeat(100));
    for _ in 0..150 {
        estimator.learn(&code, estimator.estimate(&code));
    }
    let chinese = counted(&"上下文是有限的资源。".repeat(100));
    assert!(estimator.upper(&chinese) as f64 >= 1.9 * estimator.estimate(&chinese) as f64);
    assert!(estimator.upper(&code) as f64 <= 1.1 * estimator.estimate(&code) as f64);
}

/// Forgetting must not leave the weight of what never occurs so uncertain that one sign of it explains a whole page.
#[test]
fn one_odd_sign_does_not_take_the_blame_for_a_page() {
    let mut estimator = Estimator::new();
    let page = Features::of_message(&"ordinary words in an ordinary order\n".repeat(200));
    let usual = estimator.estimate(&page);
    for _ in 0..5_000 {
        estimator.learn(&page, usual);
    }
    let odd = page + counted("中");
    estimator.learn(&odd, usual * 11 / 10);
    assert!(estimator.weights[6] < 1.0, "{:?}", estimator.weights);
}

#[test]
fn what_cannot_be_is_not_learned() {
    let mut estimator = Estimator::new();
    let features = counted("a few words of nothing in particular");
    for reported in [0, 1, 1_000_000, u64::MAX] {
        estimator.learn(&features, reported);
    }
    estimator.learn(&Features::default(), 500);
    assert_eq!(estimator, Estimator::new());
}

#[test]
fn a_damaged_estimator_is_a_new_one() {
    let kept = serde_json::to_value(Estimator::new()).expect("it serializes");
    assert_eq!(read(&kept.to_string()), Estimator::new());
    let damage: &[(&str, serde_json::Value)] = &[
        ("/weights/0", serde_json::json!(null)),
        ("/weights/0", serde_json::json!(f64::NAN.to_bits())),
        ("/weights/1", serde_json::json!((-3.0_f64).to_bits())),
        ("/weights/2", serde_json::json!(f64::INFINITY.to_bits())),
        ("/weights/3", serde_json::json!(1.5)),
        ("/weights", serde_json::json!([])),
        ("/covariance/3/3", serde_json::json!((-1.0_f64).to_bits())),
        ("/ratios", serde_json::json!([1e9_f64.to_bits()])),
        ("/surprised", serde_json::json!(4_000_000)),
        ("/seen/9", serde_json::json!(f64::NAN.to_bits())),
        ("/image_factor", serde_json::json!(0)),
        ("", serde_json::json!("something else")),
        ("", serde_json::json!({})),
    ];
    for (place, value) in damage {
        let mut damaged = kept.clone();
        *damaged.pointer_mut(place).expect("it is there") = value.clone();
        assert_eq!(read(&damaged.to_string()), Estimator::new(), "{place}: {value}");
    }
}

fn read(text: &str) -> Estimator {
    serde_json::from_str(text).expect("an estimator can always be read")
}

#[test]
fn images_cost_what_their_family_says() {
    let photo = |family| image_tokens_of(family, 4032, 3024);
    assert_eq!(photo(ImageFamily::OpenAi), 14_364);
    assert_eq!(photo(ImageFamily::Claude), 4_784);
    assert_eq!(photo(ImageFamily::Gemini), 6_192);
    assert_eq!(photo(ImageFamily::Unknown), 14_364);
    assert_eq!(image_tokens_of(ImageFamily::Claude, 280, 57), 30);
    for family in [ImageFamily::Claude, ImageFamily::OpenAi, ImageFamily::Gemini, ImageFamily::Unknown] {
        let most = image_tokens_of(family, u64::MAX, u64::MAX);
        assert_eq!(image_tokens_of(family, 0, 0), most);
        assert!(most >= photo(family));
    }
}

#[test]
fn images_have_a_factor_of_their_own() {
    let mut estimator = Estimator::new();
    let image = Features::of_images(1_000) + Features::of_message("a photo");
    let weights = estimator.weights;
    for _ in 0..40 {
        estimator.learn(&image, 600);
    }
    assert!(estimator.estimate(&image).abs_diff(600) < 10);
    assert_eq!(estimator.weights, weights);
}

/// Turns of any text, with any report.
fn taught() -> impl Strategy<Value = Estimator> {
    let turn = ("[ -~\n]{0,20}[ü中🙂]{0,4}", 0_u64..4_000, 0.05_f64..12.0, 1..40);
    prop::collection::vec(turn, 0..8).prop_map(|turns| {
        let mut estimator = Estimator::new();
        for (text, more, ratio, times) in turns {
            let mut features = Features::of_message(&text);
            features.words += more;
            features.bytes += more * 4;
            for _ in 0..times {
                let reported = (estimator.estimate(&features) as f64 * ratio) as u64;
                estimator.learn(&features, reported);
            }
        }
        estimator
    })
}

fn anything() -> impl Strategy<Value = Features> {
    prop::array::uniform12(prop_oneof![0_u64..5_000, Just(u64::MAX), Just(0)]).prop_map(
        |[
            bytes,
            words,
            digits,
            punctuation,
            spaces,
            newlines,
            two_byte,
            three_byte,
            four_byte,
            blob,
            messages,
            images,
        ]| {
            Features {
                bytes,
                words,
                digits,
                punctuation,
                spaces,
                newlines,
                two_byte,
                three_byte,
                four_byte,
                blob,
                messages,
                images,
                pictures: images.min(3),
                picture_bytes: images,
            }
        },
    )
}

proptest! {
    #[test]
    fn more_text_is_never_fewer_tokens(estimator in taught(), part in anything(), more in anything()) {
        prop_assert!(estimator.estimate(&(part + more)) >= estimator.estimate(&part));
        prop_assert!(estimator.upper(&(part + more)) >= estimator.upper(&part));
        prop_assert!(estimator.upper(&part) >= estimator.estimate(&part));
    }

    #[test]
    fn text_is_never_more_tokens_than_bytes(estimator in taught(), text in any::<String>()) {
        prop_assert!(estimator.upper(&counted(&text)) <= text.len() as u64);
    }

    #[test]
    fn any_history_leaves_it_sound_and_readable(estimator in taught()) {
        prop_assert!(estimator.is_sound(), "{:?}", estimator);
        let kept = serde_json::to_string(&estimator).expect("it serializes");
        prop_assert_eq!(read(&kept), estimator);
    }

    /// A sum of messages is estimated as the messages are, to the rounding of each.
    #[test]
    fn estimates_add_up(estimator in taught(), texts in prop::collection::vec("[ -~]{0,200}", 1..20)) {
        let parts: Vec<_> = texts.iter().map(|text| Features::of_message(text)).collect();
        let whole = estimator.estimate(&parts.iter().copied().sum());
        let apart: u64 = parts.iter().map(|part| estimator.estimate(part)).sum();
        // The ceiling by bytes holds for the whole and for each part, so parts can only be less.
        prop_assert!(whole + parts.len() as u64 >= apart);
        let ceiling_met = parts.iter().any(|part| estimator.of_text(part) >= part.bytes as f64);
        prop_assert!(ceiling_met || whole.abs_diff(apart) <= parts.len() as u64);
    }

    /// Cutting a text never hides tokens, blobs that are cut into short runs aside.
    #[test]
    fn counts_of_parts_are_no_less_than_of_the_whole(left in "[a-z0-9 .,\nüñ中🙂]{0,60}", right in "[a-z0-9 .,\nüñ中🙂]{0,60}") {
        let whole = counted(&format!("{left}{right}"));
        let parts = counted(&left) + counted(&right);
        prop_assert_eq!(whole.bytes, parts.bytes);
        if whole.blob == parts.blob {
            for (whole, parts) in whole.vector().into_iter().zip(parts.vector()) {
                // two single blanks that meet are a run
                prop_assert!(parts + 1.0 >= whole);
            }
        }
    }

    #[test]
    fn what_was_added_can_be_taken_out(part in anything(), words in 0_u64..9_000) {
        let more = Features { words, bytes: words, ..Features::default() };
        prop_assume!(part.words < u64::MAX && part.bytes < u64::MAX);
        prop_assert_eq!(part + more - more, part);
    }
}

/// A photo of 12 megapixels is what the greediest provider counts; what has no size is the most there is; a reference is none.
#[test]
fn an_image_of_any_model_is_counted_rather_too_high() {
    for (width, height) in [(1, 1), (280, 57), (640, 480), (1_920, 1_080), (4_032, 3_024), (u32::MAX, u32::MAX)] {
        let all = [ImageFamily::Claude, ImageFamily::OpenAi, ImageFamily::Gemini]
            .map(|family| image_tokens_of(family, u64::from(width), u64::from(height)));
        assert_eq!(Some(image_tokens(width, height, 1)), all.into_iter().max(), "{width} × {height}");
        assert!(image_tokens(width, height, 1) <= image_tokens(0, 0, 1));
    }
    assert_eq!(image_tokens(4_032, 3_024, 2_000_000), 14_364);
    assert_eq!(image_tokens(4_032, 3_024, 0), 0);
    let image = Features::of_image(4_032, 3_024, 2_000_000);
    assert_eq!((image.pictures, image.images, image.sent_bytes()), (1, 14_364, 2_666_668));
    assert_eq!(Features::of_image(4_032, 3_024, 0), Features::default());
    assert_eq!((image + image) - image, image);
}

/// Where one sign is several tokens, and letters make no words.
#[test]
fn signs_and_letters_that_no_tokenizer_joins_are_not_taken_for_words() {
    let new = Estimator::new();
    let upper = |text: &str| new.upper(&Features::of(text));
    // Three tokens each with tokenizers of today.
    assert!(upper(&"\u{1f9d1}".repeat(1_000)) >= 3_000);
    // A protein of 4,000 acids is some 2,200 tokens.
    assert!(upper(&"MKVLATGWRQNDEHFYCSIP".repeat(200)) >= 2_600);
    // What people write is not: no word is that long.
    let prose =
        Features::of(&"An internationalization of counterrevolutionaries, a/path/of/some/length_and_more. ".repeat(40));
    assert_eq!(prose.blob, 0);
}
