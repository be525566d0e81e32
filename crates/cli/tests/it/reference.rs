//! What is made of the command line: completion and manual.

use std::process::{Command, Stdio};

use crate::outlast;

#[test]
fn every_shell_gets_a_completion_that_knows_our_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let said = outlast(&["completions", shell]);
        assert_eq!(said.code, 0, "{}", said.err);
        for word in ["dead-letters", "purge", "follow"] {
            assert!(said.out.contains(word), "{shell} does not know {word}");
        }
    }
    assert_eq!(outlast(&["completions", "csh"]).code, 2);
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
