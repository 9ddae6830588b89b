//! Addresses and arguments of servers: what is denied under every spelling, what is asked, and what rules open.

use crate::common::{Around, allow, fetch, judge, mcp, shell, word};
use longrein_core::task::PolicyRules;
use serde_json::json;

#[test]
fn what_leads_inside_is_denied_whatever_is_allowed() {
    let everything = Around { rules: allow(&["*", "web_fetch", "web_fetch(127.0.0.1)"]), ..Around::default() };
    for url in [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://017700000001/",
        "http://127.0.0.1.:80/",
        "http://%31%32%37.0.0.1/",
        "http://\u{ff11}\u{ff12}\u{ff17}.0.0.1/",
        "http://0/",
        "http://0.0.0.0:8080/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::169.254.169.254]/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00:ec2::254]/",
        "http://169.254.169.254/latest/",
        "http://0xA9FEA9FE/",
        "http://metadata.google.internal/",
        "http://METADATA.google.internal./x",
        "http://localhost/",
        "http://LocalHost.:3000/",
        "http://x.localhost/",
        "http://printer.local/",
        "http://db.internal/",
        "http://intranet/",
        "http://127.0.0.1.nip.io/",
        "http://10.0.0.1/",
        "http://192.168.0.1/",
        "http:\\\\127.0.0.1\\",
        "http:127.0.0.1/",
        "//127.0.0.1/",
        "127.0.0.1:80/x",
        " http://127.0.0.1/ ",
        "ht\ntp://127.0.0.1/",
        "http://user:pw@example.org/",
        "http://example.org@127.0.0.1/",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "javascript:alert(1)",
        "data:text/html,x",
        "ws://example.org/",
        "localhost:8080/x",
    ] {
        let (tool, args) = fetch(url);
        let ruled = judge(&tool, &args, &everything);
        assert_eq!(word(&ruled), "deny", "{url:?}: {:?}", ruled.ruling);
        let said = Around { said: vec![format!("see {url}")], ..Around::default() };
        assert_eq!(word(&judge(&tool, &args, &said)), "deny", "{url:?}, said");
    }
}

#[test]
fn what_a_public_host_is_told_decides() {
    // without a rule; with `web_fetch`; with the host spelt out; with the host said; with the whole address said
    for (url, expected) in [
        ("https://docs.rs/", "ask allow allow allow allow"),
        ("https://docs.rs/tokio/latest/tokio", "ask allow allow allow allow"),
        ("https://docs.rs./tokio", "ask allow allow allow allow"),
        ("https://docs.rs/search?query=tokio", "ask allow allow ask allow"),
        ("https://docs.rs/search?query=QUtJQUlPU0ZPRE5ON0VYQU1QTEUQ", "ask ask allow ask allow"),
        ("https://docs.rs/c2VjcmV0LWRhdGEtaW4tbmFtZQ1", "ask ask allow ask allow"),
        ("https://docs.rs:8443/", "ask ask ask ask allow"),
        ("https://docs.rs/a\u{202e}b", "ask ask ask ask ask"),
        ("https://", "ask ask ask ask ask"),
        ("https://docs.rs:99999/", "ask ask ask ask ask"),
        ("", "ask ask ask ask ask"),
    ] {
        let (tool, args) = fetch(url);
        let found = [
            Around::default(),
            Around { rules: allow(&["web_fetch"]), ..Around::default() },
            Around { rules: allow(&["web_fetch(docs.rs)"]), ..Around::default() },
            Around { said: vec!["look at docs.rs".to_owned()], ..Around::default() },
            Around { said: vec![format!("look at {url} please")], ..Around::default() },
        ]
        .map(|around| word(&judge(&tool, &args, &around)));
        assert_eq!(found.join(" "), expected, "{url}");
    }
    for url in ["https://xn--80ak6aa92e.com/", "https://аpple.com/", "https://93.184.216.34/", "https://1572395042/"] {
        let (tool, args) = fetch(url);
        let around = Around { rules: allow(&["*", "web_fetch"]), ..Around::default() };
        assert_eq!(word(&judge(&tool, &args, &around)), "ask", "{url}");
    }
    let (tool, args) = fetch("https://docs.rs/");
    let around = Around { rules: allow(&["*"]), ..Around::default() };
    assert_eq!(word(&judge(&tool, &args, &around)), "ask", "every tool is not every host");
    // put together here, so that no scanner of sources takes it for real
    let key = ["AKIA", "IOSFODNN7EXAMPLE"].concat();
    let (tool, args) = fetch(&format!("https://docs.rs/?k={key}"));
    let around = Around { rules: allow(&["web_fetch(docs.rs)"]), ..Around::default() };
    assert_eq!(word(&judge(&tool, &args, &around)), "deny", "a key leaves for no host");
    for args in [
        json!({}),
        json!({ "url": 3 }),
        json!({ "url": ["https://docs.rs/"] }),
        json!({ "url": "https://docs.rs/", "method": "POST" }),
    ] {
        assert_eq!(word(&judge(&tool, &args, &around)), "ask", "{args}");
    }
    assert_eq!(word(&judge(&tool, &json!({ "url": ["http://127.0.0.1/"] }), &around)), "deny");
}

