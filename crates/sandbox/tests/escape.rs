//! Attempts to get out, from inside every tier this machine can show. A script or a system call that ends well has come
//! through; what a tier does not promise is left out by name, and what must work is tried beside it.
#![expect(clippy::unwrap_used, clippy::print_stdout, unsafe_code, reason = "a test may")]

use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longrein_sandbox::{
    Attack, Became, Confined, Confinement, Ended, How, Keep, Marker, NO_FLOOD, Network, Spec, Stderr, Strays, Way,
    all_gone, probe_way, run,
};

/// A small machine: a workspace that may be written, and around it everything that may not be reached.
struct World {
    folder: tempfile::TempDir,
    victim: Child,
    tcp: TcpListener,
    udp: UdpSocket,
    abstracted: String,
    _sockets: Vec<UnixListener>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in ["home/.ssh", "work/.git/hooks", "work/sub", "outside/folder", "scratch", "given"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        for path in ["home/.ssh/id", "work/.git/config", "work/.env", "work/sub/.env", "outside/secret", "given/read"] {
            std::fs::write(at(path), "content of a file").unwrap();
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let abstracted = format!("longrein-escape-{}-{number}", std::process::id());
        let name = SocketAddr::from_abstract_name(&abstracted).unwrap();
        Self {
            // its environment holds a secret, and it is there to be killed
            victim: Command::new("sleep")
                .arg("1000")
                .env("KEY", "secret")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            abstracted,
            _sockets: vec![UnixListener::bind(at("outside/socket")).unwrap(), UnixListener::bind_addr(&name).unwrap()],
            folder,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    fn confined(&self, way: Way) -> Confined {
        let mut confined = Confined::new(way);
        confined.writes = vec![self.at("work")];
        confined.reads = vec![self.at("given"), std::env::current_exe().unwrap()];
        confined.read_only = vec![self.at("work/.git/hooks"), self.at("work/.git/config")];
        confined.hidden = vec![self.at("work/.env"), self.at("work/sub/.env")];
        confined.scratch = Some(self.at("scratch"));
        confined
    }

    fn spec(&self, confined: Confined, argv: &[&str]) -> Spec {
        let text = |path: &str| self.at(path).to_str().unwrap().to_owned();
        Spec {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            cwd: self.at("work"),
            env: [
                ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("HOME", text("home")),
                ("W", text("")),
                ("VICTIM", self.victim.id().to_string()),
                ("US", std::process::id().to_string()),
                ("TCP", self.tcp.local_addr().unwrap().port().to_string()),
                ("UDP", self.udp.local_addr().unwrap().port().to_string()),
                ("ABSTRACT", self.abstracted.clone()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            stdin: Vec::new(),
            stdout: Keep::Ends { max_bytes: 4096, flood_bytes: NO_FLOOD },
            stderr: Stderr::WithStdout,
            timeout: Duration::from_secs(20),
            // a mark of its own: commands of other tests sweep what is theirs
            marker: Marker { run: "escape".to_owned(), action: self.abstracted.clone(), fence: 1 },
            confinement: Confinement::Confined(Box::new(confined)),
        }
    }

    async fn shell(&self, confined: Confined, script: &str) -> Ended {
        run(self.spec(confined, &["sh", "-c", script])).await.unwrap()
    }

    /// Until its view is kept: it is another one for the first command than for all others.
    async fn used(&self, confined: &Confined, times: usize) {
        for _ in 0..times {
            assert_eq!(self.shell(confined.clone(), ":").await.how, How::Exited(0));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// The ways that hold here; of each other one a line says why it is passed over.
async fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for way in [Way::Namespaces, Way::UserNamespace, Way::Landlock] {
        match probe_way(way).await {
            Became::Held { .. } => ways.push(way),
            became @ (Became::Breached { .. } | Became::Unusable { .. }) => println!("skipped: {way:?}: {became}"),
        }
    }
    ways
}

/// Each way as it is for a first command; and, where views are kept, for one that comes later.
async fn used_ways() -> Vec<(Way, usize)> {
    let ways = ways().await.into_iter();
    ways.flat_map(|way| if way == Way::Namespaces { vec![(way, 0), (way, 2)] } else { vec![(way, 0)] }).collect()
}

fn said(ended: &Ended) -> String {
    format!("{:?}: {}", ended.how, String::from_utf8_lossy(&ended.stdout.head))
}

const BOTH: [Way; 3] = [Way::Namespaces, Way::UserNamespace, Way::Landlock];
const FULL: [Way; 2] = [Way::Namespaces, Way::UserNamespace];

/// Scripts that end with 0 when they got through.
const OUT: &[(&[Way], &str)] = &[
    (&BOTH, "echo x > $W/outside/secret"),
    (&BOTH, "echo x >> $W/outside/secret"),
    (&BOTH, "echo x > $W/outside/new"),
    (&BOTH, "mkdir $W/outside/new"),
    (&BOTH, "rm -f $W/outside/secret && ! test -e $W/outside/secret && test -e $W/outside"),
    (&BOTH, "rmdir $W/outside/folder"),
    (&BOTH, "mv $W/outside/secret here"),
    (&BOTH, "mv $W/outside $W/elsewhere"),
    (&BOTH, "mv $W/work $W/elsewhere"),
    (&BOTH, "echo x > $W/given/read"),
    (&BOTH, "echo x > $W/given/new"),
    (&BOTH, ": >> /etc/hosts"),
    (&BOTH, ": >> /usr/bin/env"),
    (&BOTH, "mkdir /etc/longrein-escape"),
    (&BOTH, ": > /longrein-escape"),
    (&BOTH, ": > /var/lib/longrein-escape"),
    (&BOTH, "cat $W/outside/secret"),
    (&BOTH, "cat $W/home/.ssh/id"),
    (&BOTH, "cat ../outside/secret"),
    (&BOTH, "ls $W/outside | grep secret"),
    (&BOTH, "ln -s $W/outside/secret link; cat link"),
    (&BOTH, "ln -s $W/outside door; echo x > door/new"),
    (&BOTH, "ln -s $W/outside/made-by-link made; echo x > made && test -e $W/outside/made-by-link"),
    (&BOTH, "ln $W/outside/secret hard && cat hard"),
    (&BOTH, "ln $W/given/read hard && echo x > hard"),
    (&BOTH, "cat /proc/$VICTIM/environ | grep -q secret"),
    (&BOTH, "cat /proc/$US/environ"),
    (&BOTH, "cat /proc/1/environ | grep -q CARGO"),
    (&FULL, "cat /proc/1/environ"),
    (&FULL, "cat /proc/1/maps"),
    (&BOTH, "head -c 1 /proc/1/mem"),
    (&BOTH, "cat /proc/$VICTIM/maps | grep -q ."),
    (&BOTH, "readlink /proc/$VICTIM/fd/0"),
    (&BOTH, "cat /proc/$US/ro*t/$W/outside/secret"),
    (&BOTH, "cat /proc/$US/cwd/Cargo.toml"),
    (&BOTH, "cat /proc/1/root$W/outside/secret"),
    (&BOTH, ": >> /proc/sys/kernel/core_pattern"),
    (&BOTH, ": >> /proc/sys/kernel/hostname"),
    (&BOTH, ": >> /proc/sysrq-trigger"),
    (&BOTH, ": >> /sys/kernel/mm/transparent_hugepage/enabled"),
    (&BOTH, "head -c 1 /dev/vda || head -c 1 /dev/sda || head -c 1 /dev/nvme0n1"),
    (&BOTH, "head -c 1 /dev/mem || head -c 1 /dev/kmsg"),
    (&BOTH, "mknod device b 254 0 && head -c 1 device"),
    (&BOTH, "cat /etc/shadow"),
    (&BOTH, "touch file; chmod 4755 file"),
    (&BOTH, "touch file; chmod 2755 file"),
    (&BOTH, "mount -t tmpfs none sub"),
    (&BOTH, "unshare -U true"),
    (&BOTH, "unshare -m true"),
    (&BOTH, "chroot . /bin/true"),
    (&BOTH, "ulimit -c unlimited"),
    (&BOTH, "ulimit -f unlimited"),
    (&FULL, "echo x > .git/hooks/pre-commit"),
    (&FULL, "echo x >> .git/config"),
    (&FULL, "mv .git elsewhere"),
    (&FULL, "mv .git/hooks .git/elsewhere"),
    (&FULL, "rm -rf .git/hooks"),
    (&FULL, "echo x > new; mv new .git/config"),
    (&FULL, "ln .git/config hard && echo x > hard"),
    (&FULL, "cat .env"),
    (&FULL, "cat sub/.env"),
    (&FULL, "mv sub elsewhere && cat elsewhere/.env"),
    (&FULL, "mv .env moved && cat moved"),
    (&FULL, "rm .env && ! test -e .env"),
    (&FULL, "cp -a . ../copy"),
    (&FULL, "umount .env && cat .env"),
    (&FULL, "ls -d /proc/$VICTIM"),
    (&FULL, "chmod 777 /etc/hosts"),
    (&FULL, "touch /etc/hosts"),
    (&FULL, "chmod 777 $W/outside/secret"),
    (&FULL, "ls $W/outside"),
    (&FULL, "ls $W/home/.ssh | grep -q id"),
    (&FULL, "ls /sys/class/net | grep -qv lo && cat /proc/net/dev | grep -q 'eth\\|en'"),
];

#[tokio::test]
async fn no_script_gets_out() {
    for (way, times) in used_ways().await {
        for (promised, script) in OUT {
            if !promised.contains(&way) {
                continue;
            }
            let world = World::new();
            world.used(&world.confined(way), times).await;
            let ended = world.shell(world.confined(way), script).await;
            assert!(matches!(ended.how, How::Exited(1..)), "{way:?}: {script}: came through: {}", said(&ended));
            for (path, content) in [("outside/secret", "content of a file"), ("given/read", "content of a file")] {
                let now = std::fs::read_to_string(world.at(path)).unwrap();
                assert_eq!(now, content, "{way:?}: {script}");
            }
            let names: Vec<_> =
                std::fs::read_dir(world.at("outside")).unwrap().flatten().map(|e| e.file_name()).collect();
            assert_eq!(names.len(), 3, "{way:?}: {script}: {names:?}");
            if FULL.contains(&way) {
                assert_eq!(std::fs::read_to_string(world.at("work/.git/config")).unwrap(), "content of a file");
                assert!(std::fs::read_dir(world.at("work/.git/hooks")).unwrap().next().is_none(), "{way:?}: {script}");
            }
        }
    }
}

/// What must go on working, or nobody keeps a sandbox switched on.
const IN: &[(&[Way], &str)] = &[
    (&BOTH, "mkdir d && echo x > new && mv new d/new && ln d/new hard && ln -s new soft && rm d/new"),
    (&BOTH, "mkdir -p a/b/c && echo x > a/b/c/f && mv a b && rm -r b"),
    (&BOTH, "cat $W/given/read && cat .git/config"),
    (&BOTH, "f=$(mktemp) && echo x > $f && cat $f"),
    (&BOTH, "echo x > /dev/null && head -c 8 /dev/urandom | wc -c && : < /dev/zero"),
    (&BOTH, "cat /etc/passwd > /dev/null && ls /usr/bin > /dev/null && ls /proc/self/ > /dev/null"),
    (&BOTH, "(sleep 0.01; echo late) & wait; kill -0 $$"),
    (&BOTH, "cp /bin/true own && chmod 755 own && ./own"),
    (&BOTH, "printf '#!/bin/sh\\necho hi\\n' > s && chmod +x s && ./s"),
    (&BOTH, "test \"$(id -u)\" = \"$(stat -c %u new 2>/dev/null || id -u)\""),
    (&BOTH, "mkfifo pipe && (echo x > pipe &) && cat pipe"),
    (&BOTH, "! command -v bash > /dev/null || bash -c 'diff <(echo a) <(echo a)'"),
    (&BOTH, "ps > /dev/null 2>&1 || ! command -v ps"),
    (&FULL, "echo x > /tmp/file && cat /tmp/file && test \"${TMPDIR:-/tmp}\" = /tmp"),
    (&FULL, "echo x > $HOME/file && cat $HOME/file"),
    (&FULL, "echo x > /var/tmp/file && echo x > /dev/shm/file"),
    (&FULL, "test $$ -lt 10"),
];

#[tokio::test]
async fn work_goes_on_inside() {
    for (way, times) in used_ways().await {
        for (promised, script) in IN {
            if promised.contains(&way) {
                let world = World::new();
                world.used(&world.confined(way), times).await;
                let ended = world.shell(world.confined(way), script).await;
                assert_eq!(ended.how, How::Exited(0), "{way:?}: {script}: {}", said(&ended));
                assert!(!world.at("home/file").exists(), "the home folder inside is none of ours");
            }
        }
    }
}

/// System calls that lead out, tried one by one by this program itself, run inside.
const CALLS: &[(&[Way], &str)] = &[
    (&BOTH, "tcp"),
    (&BOTH, "udp"),
    (&BOTH, "abstract"),
    (&BOTH, "socket-outside"),
    (&BOTH, "vsock"),
    (&BOTH, "netlink"),
    (&BOTH, "packet"),
    (&BOTH, "raw"),
    (&BOTH, "signal"),
    (&BOTH, "signal-us"),
    (&BOTH, "signal-all"),
    (&BOTH, "pidfd"),
    (&BOTH, "ptrace"),
    (&BOTH, "read-memory"),
    (&BOTH, "io_uring"),
    (&BOTH, "userns"),
    (&BOTH, "clone3"),
    (&BOTH, "setns"),
    (&BOTH, "mount"),
    (&BOTH, "open_tree"),
    (&BOTH, "keyctl"),
    (&BOTH, "bpf"),
    (&BOTH, "perf"),
    (&BOTH, "userfaultfd"),
    (&BOTH, "tiocsti"),
    (&BOTH, "chroot"),
    (&BOTH, "handle"),
    (&BOTH, "hostname"),
    (&BOTH, "kexec"),
    (&BOTH, "setuid-file"),
    (&BOTH, "truncate"),
    (&BOTH, "openat2-setuid"),
    (&BOTH, "capability"),
    (&BOTH, "unlimited"),
];

#[tokio::test]
async fn no_system_call_gets_out() {
    for (way, times) in used_ways().await {
        for (promised, call) in CALLS {
            let is_older = matches!(probe_way(way).await, Became::Held { open, .. } if open.contains(&Attack::Signal));
            if !promised.contains(&way) || (is_older && (call.starts_with("signal") || *call == "pidfd")) {
                continue;
            }
            let mut world = World::new();
            // so low a number is also one inside: a process that has it there is no one of ours
            let aimed_at = if *call == "signal-us" { std::process::id() } else { world.victim.id() };
            if FULL.contains(&way) && aimed_at < 100 {
                println!("skipped: {way:?}: {call}: process {aimed_at} is there inside as well");
                continue;
            }
            world.used(&world.confined(way), times).await;
            let program = std::env::current_exe().unwrap();
            let argv = [program.to_str().unwrap(), "--exact", "helper_inside", "--nocapture"];
            let mut spec = world.spec(world.confined(way), &argv);
            spec.env.push(("CALL".to_owned(), (*call).to_owned()));
            let ended = run(spec).await.unwrap();
            let text = said(&ended);
            assert!(text.contains("REFUSED"), "{way:?}: {call}: {text}");
            assert!(world.victim.try_wait().unwrap().is_none(), "{way:?}: {call}: the victim is dead");
        }
    }
}

/// Not a test: what `no_system_call_gets_out` runs inside.
#[test]
fn helper_inside() {
    let Ok(call) = std::env::var("CALL") else { return };
    let came_through = try_call(&call);
    println!(
        "{}",
        if came_through { "CAME THROUGH".to_owned() } else { format!("REFUSED: {}", std::io::Error::last_os_error()) }
    );
}

fn try_call(call: &str) -> bool {
    let var = |name: &str| std::env::var(name).unwrap();
    let number = |name: &str| var(name).parse::<i32>().unwrap();
    let outside = Path::new(&var("W")).join("outside/secret");
    let path = std::ffi::CString::new(outside.to_str().unwrap()).unwrap();
    // SAFETY: system calls on valid or null pointers; what they would do is the point.
    unsafe {
        let socket = |family, kind| libc::socket(family, kind, 0) >= 0;
        match call {
            "tcp" => std::net::TcpStream::connect(("127.0.0.1", number("TCP") as u16)).is_ok(),
            "udp" => {
                let sent =
                    UdpSocket::bind("127.0.0.1:0").and_then(|s| s.send_to(b"x", ("127.0.0.1", number("UDP") as u16)));
                // in a network of its own it can be sent, to nobody: the socket outside must stay empty, and it says so
                sent.is_ok()
                    && std::fs::read_to_string("/proc/net/udp")
                        .is_ok_and(|t| t.contains(&format!(":{:04X} ", number("UDP"))))
            }
            "abstract" => {
                let name = SocketAddr::from_abstract_name(var("ABSTRACT")).unwrap();
                std::os::unix::net::UnixStream::connect_addr(&name).is_ok()
            }
            "socket-outside" => std::os::unix::net::UnixStream::connect(outside.with_file_name("socket")).is_ok(),
            "vsock" => socket(libc::AF_VSOCK, libc::SOCK_STREAM),
            "netlink" => socket(libc::AF_NETLINK, libc::SOCK_RAW),
            "packet" => socket(libc::AF_PACKET, libc::SOCK_RAW),
            "raw" => socket(libc::AF_INET, libc::SOCK_RAW),
            "signal" => libc::kill(number("VICTIM"), libc::SIGKILL) == 0,
            "signal-us" => libc::kill(number("US"), 0) == 0,
            // kills whatever it may, but for itself: whoever is outside must live
            "signal-all" => {
                libc::kill(-1, 0);
                libc::kill(number("VICTIM"), 0) == 0
            }
            "pidfd" => {
                let fd = libc::syscall(libc::SYS_pidfd_open, number("VICTIM"), 0);
                fd >= 0 && libc::syscall(libc::SYS_pidfd_send_signal, fd, 0, 0_usize, 0) == 0
            }
            "ptrace" => libc::ptrace(libc::PTRACE_SEIZE, number("VICTIM"), 0_usize, 0_usize) == 0,
            "read-memory" => {
                let mut to = [0_u8; 8];
                let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: 8 };
                libc::process_vm_readv(number("VICTIM"), &raw const local, 1, &raw const local, 1, 0) >= 0
                    || *libc::__errno_location() == libc::EFAULT
            }
            "io_uring" => {
                let mut params = [0_u8; 256];
                libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) >= 0
            }
            "userns" => libc::unshare(libc::CLONE_NEWUSER) == 0,
            "clone3" => {
                let arguments = [libc::CLONE_NEWUSER as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
                let child = libc::syscall(libc::SYS_clone3, arguments.as_ptr(), 64);
                if child == 0 {
                    libc::_exit(0);
                }
                child > 0
            }
            "setns" => {
                let fd = libc::open(c"/proc/self/ns/net".as_ptr(), libc::O_RDONLY);
                libc::setns(fd, 0) == 0
            }
            "mount" => libc::mount(c"none".as_ptr(), c"/tmp".as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()) == 0,
            "open_tree" => libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, c"/".as_ptr(), 1) >= 0,
            "keyctl" => libc::syscall(libc::SYS_keyctl, 0, -3, 1) >= 0,
            "bpf" => {
                let attributes = [0_u8; 128];
                libc::syscall(libc::SYS_bpf, 0, attributes.as_ptr(), 128) >= 0
                    || *libc::__errno_location() == libc::EINVAL
            }
            "perf" => {
                let mut attributes = [0_u8; 128];
                attributes[4] = 112;
                libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) >= 0
            }
            "userfaultfd" => libc::syscall(libc::SYS_userfaultfd, 1) >= 0,
            "tiocsti" => {
                let byte = b'x';
                libc::ioctl(0, libc::TIOCSTI, &raw const byte) == 0 || *libc::__errno_location() != libc::EPERM
            }
            "chroot" => libc::chroot(c".".as_ptr()) == 0,
            "handle" => {
                let mut handle = [0_u64; 20];
                handle[0] = 128;
                let mut mount = 0;
                let named = libc::syscall(
                    libc::SYS_name_to_handle_at,
                    libc::AT_FDCWD,
                    c"/".as_ptr(),
                    handle.as_mut_ptr(),
                    &raw mut mount,
                    0,
                );
                let root = libc::open(c"/".as_ptr(), libc::O_RDONLY);
                named >= 0 && libc::syscall(libc::SYS_open_by_handle_at, root, handle.as_ptr(), libc::O_RDONLY) >= 0
            }
            "hostname" => libc::sethostname(c"x".as_ptr(), 1) == 0,
            "kexec" => libc::syscall(libc::SYS_kexec_load, 0, 0, 0_usize, 0) >= 0,
            "setuid-file" => libc::open(c"made".as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o4755) >= 0,
            "truncate" => libc::truncate(path.as_ptr(), 0) == 0,
            "openat2-setuid" => {
                let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
                libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, c"made".as_ptr(), how.as_ptr(), 24) >= 0
            }
            // to take a capability back that was dropped
            "capability" => {
                let header = [0x2008_0522_u32, 0];
                let sets = [u32::MAX, u32::MAX, 0, 0x1ff, 0x1ff, 0];
                libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) == 0
            }
            "unlimited" => {
                let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn nothing_outlives_a_command() {
    for way in ways().await {
        let world = World::new();
        for script in [
            "sleep 9999 & echo done",
            "setsid sleep 9999 & sleep 0.05; echo done",
            "(setsid env -i sh -c 'sleep 9999 & sleep 9998' &) ; sleep 0.05; echo done",
            "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & sleep 0.05; echo done",
        ] {
            // without a namespace, who leaves its session and wipes its environment is known only while it is alone
            if script.contains("env -i") && !FULL.contains(&way) {
                continue;
            }
            let ended = world.shell(world.confined(way), script).await;
            assert_eq!(ended.how, How::Exited(0), "{way:?}: {script}: {}", said(&ended));
            assert!(matches!(ended.strays, Strays::Ended(1..)), "{way:?}: {script}: {:?}", ended.strays);
        }
        let mut ended = None;
        // how long it takes until the shell has set its trap is the machine's business
        for millis in [300, 3_000, 30_000] {
            let script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
            let mut slow = world.spec(world.confined(way), &["sh", "-c", script]);
            slow.timeout = Duration::from_millis(millis);
            let found = run(slow).await.unwrap();
            let was_ready = found.stdout.head.starts_with(b"ready\n");
            ended = Some(found);
            if was_ready {
                break;
            }
        }
        let ended = ended.unwrap();
        assert_eq!(ended.how, How::TimedOut, "{way:?}");
        assert!(ended.stdout.head.ends_with(b"bye\n"), "{way:?}: {}", said(&ended));
        let signalled = world.shell(world.confined(way), "kill -TERM $$; sleep 1").await;
        assert_eq!(signalled.how, How::Signalled(15), "{way:?}");
        let dropped = world.spec(world.confined(way), &["sh", "-c", "setsid sleep 9797 & sleep 9797"]);
        assert!(tokio::time::timeout(Duration::from_millis(200), run(dropped)).await.is_err());
        let left = || {
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            let all = all.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
            all.filter(|line| line == b"sleep\x009797\0").count()
        };
        // a killed process is there until the machine has had time for it
        for _ in 0..600 {
            if all_gone().await && left() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(all_gone().await, "{way:?}");
        assert_eq!(left(), 0, "{way:?}");
    }
}

#[tokio::test]
async fn appetites_are_bounded() {
    for way in ways().await {
        let world = World::new();
        let mut large = world.confined(way);
        large.limits.file_bytes = 1 << 20;
        let ended = world.shell(large, "head -c 2000000 /dev/zero > file; echo status $?").await;
        assert!(!said(&ended).contains("status 0"), "{way:?}: {}", said(&ended));
        assert_eq!(std::fs::metadata(world.at("work/file")).unwrap().len(), 1 << 20, "{way:?}");

        let mut hungry = world.confined(way);
        hungry.limits.memory_bytes = Some(64 << 20);
        let ended = world.shell(hungry, "dd if=/dev/zero of=/dev/null bs=256M count=1").await;
        assert!(matches!(ended.how, How::Exited(1..)), "{way:?}: {}", said(&ended));

        if FULL.contains(&way) && is_new_kernel() {
            let mut many = world.confined(way);
            many.limits.processes = 301;
            let script = "i=0; while [ $i -lt 400 ]; do sleep 60 & i=$((i+1)); done; echo all 400";
            let ended = world.shell(many, script).await;
            assert!(!said(&ended).contains("all 400"), "{way:?}: {}", said(&ended));
        } else {
            println!("skipped: processes are not bounded for root with {way:?}");
        }
    }
}

fn is_new_kernel() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 14)
}

/// A proxy is the only one that can be talked to, and it is carried there and back.
#[tokio::test]
async fn a_proxy_is_the_only_way_out() {
    let program = std::env::current_exe().unwrap();
    for way in ways().await {
        let world = World::new();
        let socket = world.at("outside/proxy");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let echo = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            }
        });
        for call in ["proxy", "tcp", "udp"] {
            let argv = [program.to_str().unwrap(), "--exact", "helper_proxy", "--nocapture"];
            let mut confined = world.confined(way);
            confined.network = Network::Proxy { socket: socket.clone() };
            let mut spec = world.spec(confined, &argv);
            spec.env.push(("PROXY_CALL".to_owned(), call.to_owned()));
            let ended = run(spec).await.unwrap();
            let expected = if call == "proxy" { "ANSWER: hello" } else { "REFUSED" };
            assert!(said(&ended).contains(expected), "{way:?}: {call}: {}", said(&ended));
        }
        echo.abort();
    }
}

/// Not a test: what `a_proxy_is_the_only_way_out` runs inside.
#[test]
fn helper_proxy() {
    use std::io::{Read, Write};
    let Ok(call) = std::env::var("PROXY_CALL") else { return };
    if call != "proxy" {
        println!("{}", if try_call(&call) { "CAME THROUGH" } else { "REFUSED" });
        return;
    }
    let at = std::env::var("HTTP_PROXY").unwrap();
    let mut stream = std::net::TcpStream::connect(at.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(b"hello").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    println!("ANSWER: {answer}");
    let _ = stream.as_raw_fd();
}

/// The first process of a command's namespace begins as a part of ours: a program that looks at once must find it changed.
#[tokio::test]
async fn nobody_is_quick_enough_to_see_our_memory() {
    for way in ways().await.into_iter().filter(|way| FULL.contains(way)) {
        let world = World::new();
        for _ in 0..200 {
            let ended = run(world.spec(world.confined(way), &["cat", "/proc/1/environ"])).await.unwrap();
            assert!(matches!(ended.how, How::Exited(1..)), "{way:?}: {}", said(&ended));
        }
    }
}
