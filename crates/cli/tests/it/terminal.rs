//! What a terminal shows, and what a pipe receives.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::stub::Stub;
use crate::{outlast, outlast_with};

const ID: &str = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";
const ERROR: &str =
    "cannot open /srv/in/2026-11-22/orders.csv: no such file or directory, tried 3 times";

/// Runs the binary on a terminal of so many columns; returns what it printed there.
fn on_terminal(columns: u16, args: &[&str], variables: &[(&str, &str)]) -> String {
    let mut terminal = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    let screen = File::options().read(true).write(true).open(path).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_outlast"))
        .args(args)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(screen)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // When the last writer has gone, reading fails; all that was printed has been read by then.
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = terminal.read(&mut piece) {
        shown.extend_from_slice(&piece[..count]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap().replace('\r', "")
}

fn letters() -> Stub {
    let letter = |error: &str| {
        format!(
            r#"{{"id":"{ID}","type":"shop.import","queue":"default","attempt":3,
                "state":"discarded","dead_letter_reason":"exhausted",
                "error":{{"type":"exit_code","message":"{error}"}}}}"#
        )
    };
    let letters = letter(ERROR);
    Stub::always(200, &format!(r#"{{"jobs":[{letters}],"pagination":{{"total":1}}}}"#))
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn an_error_is_whole_in_a_pipe_however_wide_the_terminal_is_said_to_be() {
    let stub = letters();
    for columns in ["40", "4000"] {
        let args = ["dead-letters", "list", "--server", &stub.url];
        let said = outlast_with(&args, &[("COLUMNS", columns)]);
        assert_eq!(said.out.lines().count(), 2, "{}", said.out);
        assert!(said.out.contains(ERROR) && !said.out.contains('…'), "{}", said.out);
    }
}

#[test]
fn an_error_is_wrapped_on_a_terminal_and_below_its_row_on_a_narrow_one() {
    let stub = letters();
    for columns in [200_u16, 130, 80, 60] {
        let shown = on_terminal(columns, &["dead-letters", "list", "--server", &stub.url], &[]);
        let widest = shown.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(usize::from(columns).max(74)), "{shown}");
        // Every word is there, in order, with those of the row before them.
        let error = words(ERROR);
        let mut rest = words(&shown).into_iter();
        assert!(error.iter().all(|word| rest.any(|shown| shown == *word)), "{columns}: {shown}");
        assert!(shown.contains(ID), "{columns}: {shown}");
    }
}

#[test]
fn states_are_coloured_on_a_terminal_only_and_not_if_the_user_wants_none() {
    let job = format!(r#"{{"id":"{ID}","action_ref":"core.fail","status":"failed"}}"#);
    let stub = Stub::always(200, &format!(r#"{{"data":[{job}],"pagination":{{}}}}"#));
    let args = ["jobs", "list", "--server", &stub.url];
    assert!(on_terminal(120, &args, &[]).contains("\x1b[31mfailed\x1b[0m"));
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = on_terminal(120, &args, &[plain]);
        assert!(shown.contains("failed") && !shown.contains('\x1b'), "{plain:?}: {shown}");
    }
    assert!(on_terminal(120, &args, &[("NO_COLOR", "")]).contains("\x1b[31m"));
    assert!(!outlast(&args).out.contains('\x1b'));
}

#[test]
fn verdicts_of_doctor_are_coloured_on_a_terminal() {
    let shown = on_terminal(120, &["doctor", "--server", "http://127.0.0.1:1"], &[]);
    assert!(shown.contains("\x1b[31mfail\x1b[0m"), "{shown}");
    let said = outlast(&["doctor", "--server", "http://127.0.0.1:1"]);
    assert!(!said.out.contains('\x1b') && said.out.contains("fail"), "{}", said.out);
}