#[test]
fn names_and_redirects_are_followed_before_anything_is_fetched() {
    let mut around = Around { rules: allow(&["web_fetch"]), ..Around::default() };
    let addresses = |texts: &[&[&str]]| texts.iter().map(|t| t.iter().map(|a| a.parse().unwrap()).collect()).collect();
    around.world.hosts.insert("ok.example".to_owned(), addresses(&[&["93.184.216.34", "2606:4700::1"]]));
    around.world.hosts.insert("mixed.example".to_owned(), addresses(&[&["93.184.216.34", "10.0.0.1"]]));
    around.world.hosts.insert("rebind.example".to_owned(), addresses(&[&["93.184.216.34"], &["127.0.0.1"]]));
    let redirects = [
        ("https://a.example/local", "http://169.254.169.254/"),
        ("https://a.example/file", "file:///etc/passwd"),
        ("https://a.example/name", "http://rebind.example/"),
        ("https://a.example/other", "https://b.example/"),
        ("https://a.example/same", "/next"),
        ("https://a.example/down", "http://a.example/x"),
        ("https://a.example/loop", "https://a.example/loop"),
        ("https://a.example/twice", "/local"),
        ("https://a.example/bad", "http://["),
    ];
    around.world.redirects = redirects.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    for (url, expected) in [
        ("https://ok.example/", "allow"),
        ("https://mixed.example/", "deny"),
        ("https://rebind.example./", "deny"),
        ("https://a.example/local", "deny"),
        ("https://a.example/file", "deny"),
        ("https://a.example/name", "deny"),
        ("https://a.example/other", "ask"),
        ("https://a.example/same", "allow"),
        ("https://a.example/down", "ask"),
        ("https://a.example/loop", "ask"),
        ("https://a.example/twice", "deny"),
        ("https://a.example/bad", "ask"),
    ] {
        let (tool, args) = fetch(url);
        let ruled = judge(&tool, &args, &around);
        assert_eq!(word(&ruled), expected, "{url}: {:?}", ruled.ruling);
    }
}

#[test]
fn a_deny_rule_on_a_host_binds_whatever_reaches_it() {
    let rules = PolicyRules {
        deny: vec!["web_fetch(evil.example)".to_owned(), "web_fetch(*.bad.example)".to_owned()],
        ..allow(&["shell", "web_fetch"])
    };
    let around = Around { rules, ..Around::default() };
    for ((tool, args), expected) in [
        (fetch("https://evil.example/x"), "deny"),
        (fetch("https://EVIL.example.:8443/x"), "deny"),
        (fetch("https://a.bad.example/"), "deny"),
        (fetch("https://good.example/"), "allow"),
        (shell("curl -s https://evil.example/x | wc"), "deny"),
        (shell("timeout 5 wget http://a.bad.example/"), "deny"),
        (shell("curl https://good.example/"), "allow"),
        (shell("git push"), "ask"),
        (shell("ls"), "allow"),
    ] {
        let ruled = judge(&tool, &args, &around);
        assert_eq!(word(&ruled), expected, "{args}: {:?}", ruled.ruling);
    }
}

