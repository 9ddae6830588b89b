//! Whether a folder is a place where SQLite may keep a file in WAL mode: its locks and its shared memory must be the
//! same for everyone who sees the file, which network file systems do not give.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longrein_ports::JournalError;

/// Refuses network file systems, with the way out (`semantics.md` J3).
pub(super) fn check(folder: &Path) -> Result<(), JournalError> {
    let stat = rustix::fs::statfs(folder)
        .map_err(|error| JournalError::Unusable(format!("{} cannot be examined: {error}", folder.display())))?;
    // The type of the field differs between architectures; the numbers are 32 bits wide on all.
    let magic = (stat.f_type as i128 & 0xFFFF_FFFF) as u32;
    match network(magic, folder) {
        None => Ok(()),
        Some(kind) => Err(JournalError::Unusable(format!(
            "{} is on a network file system ({kind}), where SQLite's locks cannot be trusted; put the store on a local \
             disk with --store sqlite:PATH, or set LONGREIN_HOME to a folder on one",
            folder.display()
        ))),
    }
}

/// The name of the network file system, if it is one.
fn network(magic: u32, folder: &Path) -> Option<String> {
    let known = NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| (*name).to_owned());
    match magic {
        FUSE => mount_type(folder).filter(|kind| is_remote_fuse(kind)),
        // The root of some sandboxes is served over 9p; nobody outside the sandbox shares it.
        NINE_P if same_device(folder, Path::new("/")) => None,
        _ => known,
    }
}

const FUSE: u32 = 0x6573_5546;
const NINE_P: u32 = 0x0102_1997;

/// From `linux/magic.h` and statfs(2).
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (NINE_P, "9p"),
    (0x5346_414F, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x7375_7245, "Coda"),
    (0x0000_564C, "NCP"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x786F_4256, "vboxsf"),
    (0xAAD7_AAEA, "PanFS"),
    (0x4750_4653, "GPFS"),
];

/// FUSE carries local file systems too; these are known to be others' machines, or a host's share in a virtual one.
fn is_remote_fuse(kind: &str) -> bool {
    const REMOTE: &[&str] = &[
        "sshfs",
        "s3fs",
        "rclone",
        "gcsfuse",
        "glusterfs",
        "ceph",
        "davfs",
        "curlftpfs",
        "goofys",
        "juicefs",
        "mount-s3",
        "blobfuse",
        "grpcfuse",
        "osxfs",
        "fakeowner",
        "moosefs",
        "mfs",
        "seaweedfs",
        "smbnetfs",
        "afp",
        "vmhgfs",
    ];
    let name = kind.strip_prefix("fuse.").unwrap_or(kind);
    kind.starts_with("virtiofs") || REMOTE.iter().any(|remote| name.contains(remote))
}

/// The type of the mount that `folder` is on, as the kernel lists it. None: not listed.
fn mount_type(folder: &Path) -> Option<String> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let device = fs::metadata(folder).ok()?.dev();
    let wanted = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    String::from_utf8_lossy(&mounts).lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let here = mount.split(' ').nth(2)? == wanted;
        here.then(|| source.split(' ').next().unwrap_or_default().to_owned())
    })
}

fn same_device(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.dev() == other.dev(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        let here = std::env::temp_dir();
        assert_eq!(network(0x6969, &here).as_deref(), Some("NFS"));
        assert_eq!(network(0xFF53_4D42, &here).as_deref(), Some("CIFS"));
        assert_eq!(network(0xEF53, &here), None, "ext4");
        assert!(is_remote_fuse("fuse.sshfs"));
        assert!(!is_remote_fuse("fuse.gocryptfs"));
    }
}
