//! Output of every kind reaches the disk, bounded, and never makes the workload wait or fail.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::workload::workload::{Bench, segments, soon, until};
use lamp_test_support::skipped;

/// The lines that tell of a gap: how many bytes they say are missing, and how long they are
/// themselves.
fn gaps(output: &[u8]) -> (u64, u64) {
    let (mut told, mut length) = (0, 0);
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        let Some(number) = line
            .strip_prefix(b"[lamp: ")
            .and_then(|rest| rest.strip_suffix(b" bytes of output were not kept here]\n"))
        else {
            continue;
        };
        told += std::str::from_utf8(number).expect("digits").parse::<u64>().expect("a number");
        // The line break before it, as the output broke off within a line.
        length += line.len() as u64 + 1;
    }
    (told, length)
}

#[tokio::test]
async fn both_streams_in_order_and_any_bytes() {
    let bench = Bench::of_script(
        r"echo out; echo err >&2; printf '\000\377\376binary\r'; printf 'no newline at the end'",
    );
    let workload = bench.start().await;
    soon("it ends", workload.ended()).await;
    let wanted = b"out\nerr\n\0\xff\xfebinary\rno newline at the end";
    assert_eq!(bench.output(), wanted);
    assert_eq!(workload.printed(), (wanted.len() as u64, 0));
}

#[tokio::test]
async fn one_that_closes_its_output_goes_on() {
    let bench = Bench::of_script(
        "echo last; exec >&- 2>&-; touch closed; while [ ! -e go ]; do sleep 0.01; done; exit 8",
    );
    let workload = bench.start().await;
    bench.until_file("closed").await;
    fs::write(bench.file("go"), "").expect("written");
    assert_eq!(soon("it ends", workload.ended()).await.exit.code, Some(8));
    assert_eq!(bench.output(), b"last\n");
}

#[tokio::test]
async fn a_line_of_ten_megabytes_is_kept_whole() {
    let bench = Bench::of_script("head -c 10000000 /dev/zero | tr '\\0' x; echo; echo end");
    let workload = bench.start().await;
    soon("it ends", workload.ended()).await;
    let output = bench.output();
    assert_eq!(output.len(), 10_000_005);
    assert!(output.ends_with(b"x\nend\n") && output[..10_000_000].iter().all(|byte| *byte == b'x'));
    assert!(segments(bench.dir()).len() >= 3, "in segments of 4 MiB");
}

#[tokio::test]
async fn flood_is_bounded_on_disk_and_in_memory_and_counted_exactly() {
    const FLOOD: u64 = 300 << 20;
    let mut bench = Bench::of_script(&format!(
        "head -c {FLOOD} /dev/zero; touch flooded; while [ ! -e go ]; do sleep 0.01; done; printf end"
    ));
    bench.launch.log_bytes_max = 8 << 20;
    let workload = bench.start().await;
    bench.until_file("flooded").await;
    let on_disk = || {
        segments(bench.dir())
            .iter()
            .map(|path| fs::metadata(path).expect("there").len())
            .sum::<u64>()
    };
    assert!(on_disk() <= 8 << 20, "{}", on_disk());
    let status =
        fs::read_to_string(format!("/proc/{}/status", bench.holder().pid)).expect("it holds");
    let peak_kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok())
        .expect("a figure");
    // A tenth of the flood. Most of it are pages of the program itself, which is large when it is
    // built for tests.
    assert!(peak_kib < 32 << 10, "the holder peaked at {peak_kib} KiB");

    fs::write(bench.file("go"), "").expect("written");
    assert_eq!(soon("it ends", workload.ended()).await.exit.code, Some(0));
    let (printed, dropped) = workload.printed();
    assert_eq!(printed, FLOOD + 3);
    let (told, line_bytes) = gaps(&bench.output());
    assert_eq!((told, on_disk() - line_bytes), (dropped, printed - dropped));
    assert!(bench.output().ends_with(b"end"), "the very end is kept");
    assert!(on_disk() <= (8 << 20) + (64 << 10), "{}", on_disk());
}

