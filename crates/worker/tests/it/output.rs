//! Input without a reader and output without end: bounded, marked, and never in the way (F33).

use std::time::Duration;

use outlast_core::limits::LOG_BYTES_MAX;
use outlast_worker::attempt::{
    Attempt, AttemptEnd, AttemptSpec, Captured, EndKind, Output, OutputLimits, Stream,
};

use outlast_worker::containment::Containment;

use crate::support::shell;

/// Reads all output beside the attempt: bytes by stream, and the mark if one came.
async fn run(spec: AttemptSpec) -> (AttemptEnd, Vec<u8>, Vec<u8>, Option<u64>) {
    let mut attempt = Attempt::spawn(spec);
    let mut output = attempt.take_output().unwrap();
    let reading = tokio::spawn(async move {
        let (mut stdout, mut stderr, mut mark) = (Vec::new(), Vec::new(), None);
        while let Some(piece) = output.recv().await {
            assert_eq!(mark, None, "the mark comes last");
            match piece {
                Output::Chunk { stream: Stream::Stdout, bytes } => stdout.extend(bytes),
                Output::Chunk { stream: Stream::Stderr, bytes } => stderr.extend(bytes),
                Output::Truncated { dropped } => mark = Some(dropped),
                Output::GivenUp { stream } => panic!("{stream:?} was read to its end"),
            }
        }
        (stdout, stderr, mark)
    });
    let ending = attempt.finished().await;
    let (stdout, stderr, mark) = reading.await.unwrap();
    (ending, stdout, stderr, mark)
}

#[tokio::test]
async fn both_streams_arrive_whole_and_apart() {
    let (ending, stdout, stderr, mark) = run(shell("echo out; echo err >&2; exit 4")).await;
    assert_eq!(ending.kind, EndKind::Exited { code: 4 });
    assert_eq!((stdout.as_slice(), stderr.as_slice(), mark), (&b"out\n"[..], &b"err\n"[..], None));
    assert_eq!((ending.output.stdout.bytes, ending.output.stderr.bytes), (stdout, stderr));
}

#[tokio::test]
async fn input_arrives_and_ends() {
    let stdin: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).take(3_000_000).collect();
    let spec = AttemptSpec { stdin: stdin.clone(), ..shell("cat | cksum; echo end") };
    let (ending, stdout, ..) = run(spec).await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    let text = String::from_utf8(stdout).unwrap();
    assert!(text.contains(" 3000000\n") && text.ends_with("end\n"), "{text}");
}

#[tokio::test]
async fn input_that_is_never_read_does_not_delay_the_end() {
    let spec = AttemptSpec { stdin: vec![b'x'; 1_000_000], ..shell("exit 0") };
    let (ending, ..) = run(spec).await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    assert!(ending.duration < Duration::from_secs(5), "{:?}", ending.duration);
}

#[tokio::test]
async fn input_that_is_never_read_does_not_delay_the_timeout() {
    let spec = AttemptSpec {
        stdin: vec![b'x'; 1_000_000],
        timeout: Some(Duration::from_millis(300)),
        ..shell("sleep 60")
    };
    let (ending, ..) = run(spec).await;
    assert_eq!(ending.kind, EndKind::TimedOut);
    assert!(ending.duration < Duration::from_secs(5), "{:?}", ending.duration);
}

#[tokio::test]
async fn flood_is_cut_at_the_limit_and_counted_to_the_byte() {
    let total: u64 = 40_000_000;
    let (ending, stdout, _, mark) =
        run(shell(&format!("head -c {total} /dev/zero | tr '\\0' x"))).await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    assert_eq!(stdout.len(), LOG_BYTES_MAX);
    assert_eq!(mark, Some(total - LOG_BYTES_MAX as u64));
    assert_eq!(mark, Some(ending.output.dropped));
    assert_eq!(ending.output.stdout.total, total);
    assert!(!ending.output.stdout.is_whole());
    assert_eq!(ending.output.stdout.bytes.len(), 1024 * 1024);
}

