//! The machine itself: disks, power, processes, people, the kernel, what starts by itself.

use super::{Call, Harm};

pub(super) fn harm(call: &Call<'_>) -> Option<Harm> {
    disks(call).or_else(|| power(call)).or_else(|| processes(call)).or_else(|| rights(call)).or_else(|| guards(call))
}

fn disks(call: &Call<'_>) -> Option<Harm> {
    let base = call.base;
    let wipes = match base {
        "mkswap" | "mke2fs" | "wipefs" | "blkdiscard" | "sgdisk" | "gdisk" | "cfdisk" | "lvremove" | "vgremove"
        | "pvremove" | "flashrom" | "grub-install" => !call.has(&["--help", "--version", "-n", "--no-act"]),
        "fdisk" | "sfdisk" => !call.has(&["-l", "--list", "-d", "--dump", "-J", "--version"]) && !call.args.is_empty(),
        "parted" => !call.has(&["-l", "--list", "print", "--version"]) && !call.args.is_empty(),
        "badblocks" => call.letter(&['w']),
        "hdparm" => call.args.iter().any(|arg| arg.contains("security-") || arg.contains("trim-sector")),
        "nvme" => call.names(&["format", "sanitize", "write-zeroes"]),
        "cryptsetup" => call.names(&["luksErase", "luksFormat", "erase", "reencrypt"]),
        "mdadm" => call.has(&["--zero-superblock", "--stop", "--remove"]),
        "zpool" | "zfs" => call.names(&["destroy", "labelclear"]),
        "btrfs" => call.says(&["subvolume", "delete"]),
        "debugfs" => call.letter(&['w']),
        "diskutil" => call.args.iter().any(|arg| arg.to_lowercase().starts_with("erase") || arg.contains("artition")),
        "efibootmgr" => call.letter(&['B']),
        "shred" => call.args.iter().any(|arg| arg.starts_with("/dev/")),
        name => name == "mkfs" || name.starts_with("mkfs."),
    };
    if wipes {
        return Some(Harm::destroys(format!("{base} wipes or repartitions a disk")));
    }
    if base == "fallocate" && call.args.iter().any(|arg| size(arg.trim_start_matches("-l")).unwrap_or(0) >= HUGE) {
        return Some(Harm::exhausts("it fills the disk"));
    }
    None
}

fn power(call: &Call<'_>) -> Option<Harm> {
    let base = call.base;
    let stops = match base {
        "shutdown" | "reboot" | "halt" | "poweroff" | "pm-suspend" | "pm-hibernate" | "kexec" => true,
        "init" | "telinit" => !call.args.is_empty(),
        "systemctl" | "loginctl" => call.names(&[
            "poweroff",
            "reboot",
            "halt",
            "kexec",
            "emergency",
            "rescue",
            "suspend",
            "hibernate",
            "soft-reboot",
            "kill-user",
            "terminate-user",
        ]),
        "swapoff" => true,
        "umount" => call.has(&["-a", "--all"]) || call.names(&["/"]),
        "rmmod" | "insmod" => true,
        "modprobe" => call.letter(&['r']) || call.has(&["--remove"]),
        _ => false,
    };
    stops.then(|| Harm::destroys(format!("{base} takes the machine or a part of it down")))
}

fn processes(call: &Call<'_>) -> Option<Harm> {
    let everybody = match call.base {
        "killall5" => true,
        "kill" => {
            // the first word that is no signal: `-9 -1` is everybody, `-1` alone a signal
            let mut args = call.args.iter().copied().peekable();
            match args.peek().copied() {
                Some("-s" | "-n") => drop((args.next(), args.next())),
                Some(signal) if signal.starts_with('-') && signal != "--" => drop(args.next()),
                Some(_) | None => {}
            }
            args.any(|arg| matches!(arg, "-1" | "1"))
        }
        "pkill" | "killall" | "skill" => {
            let essential = ["systemd", "init", "sshd", "dbus-daemon", "Xorg", "gnome-shell", ".", ".*", ""];
            call.has(&["-u", "-U", "--euid", "--uid"]) && call.names(&["root", "0"])
                || call.operands().iter().any(|name| essential.contains(name))
                || call.names(&["-uroot", "-u0"])
        }
        _ => false,
    };
    everybody.then(|| Harm::destroys("it ends processes that are not its own to end"))
}