#[tokio::test]
async fn what_is_shipped_makes_room_and_nothing_is_lost_uncounted() {
    const FLOOD: u64 = 64 << 20;
    const MORE: u64 = 1 << 20;
    // After the flood, once the shipper has made room and the holder is due to look for it: more.
    let more = format!(
        "touch flooded; while [ ! -e go ]; do sleep 0.01; done; sleep 0.3; head -c {MORE} /dev/zero; echo; echo end"
    );
    let mut bench = Bench::of_script(&format!("head -c {FLOOD} /dev/zero; {more}"));
    bench.launch.log_bytes_max = 4 << 20;
    let workload = bench.start().await;
    let mut shipped = Vec::new();
    // The shipper: takes every segment but the newest, all the time.
    let ship = async {
        loop {
            let flooded = bench.file("flooded").exists();
            for path in segments(bench.dir()).iter().rev().skip(1) {
                shipped.push((path.clone(), fs::read(path).expect("complete")));
                fs::remove_file(path).expect("ours to remove");
            }
            if flooded {
                fs::write(bench.file("go"), "").expect("written");
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = soon("it ends", workload.ended()) => {}
        () = ship => {}
    }
    shipped.sort();
    let output: Vec<u8> =
        shipped.into_iter().flat_map(|(_, bytes)| bytes).chain(bench.output()).collect();
    let (told, line_bytes) = gaps(&output);
    let (printed, dropped) = workload.printed();
    assert_eq!((printed, told), (FLOOD + MORE + 5, dropped));
    assert_eq!(output.len() as u64 - line_bytes, printed - dropped);
    assert!(output.ends_with(b"\nend\n"));
    assert!(printed - dropped > 4 << 20, "room was made: {}", printed - dropped);
}

/// A short line, and then it works on for as long as the test wants.
async fn seen_while_it_works(argv: &[&str], file: Option<(&str, &str)>) {
    let bench = Bench::of(argv);
    if let Some((name, text)) = file {
        fs::write(bench.file(name), text).expect("written");
    }
    let workload = bench.start().await;
    until("its line is in the log while it works", || {
        bench.output().starts_with(b"epoch 1 loss 0.5\n")
    })
    .await;
    assert!(!bench.has_exit_record());
    until("it is counted", || workload.printed() == (17, 0)).await;
}

#[tokio::test]
async fn python_that_never_flushes_is_seen() {
    let script = "import time\nprint('epoch 1 loss 0.5')\nwhile True: time.sleep(1)\n";
    seen_while_it_works(&["/usr/bin/env", "python3", "-E", "train.py"], Some(("train.py", script)))
        .await;
}

#[tokio::test]
async fn c_program_is_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("train.c"), folder.path().join("train"));
    let text = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf(\"epoch 1 loss 0.5\\n\"); for (;;) sleep(1); }\n";
    fs::write(&source, text).expect("written");
    if !Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status()
        .is_ok_and(|status| status.success())
    {
        return skipped("cc", "no C compiler makes the program that this test runs");
    }
    seen_while_it_works(&[program.to_str().expect("a plain path")], None).await;
}

/// `isatty` and the size say so; a read fails, and `/dev/tty` cannot be opened.
#[tokio::test]
async fn its_terminal_takes_lines_and_gives_no_key() {
    let script = "test -t 1 && test -t 2 && test ! -t 0 && echo terminal; read -r key <&1 || echo no key; \
                  (: < /dev/tty) || echo no tty; python3 -c 'import os; print(os.get_terminal_size(1))'; \
                  echo $TERM $PAGER $NO_COLOR";
    let bench = Bench::of_script(&format!("exec 2>/dev/null 3>&1; exec 2>&1; {script}"));
    let workload = bench.start().await;
    soon("it ends", workload.ended()).await;
    let output = String::from_utf8(bench.output()).expect("text");
    for part in ["terminal\n", "no key\n", "no tty\n", "columns=120, lines=40", "xterm cat 1\n"] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

#[tokio::test]
async fn progress_bar_is_one_log_line_and_each_state_a_sign_of_life() {
    let bench = Bench::of_script(
        "for i in 1 2 3 4 5 6 7 8 9; do printf '\\r%s0%%' $i; sleep 0.01; done; printf '\\r100%%\\n'; echo done",
    );
    let workload = bench.start().await;
    soon("it ends", workload.ended()).await;
    let output = String::from_utf8(bench.output()).expect("text");
    assert!(
        output.ends_with("\r100%\ndone\n") && output.lines().count() == 2 && output.len() < 30,
        "{output:?}"
    );
    assert_eq!(workload.printed(), (9 * 4 + 6 + 5, 0));
}

#[tokio::test]
async fn without_a_terminal_each_byte_is_kept() {
    let mut bench = Bench::of_script("test -t 1 || echo pipe; printf '\\r10%%\\r20%%\\r30%%\\n'");
    bench.launch.terminal = false;
    let workload = bench.start().await;
    soon("it ends", workload.ended()).await;
    assert_eq!(bench.output(), b"pipe\n\r10%\r20%\r30%\n");
}

/// A small file system of its own, for as long as it lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, with a word, where one may not mount.
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "lamp-test"])
            .arg(at)
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk(at.to_owned()));
        }
        skipped("root", "only root can mount the small disk that this test fills");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[tokio::test]
