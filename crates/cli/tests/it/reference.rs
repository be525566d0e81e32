//! What is made of the command line: completion and manual.

use std::process::{Command, Stdio};

use crate::stub::Stub;
use crate::{outlast, outlast_with};

/// What bash offers for the last of these words, beside flags.
fn offered(words: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let last = (words.len() - 1).to_string();
    let bash = [("_OUTLAST_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", &last)];
    let more = [("_CLAP_IFS", "\n"), ("_CLAP_COMPLETE_COMP_TYPE", "9")];
    let said = outlast_with(&[&["--"], words].concat(), &[&bash, &more, variables].concat());
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
    let offered = said.out.lines().map(|line| line.trim().to_owned());
    offered.filter(|word| !word.starts_with('-')).collect()
}

#[test]
fn every_shell_gets_a_completion_that_asks_this_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = outlast(&["completions", shell]);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.out.contains("_OUTLAST_COMPLETE"), "{shell}: {}", said.out);
    }
    assert_eq!(outlast(&["completions", "csh"]).code, 2);
    assert_eq!(offered(&["outlast", "dead-letters", "pu"], &[]), ["purge"]);
}

#[test]
fn names_and_ids_of_the_server_are_offered() {
    let server = Stub::routes(&[
        ("GET /api/v1/actions", r#"{"data": [{"ref": "mail.send"}, {"ref": "core.echo"}]}"#),
        ("GET /api/v1/queues", r#"{"data": [{"name": "mail"}, {"name": "slow"}]}"#),
        ("GET /api/v1/workers", r#"{"data": [{"id": "01aa", "name": "atlas"}]}"#),
        ("GET /api/v1/executions", r#"{"data": [{"id": "01bb"}, {"id": "02cc"}]}"#),
        ("GET /ojs/v1/dead-letter", r#"{"jobs": [{"id": "03dd"}]}"#),
    ]);
    let environment = [("OUTLAST_SERVER", server.url.as_str())];
    for (words, expected) in [
        (&["outlast", "run", "mail"][..], &["mail.send"][..]),
        (&["outlast", "queues", "stats", ""], &["mail", "slow"]),
        (&["outlast", "jobs", "list", "--queue", "s"], &["slow"]),
        (&["outlast", "workers", "drain", "at"], &["atlas"]),
        (&["outlast", "workers", "show", "01"], &["01aa"]),
        (&["outlast", "jobs", "cancel", "01bb", "02"], &["02cc"]),
        (&["outlast", "dead-letters", "show", "0"], &["03dd"]),
    ] {
        assert_eq!(offered(words, &environment), expected, "{words:?}");
    }
    let named = ["outlast", "jobs", "show", "--server", &server.url, "--token", "hush", "01"];
    assert_eq!(offered(&named, &[]), ["01bb"]);
    assert_eq!(server.asked().pop().unwrap().token.as_deref(), Some("Bearer hush"));
}

#[test]
fn a_server_that_does_not_answer_offers_nothing_soon_and_says_nothing() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for server in [&url, "http://127.0.0.1:1", "nonsense://"] {
        let environment = [("OUTLAST_SERVER", server)];
        assert_eq!(offered(&["outlast", "jobs", "show", "0"], &environment), [""; 0]);
    }
}

#[test]
fn bash_can_read_its_completion() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("outlast.bash");
    std::fs::write(&script, outlast(&["completions", "bash"]).out).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the shell judges its script")]
    let checked = Command::new("bash")
        .args(["-c", ". \"$0\" && complete -p outlast"])
        .arg(&script)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    let said = outlast(&["man", "--dir", pages.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.err);
    for page in ["outlast", "outlast-jobs-list", "outlast-dead-letters-purge", "outlast-doctor"] {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    assert!(outlast(&["man"]).out.contains("Exit codes"), "the first page tells exit codes");
    assert_eq!(outlast(&["man", "--dir", "/proc/nowhere"]).code, 1);
}