/// Who may do what, and what starts by itself.
fn rights(call: &Call<'_>) -> Option<Harm> {
    let base = call.base;
    let people = match base {
        "userdel" | "useradd" | "usermod" | "adduser" | "deluser" | "groupdel" | "groupadd" | "groupmod"
        | "delgroup" | "addgroup" | "chpasswd" | "newusers" | "visudo" | "vipw" | "vigr" | "chsh" | "gpasswd"
        | "ssh-copy-id" | "setcap" => !call.has(&["--help", "--version"]),
        "passwd" => !call.has(&["-S", "--status", "--help"]),
        "chmod" | "install" => call.args.iter().any(|arg| sets_user_id(arg)),
        "csrutil" => call.names(&["disable"]),
        "spctl" => call.has(&["--master-disable"]),
        _ => false,
    };
    if people {
        return Some(Harm::takes_rights(format!("{base} changes who may do what on this machine")));
    }
    let stays = match base {
        "crontab" => !call.has(&["-l"]) || call.has(&["-r", "-e"]),
        "at" | "batch" => !call.has(&["-l", "-c", "-V"]),
        "systemctl" => call.names(&["enable", "link", "edit", "set-default"]),
        "launchctl" => call.names(&["load", "bootstrap", "submit"]),
        "update-rc.d" | "chkconfig" => !call.args.is_empty(),
        "loginctl" => call.names(&["enable-linger"]),
        _ => false,
    };
    if stays {
        return Some(Harm::takes_rights(format!("{base} has something run later, when nobody looks")));
    }
    None
}

/// Options and numbers that make a program run with its owner's rights.
fn sets_user_id(mode: &str) -> bool {
    let mode = mode.strip_prefix("--mode=").or_else(|| mode.strip_prefix("-m")).unwrap_or(mode);
    let octal = !mode.is_empty() && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    if octal {
        let number = u32::from_str_radix(mode, 8).unwrap_or_default();
        return number & 0o6000 != 0;
    }
    mode.split(',').any(|clause| {
        clause.split_once(['+', '=']).is_some_and(|(who, what)| {
            who.bytes().all(|byte| b"ugoa".contains(&byte)) && what.contains('s') && what.len() <= 4
        })
    })
}

/// What watches over the machine: firewalls, audit, mandatory access control, traces of what was done.
fn guards(call: &Call<'_>) -> Option<Harm> {
    const WATCHES: [&str; 12] = [
        "auditd",
        "firewalld",
        "ufw",
        "apparmor",
        "fail2ban",
        "iptables",
        "nftables",
        "rsyslog",
        "systemd-journald",
        "sshd",
        "ssh",
        "falcon-sensor",
    ];
    let base = call.base;
    let off = match base {
        "iptables" | "ip6tables" | "ebtables" => {
            call.has(&["-F", "--flush", "-X", "--delete-chain"])
                || (call.has(&["-P"]) && call.names(&["ACCEPT", "DROP"]))
        }
        "nft" => call.names(&["flush", "delete", "destroy"]),
        "ufw" => call.names(&["disable", "reset"]),
        "setenforce" => call.names(&["0", "Permissive", "permissive"]),
        "aa-teardown" | "aa-disable" | "aa-complain" => true,
        "auditctl" => call.has(&["-D"]) || call.says(&["0"]),
        "sysctl" => {
            call.has(&["-w", "--write", "-p", "--system"]) || call.operands().iter().any(|arg| arg.contains('='))
        }
        "systemctl" | "service" => {
            let name = |arg: &&str| WATCHES.contains(&arg.trim_end_matches(".service"));
            call.names(&["stop", "disable", "mask", "kill"]) && call.operands().iter().any(name)
        }
        "history" => call.letter(&['c', 'd', 'w']),
        "unset" | "export" => {
            call.args.iter().any(|arg| matches!(*arg, "HISTFILE" | "HISTFILE=" | "HISTFILE=/dev/null" | "HISTSIZE=0"))
        }
        "journalctl" => call.args.iter().any(|arg| arg.starts_with("--vacuum") || *arg == "--rotate"),
        "dmesg" => call.has(&["-C", "--clear", "-c"]),
        "mount" => call.args.iter().any(|arg| arg.contains("remount") || *arg == "--bind" || *arg == "--move"),
        _ => false,
    };
    off.then(|| Harm::takes_rights(format!("{base} changes what guards this machine or what it remembers")))
}

/// A size such as `10G`; None: none.
pub(super) fn size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let unit: u64 = match text.get(digits..)?.trim_end_matches(['i', 'B', 'b']) {
        "" | "c" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        "T" | "t" => 1 << 40,
        "P" | "E" => 1 << 50,
        _ => return None,
    };
    number.checked_mul(unit).or(Some(u64::MAX))
}

/// More than anybody makes by the way.
pub(super) const HUGE: u64 = 20 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_lend_rights_are_told_from_others() {
        for (mode, lends) in [
            ("u+s", true),
            ("+s", true),
            ("g=rxs", true),
            ("4755", true),
            ("02755", true),
            ("--mode=4755", true),
            ("755", false),
            ("0644", false),
            ("+x", false),
            ("u+x,g-s", false),
            ("src", false),
            ("a=b/sources", false),
        ] {
            assert_eq!(sets_user_id(mode), lends, "{mode}");
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("10", Some(10)),
            ("1K", Some(1024)),
            ("2GiB", Some(2 << 30)),
            ("900T", Some(900 << 40)),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }
}