async fn full_disk_loses_output_and_nothing_else() {
    let bench = Bench::of_script(
        "head -c 5000000 /dev/zero; touch full; while [ ! -e go ]; do sleep 0.01; done; echo; sleep 0.5; echo room; exit 7",
    );
    let Some(_disk) = SmallDisk::mount(bench.dir()) else { return };
    let workload = bench.start().await;
    bench.until_file("full").await;
    until("all of it is counted", || workload.printed().0 == 5_000_000).await;
    assert!(workload.printed().1 > 3_900_000, "{:?}", workload.printed());
    fs::write(bench.file("go"), "").expect("written");
    assert_eq!(
        soon("the end is recorded on the full disk", workload.ended()).await.exit.code,
        Some(7)
    );
    let (printed, dropped) = workload.printed();
    let on_disk: u64 =
        segments(bench.dir()).iter().map(|path| fs::metadata(path).expect("there").len()).sum();
    assert_eq!((printed, on_disk), (5_000_006, printed - dropped + gaps(&bench.output()).1));
}

/// A holder whose standard output is ours: as the agent in the foreground starts it.
struct EchoingHolder(Child);

impl EchoingHolder {
    fn start(bench: &mut Bench) -> (Self, ChildStdout) {
        bench.launch.echo = true;
        fs::create_dir_all(bench.dir()).expect("a folder");
        fs::write(
            bench.dir().join("launch.json"),
            serde_json::to_vec(&bench.launch).expect("json"),
        )
        .expect("written");
        let mut holder = Command::new(&bench.program.exe)
            .arg("holder")
            .arg(bench.dir())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let output = holder.stdout.take().expect("piped");
        (EchoingHolder(holder), output)
    }
}

impl Drop for EchoingHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn echo_is_a_copy() {
    let mut bench = Bench::of_script("echo one; echo two >&2; exit 2");
    let (_holder, mut reader) = EchoingHolder::start(&mut bench);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    assert_eq!((text.as_str(), bench.output()), ("one\ntwo\n", b"one\ntwo\n".to_vec()));
    until("the end is on record", || bench.has_exit_record()).await;
}

#[tokio::test]
async fn terminal_that_stalls_or_closes_does_not_hold_the_workload() {
    let mut bench = Bench::of_script("head -c 8000000 /dev/zero; exit 1");
    let (_holder, stalled) = EchoingHolder::start(&mut bench);
    until("it ends although nobody reads", || bench.has_exit_record()).await;
    assert_eq!(bench.output().len(), 8_000_000, "the log has all of it");
    drop(stalled);

    let mut bench = Bench::of_script(
        "while [ ! -e go ]; do sleep 0.01; done; head -c 8000000 /dev/zero; exit 1",
    );
    let (_holder, closed) = EchoingHolder::start(&mut bench);
    drop(closed);
    fs::write(bench.file("go"), "").expect("written");
    until("it ends although nobody listens", || bench.has_exit_record()).await;
    assert_eq!(bench.output().len(), 8_000_000);
}