#[test]
fn what_a_server_is_told_may_be_denied_and_is_never_just_allowed() {
    let key = ["ghp", "_abcdefghij0123456789ABCDEFGHIJ012345"].concat();
    for ((tool, args), expected) in [
        (
            mcp(
                "github",
                "create_issue",
                json!({ "title": "x", "body": "rm -rf / is bad, see http://localhost:3000" }),
            ),
            "ask",
        ),
        (mcp("fs", "read_file", json!({ "path": "/w/README.md" })), "ask"),
        (mcp("fs", "read_file", json!({ "path": "/w/.git/HEAD" })), "ask"),
        (mcp("fs", "read_file", json!({ "path": "/home/me/.ssh/id_rsa" })), "deny"),
        (mcp("fs", "read_file", json!({ "path": "~/.aws/credentials" })), "deny"),
        (mcp("fs", "read_file", json!({ "uri": "file:///etc/shadow" })), "deny"),
        (mcp("fs", "read", json!({ "paths": ["a", { "path": ".env" }] })), "deny"),
        (mcp("fs", "write_file", json!({ "path": "/w/.git/hooks/x", "content": "x" })), "deny"),
        (mcp("fs", "get_and_set", json!({ "path": "/w/.git/hooks/x", "content": "x" })), "deny"),
        (mcp("fs", "writeFile", json!({ "path": ".longrein/config.toml" })), "deny"),
        (mcp("fs", "list", json!({ "path": "/home/me/.local/share/longrein/longrein.db" })), "deny"),
        (mcp("git", "add", json!({ "repo_path": "/w", "files": ["../../.ssh/id_rsa"] })), "deny"),
        (mcp("web", "fetch", json!({ "url": "http://169.254.169.254/" })), "deny"),
        (mcp("web", "fetch", json!({ "url": "http://2130706433/" })), "deny"),
        (mcp("web", "fetch", json!({ "url": "https://docs.rs/" })), "ask"),
        (mcp("shell", "run", json!({ "command": "ls" })), "ask"),
        (mcp("shell", "run", json!({ "command": "rm -rf /" })), "deny"),
        (mcp("x", "y", json!({ "command": ["rm", "-rf", "/"] })), "deny"),
        (mcp("x", "y", json!({ "command": "rm", "args": ["-rf", "~"] })), "deny"),
        (mcp("db", "query", json!({ "sql": "select 1" })), "ask"),
        (mcp("db", "query", json!({ "sql": "COPY t TO PROGRAM 'id'" })), "deny"),
        (mcp("db", "query", json!({ "sql": "select 1; drop table users" })), "deny"),
        (mcp("db", "query", json!({ "sql": "delete from users" })), "deny"),
        (mcp("db", "query", json!({ "sql": "delete from users where id = 3" })), "ask"),
        (mcp("slack", "post", json!({ "text": format!("take {key}") })), "deny"),
        (mcp("slack", "post", json!({ "text": "hello" })), "ask"),
        (mcp("", "", json!({})), "ask"),
        (mcp("fs", "delete_directory", json!({ "path": "/w" })), "deny"),
        (mcp("fs", "delete_file", json!({ "path": "/w/src/a.rs" })), "ask"),
        (mcp("git", "git_commit", json!({ "repo_path": "/w", "message": "x" })), "ask"),
        (mcp("fs", "read", json!("{\"path\": \"/etc/shadow\"}")), "deny"),
        (mcp("db", "query", json!({ "sql": "DROP/* x */TABLE users" })), "deny"),
        (mcp("db", "query", json!({ "sql": "select '/*'; drop table users; --*/" })), "deny"),
        (mcp("db", "query", json!({ "sql": "select 1 -- drop table x" })), "deny"),
        (mcp("db", "query", json!({ "sql": "select dropped from tables" })), "ask"),
        (mcp("docs", "search", json!({ "query": "attach a copy program" })), "ask"),
        (mcp("maps", "find", json!({ "address": "Berlin", "host": "42", "target": "shadow" })), "ask"),
        (mcp("db", "connect", json!({ "host": "127.0.0.1", "port": 5432 })), "deny"),
        (mcp("db", "connect", json!({ "host": "localhost" })), "deny"),
        (mcp("x", "y", json!({ "a": { "b": [{ "url": "http://[::1]/" }] } })), "deny"),
    ] {
        let ruled = judge(&tool, &args, &Around::default());
        assert_eq!(word(&ruled), expected, "{args}: {:?}", ruled.ruling);
    }
}