#[tokio::test]
async fn endless_line_does_not_hold_up_the_timeout() {
    let timeout = Some(Duration::from_millis(500));
    // Less than a busy machine prints in that time.
    let limits = OutputLimits { log_bytes_max: 64 * 1024, result_bytes_max: 1024 };
    let endless = shell("exec tr '\\0' x < /dev/zero");
    let (ending, stdout, _, mark) = run(AttemptSpec { timeout, limits, ..endless }).await;
    assert_eq!(ending.kind, EndKind::TimedOut);
    assert!(stdout.len() <= limits.log_bytes_max);
    assert!(ending.output.dropped > 0 && mark == Some(ending.output.dropped));
    assert!(ending.duration < Duration::from_secs(5), "{:?}", ending.duration);
}

#[tokio::test]
async fn binary_output_is_kept_as_it_is() {
    let (_, stdout, ..) = run(shell(r"printf '\000\377\200\n\r\033'")).await;
    assert_eq!(stdout, b"\x00\xff\x80\n\r\x1b");
}

#[tokio::test]
async fn result_keeps_the_end_of_what_was_written() {
    let limits = OutputLimits { log_bytes_max: 4, result_bytes_max: 6 };
    let (ending, stdout, _, mark) = run(AttemptSpec { limits, ..shell("printf 0123456789") }).await;
    assert_eq!(stdout, b"0123");
    assert_eq!(
        (ending.output.stdout.bytes.as_slice(), ending.output.stdout.total),
        (&b"456789"[..], 10)
    );
    assert_eq!(mark, Some(6));
}

#[tokio::test]
async fn reader_that_never_reads_does_not_hold_up_the_timeout() {
    let timeout = Some(Duration::from_millis(300));
    let mut attempt = Attempt::spawn(AttemptSpec { timeout, ..shell("exec cat /dev/zero") });
    let output = attempt.take_output();
    let ending = attempt.finished().await;
    assert_eq!(ending.kind, EndKind::TimedOut);
    assert!(ending.tree_empty && !ending.output.cut);
    drop(output);
}

#[tokio::test]
async fn reader_that_comes_late_holds_nothing_back_and_finds_everything() {
    // Far more than a pipe holds, on both streams, and the end of each says that it is one.
    let script = "for i in 1 2 3; do head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; done
        echo out-end; echo err-end >&2";
    let mut attempt = Attempt::spawn(shell(script));
    let mut output = attempt.take_output().unwrap();
    let ending = attempt.finished().await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    assert!(ending.output.stdout.bytes.ends_with(b"out-end\n"));
    assert!(ending.output.stderr.bytes.ends_with(b"err-end\n"));
    assert!(!ending.output.cut && ending.output.dropped == 0);
    let mut bytes = 0;
    while let Some(piece) = output.recv().await {
        let Output::Chunk { bytes: chunk, .. } = piece else { panic!("nothing was dropped") };
        bytes += chunk.len();
    }
    assert_eq!(bytes, 6_000_016);
}

// What was still written then was missing from the log without a word.
#[tokio::test]
async fn stream_that_someone_else_holds_open_is_marked_as_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("holder");
    // A process outside of the attempt opens the job's own standard output, and keeps it.
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; echo out; while [ ! -e {0}.held ]; do sleep 0.05; done",
        said.display()
    );
    let mut attempt =
        Attempt::spawn(AttemptSpec { containment: Containment::Subreaper, ..shell(&script) });
    let mut output = attempt.take_output().unwrap();
    let holder = async {
        let pid = loop {
            match std::fs::read_to_string(&said) {
                Ok(pid) => break pid,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let held =
            std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/fd/1", pid.trim()));
        std::fs::write(said.with_extension("held"), "").unwrap();
        held.unwrap()
    };
    let (ending, _held) = tokio::join!(attempt.finished(), holder);
    assert!(ending.output.stdout.cut && !ending.output.stderr.cut, "{ending:?}");
    let mut pieces = Vec::new();
    while let Some(piece) = output.recv().await {
        pieces.push(piece);
    }
    assert_eq!(pieces.last(), Some(&Output::GivenUp { stream: Stream::Stdout }), "{pieces:?}");
}

#[test]
fn output_whose_reading_was_given_up_is_not_called_whole() {
    let cut = Captured { bytes: b"out".to_vec(), total: 3, cut: true };
    assert!(!cut.is_whole());
    assert!(Captured { cut: false, ..cut }.is_whole());
}

#[tokio::test]
async fn output_that_nobody_wants_does_not_hold_the_job_up() {
    let ending = Attempt::spawn(shell("head -c 5000000 /dev/zero")).finished().await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    assert_eq!(ending.output.stdout.total, 5_000_000);
}
