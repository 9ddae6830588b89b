//! The images in a result: blocks as MCP servers send them, read as what they are and not as what they are called.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use longrein_core::image::{ImageRef, TURN_IMAGES_MAX};
use longrein_core::payload::Payload;
use serde_json::{Value, json};

/// Some leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The images in a result, in its order: as many as a turn shows, and such as can be sent.
pub(crate) fn of(result: &Payload) -> Vec<(ImageRef, Bytes)> {
    let mut found = Vec::new();
    // most results have none, and a large one is not read for nothing
    if result.as_str().contains("\"image")
        && let Ok(value) = result.read::<Value>()
    {
        collect(&value, &mut found);
    }
    found
}

fn collect(value: &Value, found: &mut Vec<(ImageRef, Bytes)>) {
    match value {
        Value::Object(members) => {
            if let Some(image) = block(members) {
                if found.len() < TURN_IMAGES_MAX {
                    found.push(image);
                }
                return;
            }
            members.values().for_each(|member| collect(member, found));
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect(element, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `{"type":"image","mimeType":"image/png","data":"…"}`, or a resource's `{"mimeType":"image/png","blob":"…"}`.
fn block(members: &serde_json::Map<String, Value>) -> Option<(ImageRef, Bytes)> {
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    let is_image = text("type") == Some("image") || text("mimeType").is_some_and(|media| media.starts_with("image/"));
    let data: String = text("data").or(text("blob")).filter(|_| is_image)?.split_ascii_whitespace().collect();
    let bytes = BASE64.decode(data).ok()?;
    Some((ImageRef::read("image", &bytes).ok()?, Bytes::from(bytes)))
}

/// An image as a result carries it.
pub(crate) fn in_result(image: &ImageRef, bytes: &[u8]) -> Value {
    json!({"type": "image", "mimeType": image.media.mime(), "data": BASE64.encode(bytes)})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `GIF89a`, 640 × 480.
    const GIF: &str = "R0lGODlhgALgAQ==";

    fn sizes(value: Value) -> Vec<(u32, u32)> {
        of(&Payload::of(&value).unwrap()).iter().map(|(image, _)| (image.width, image.height)).collect()
    }

    #[test]
    fn blocks_are_found_where_servers_put_them_and_believed_for_their_bytes_only() {
        let image = json!({"type": "image", "data": GIF, "mimeType": "image/png"});
        assert_eq!(sizes(json!({"content": [{"type": "text", "text": "a chart"}, image, image]})), [(640, 480); 2]);
        assert_eq!(sizes(json!({"contents": [{"uri": "a:b", "mimeType": "image/gif", "blob": GIF}]})), [(640, 480)]);
        let resource = json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "image/gif", "blob": GIF}});
        assert_eq!(sizes(json!({"content": [resource]})), [(640, 480)]);
        for none in [
            json!({"type": "image", "data": "AAAAAAAAAAAA", "mimeType": "image/png"}),
            json!({"type": "image", "data": "no base64!", "mimeType": "image/png"}),
            json!({"type": "image", "data": 7}),
            json!({"type": "audio", "data": GIF, "mimeType": "audio/wav"}),
            json!({"note": "an \"image\" of speech", "data": GIF}),
            json!("image"),
        ] {
            assert!(sizes(none.clone()).is_empty(), "{none}");
        }
        let many = vec![image; TURN_IMAGES_MAX + 1];
        assert_eq!(sizes(json!(many)).len(), TURN_IMAGES_MAX);
    }
}
