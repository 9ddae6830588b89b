//! Networks of commands' own, and what else processes talk through: nobody shares one, and who gets one that was used before
//! finds it as new.
#![expect(clippy::unwrap_used, clippy::print_stdout, unsafe_code, reason = "a test may")]

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use longrein_sandbox::{
    Became, Confined, Confinement, How, Keep, Marker, NO_FLOOD, Spec, Stderr, Way, all_gone, probe_way, run,
};

fn spec(way: Way, argv: &[&str]) -> Spec {
    let mut confined = Confined::new(way);
    confined.reads = vec![std::env::current_exe().unwrap()];
    Spec {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        cwd: PathBuf::from("/"),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        stdin: Vec::new(),
        stdout: Keep::Ends { max_bytes: 1 << 16, flood_bytes: NO_FLOOD },
        stderr: Stderr::WithStdout,
        timeout: Duration::from_secs(20),
        marker: Marker { run: "networks".to_owned(), action: "a1".to_owned(), fence: 1 },
        confinement: Confinement::Confined(Box::new(confined)),
    }
}

async fn said(way: Way, script: &str) -> String {
    let ended = run(spec(way, &["sh", "-c", script])).await.unwrap();
    let text = String::from_utf8(ended.stdout.head).unwrap();
    assert_eq!(ended.how, How::Exited(0), "{way:?}: {script}: {text}");
    text.trim().to_owned()
}

/// Which network a command is in.
const NAME: &str = "readlink /proc/self/ns/net";

async fn a_network_is_handed_on_as_good_as_new() {
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    for way in [Way::Namespaces, Way::UserNamespace] {
        match probe_way(way).await {
            Became::Held { .. } => {}
            became @ (Became::Breached { .. } | Became::Unusable { .. }) => {
                println!("skipped: {way:?}: {became}");
                continue;
            }
        }
        assert!(all_gone().await);
        assert_ne!(said(way, NAME).await, ours, "{way:?}");
        assert!(all_gone().await);
        helper(way, "datagram").await;
        assert!(all_gone().await);
        let counted = said(way, "grep lo: /proc/net/dev").await;
        let is_new = counted.split_whitespace().nth(1) == Some("0");
        assert_eq!(is_new, way != Way::Namespaces, "one that was left empty is handed on, and it alone: {counted}");
        let beside = format!("sleep 0.3; {NAME}");
        let (one, other) = tokio::join!(said(way, &beside), said(way, &beside));
        assert_ne!(one, other, "{way:?}: side by side nobody shares one");
        assert!(all_gone().await);

        helper(way, "connection").await;
        assert!(all_gone().await);
        for _ in 0..3 {
            let sockets = said(way, "cat /proc/net/tcp /proc/net/tcp6 /proc/net/unix /proc/net/udp").await;
            let sockets: Vec<_> =
                sockets.lines().filter(|line| !line.contains("Path") && !line.contains("sl ")).collect();
            assert!(sockets.is_empty(), "{way:?}: {sockets:?}");
            assert!(all_gone().await);
        }
    }
}

/// One after the other: which of the kept namespaces a command gets depends on what ran before.
#[tokio::test]
async fn what_is_kept_is_handed_on_as_good_as_new() {
    a_network_is_handed_on_as_good_as_new().await;
    what_processes_talk_through_is_not_handed_on_with_anything_in_it().await;
}

/// In kept namespaces something is left by one command; the next ones get others.
async fn what_processes_talk_through_is_not_handed_on_with_anything_in_it() {
    let ours = std::fs::read_link("/proc/self/ns/ipc").unwrap().display().to_string();
    for way in [Way::Namespaces, Way::UserNamespace] {
        if !matches!(probe_way(way).await, Became::Held { .. }) {
            println!("skipped: {way:?}");
            continue;
        }
        const NAME: &str = "readlink /proc/self/ns/ipc";
        assert_ne!(said(way, NAME).await, ours, "{way:?}");
        let beside = format!("sleep 0.3; {NAME}");
        let (one, other) = tokio::join!(said(way, &beside), said(way, &beside));
        assert_ne!(one, other, "{way:?}: side by side nobody shares one");
        for left in ["memory", "semaphore", "messages", "queue"] {
            assert!(all_gone().await);
            helper(way, left).await;
            assert!(all_gone().await);
            for _ in 0..3 {
                let lists = said(way, "cat /proc/sysvipc/msg /proc/sysvipc/sem /proc/sysvipc/shm").await;
                assert_eq!(lists.lines().count(), 3, "{way:?}: {left}: nothing but headings: {lists}");
                helper(way, "no queue").await;
                assert!(all_gone().await);
            }
        }
    }
}

/// Has this program do something inside.
async fn helper(way: Way, does: &str) {
    let program = std::env::current_exe().unwrap();
    let mut spec = spec(way, &[program.to_str().unwrap(), "--exact", "helper_inside", "--nocapture"]);
    spec.env.push(("DOES".to_owned(), does.to_owned()));
    let ended = run(spec).await.unwrap();
    let text = String::from_utf8(ended.stdout.head).unwrap();
    assert!(text.contains("DONE"), "{way:?}: loopback works inside: {text}");
}

/// Not a test: what the other runs inside.
#[test]
fn helper_inside() {
    let Ok(does) = std::env::var("DOES") else { return };
    let name = c"/longrein-left".as_ptr();
    // SAFETY: numbers, and a name that ends with a zero.
    let made = unsafe {
        match does.as_str() {
            "memory" => Some(libc::shmget(7, 4096, libc::IPC_CREAT | 0o600)),
            "semaphore" => Some(libc::semget(7, 1, libc::IPC_CREAT | 0o600)),
            "messages" => Some(libc::msgget(7, libc::IPC_CREAT | 0o600)),
            "queue" => Some(libc::mq_open(name, libc::O_CREAT | libc::O_RDWR, 0o600, 0_usize)),
            "no queue" => Some(if libc::mq_open(name, libc::O_RDWR) < 0 { 0 } else { -1 }),
            _ => None,
        }
    };
    if let Some(made) = made {
        // where the kernel has rules on files, a queue is a file that may not be made
        let is_refused = does == "queue" && std::io::Error::last_os_error().raw_os_error() == Some(libc::EACCES);
        assert!(made >= 0 || is_refused, "{does}: {}", std::io::Error::last_os_error());
    } else if does == "datagram" {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        socket.recv(&mut [0; 8]).unwrap();
    } else {
        // the kernel remembers it for a minute
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        drop((connection, accepted));
    }
    println!("DONE");
}
