//! Snapshots of a large workspace: 50,000 files of 4 kB in 500 folders, known to the kernel's cache, an ignore file among
//! them. Beside each time stands what the disk needs at the least: the same bytes, written to one file and synced.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use longrein::ports::{Trees, Undo};
use longrein::{TreeSettings, WorkspaceTrees, sizes_of_trees};

use crate::process;
use crate::report::{line, median};

const FOLDERS: usize = 500;
const FILES_PER_FOLDER: usize = 100;
const FILE_BYTES: usize = 4_096;
/// Unchanged snapshots that are measured.
const AGAIN: usize = 15;

pub(crate) fn print() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let (workspace, store) = (dir.path().join("workspace"), dir.path().join("home/trees"));
    make(&workspace)?;
    let raw = raw(dir.path())?;
    // files changed a moment ago are read again to be sure; a workspace is older than that
    std::thread::sleep(Duration::from_millis(200));
    let trees = WorkspaceTrees::open(&workspace, &store, TreeSettings::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let measure = |work: &dyn Fn() -> anyhow::Result<()>| -> anyhow::Result<Cost> {
        let (cpu, began) = (process::cpu_of_all_threads(), Instant::now());
        work()?;
        let wall = began.elapsed();
        Ok(Cost { wall, cpu: process::cpu_of_all_threads().saturating_sub(cpu) })
    };
    let snapshot = || runtime.block_on(trees.take());
    let once = || -> anyhow::Result<()> {
        snapshot()?;
        Ok(())
    };
    println!("\ntrees: {} files of {FILE_BYTES} B in {FOLDERS} folders, warm cache", FOLDERS * FILES_PER_FOLDER);
    line("raw: the same bytes, one file, synced", "", &format!("{:.2} s", raw.as_secs_f64()));

    let first = measure(&once)?;
    line(
        "first snapshot",
        "under 5 s",
        &format!("{:.2} s, CPU {:.2} s", first.wall.as_secs_f64(), first.cpu.as_secs_f64()),
    );
    let to = snapshot()?;
    ensure!(to.files as usize == FOLDERS * FILES_PER_FOLDER + 1, "{} files were seen", to.files);

    let costs = (0..AGAIN).map(|_| measure(&once)).collect::<anyhow::Result<Vec<_>>>()?;
    line("unchanged", "under 150 ms", &spread(&costs));
    let costs = (0..AGAIN)
        .map(|number| {
            fs::write(workspace.join("d7/f7"), format!("{number}"))?;
            measure(&once)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    line("one file changed", "", &spread(&costs));

    for number in 0..1_000 {
        fs::write(workspace.join(format!("d{}/f{}", number % FOLDERS, number / FOLDERS)), "changed")?;
    }
    let undo = Undo { to: to.id.clone(), left: snapshot()?.id, within: None };
    let back = measure(&|| {
        runtime.block_on(trees.undo(&undo))?;
        Ok(())
    })?;
    line("1,000 files restored", "", &format!("{:.0} ms, CPU {:.0} ms", millis(back.wall), millis(back.cpu)));
    let now = runtime.block_on(trees.hash()).context("after the restore")?;
    ensure!(now == to.id, "the tree is not what it was");
    let sizes = sizes_of_trees(&store)?;
    line("store", "", &format!("{:.0} MB in {} packs", sizes.objects_bytes as f64 / 1e6, sizes.packs));
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

fn spread(costs: &[Cost]) -> String {
    let least = costs.iter().map(|cost| millis(cost.wall)).fold(f64::INFINITY, f64::min);
    let wall = median(costs.iter().map(|cost| millis(cost.wall)));
    let cpu = costs.iter().map(|cost| millis(cost.cpu)).sum::<f64>() / costs.len() as f64;
    format!("{wall:.0} ms (least {least:.0}), CPU {cpu:.0} ms")
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn make(workspace: &Path) -> anyhow::Result<()> {
    fs::create_dir(workspace)?;
    fs::write(workspace.join(".gitignore"), "*.log\n/target/\nnode_modules\n!keep.log\n")?;
    for folder in 0..FOLDERS {
        let path = workspace.join(format!("d{folder}"));
        fs::create_dir(&path)?;
        for file in 0..FILES_PER_FOLDER {
            fs::write(path.join(format!("f{file}")), content(folder * FILES_PER_FOLDER + file))?;
        }
    }
    Ok(())
}

/// No two files are alike: each is kept.
fn content(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let words = std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()
    });
    words.flatten().take(FILE_BYTES).collect()
}

fn raw(dir: &Path) -> anyhow::Result<Duration> {
    let path = dir.join("raw");
    let block = content(0);
    let began = Instant::now();
    let mut file = File::create(&path)?;
    for _ in 0..FOLDERS * FILES_PER_FOLDER {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let took = began.elapsed();
    fs::remove_file(path)?;
    Ok(took)
}
