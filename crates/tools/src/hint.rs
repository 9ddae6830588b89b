//! A line for the model where a command may have failed because of its walls. Never more than "may": programs say the same
//! for other reasons.

use longrein_sandbox::{Captured, Confined, Ended, How, Network};

/// What programs print where they reach no network.
const UNREACHABLE: [&str; 11] = [
    "network is unreachable",
    "could not resolve host",
    "couldn't resolve host",
    "temporary failure in name resolution",
    "name or service not known",
    "no address associated with hostname",
    "failed to lookup address",
    "dns error",
    "enotfound",
    "eai_again",
    "enetunreach",
];
/// What they print where they may not write.
const UNWRITABLE: [&str; 2] = ["read-only file system", "erofs"];
/// What they print for either, and for much else.
const FORBIDDEN: [&str; 4] = ["operation not permitted", "permission denied", "eacces", "eperm"];

/// Of one output so much is looked at, from its end.
const LOOKED_AT_BYTES: usize = 16 << 10;

pub(crate) fn hint(ended: &Ended, confined: &Confined) -> Option<&'static str> {
    match ended.how {
        How::Exited(0) => return None,
        How::Exited(_) | How::Signalled(_) | How::TimedOut | How::Cut => {}
    }
    let said = format!("{}\n{}", end(&ended.stdout), end(&ended.stderr));
    let says = |marks: &[&str]| marks.iter().any(|mark| said.contains(mark));
    match (&confined.network, says(&UNREACHABLE)) {
        (Network::Off, true) => {
            return Some(
                "[sandbox] This may be why: there is no network here. The shell gets it, if allowed, for a line that runs one \
                 program and names the address; a tool declares `network`.",
            );
        }
        (Network::Proxy { .. }, true) => {
            return Some(
                "[sandbox] This may be why: only the hosts that the tool declares in `network` are reached here.",
            );
        }
        (Network::Open, _) | (_, false) => {}
    }
    if says(&UNWRITABLE) {
        return Some(
            "[sandbox] This may be why: only the workspace and /tmp are written here, and of git not its settings, hooks and \
             submodules. The shell gets another path, if allowed, where a line that runs one program names it; a tool \
             declares `writes`.",
        );
    }
    says(&FORBIDDEN).then_some(
        "[sandbox] This may be why: secrets, other rights and what lies outside the workspace are kept from commands here. Say \
         what you need in words, or do without it.",
    )
}

/// In lower case.
fn end(output: &Captured) -> String {
    let bytes = if output.tail.is_empty() { &output.head } else { &output.tail };
    let from = bytes.len().saturating_sub(LOOKED_AT_BYTES);
    String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).to_lowercase()
}
