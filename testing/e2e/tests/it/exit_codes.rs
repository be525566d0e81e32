//! How commands end, against a real server: scripts rely on these numbers.

use std::process::Command;
use std::time::Duration;

use outlast_e2e::binary::outlast;
use outlast_e2e::process::{run_against, run_to_end};
use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Run, Scene};

const NOBODY: &str = "01a1fcae-2ae7-7793-af81-5796e1527985";

#[test]
fn every_exit_code_of_the_contract_is_met() {
    let scene = Scene::start();
    let _worker = scene.worker("one");
    let url = scene.server().url();
    let done = scene.run(Run::action("core.noop"));
    scene.await_status(&done, "completed", within(LEASE));
    let delayed = scene.run(Run::action("core.noop").with("delay", "1h".into()));
    let cases: &[(&[&str], i32)] = &[
        (&["run", "core.echo", "-p", "message=hi", "--wait"], 0),
        (&["jobs", "show", &done], 0),
        (&["workers", "list", "--status", "active"], 0),
        (&["health", "server"], 0),
        (&["run", "core.sleep", "-p", "duration=30", "--wait", "--timeout", "200ms"], 124),
        (&["run", "core.sleep", "-p", "duration=soon"], 2),
        (&["run", "core.echo", "--timeout", "soon"], 2),
        (&["jobs", "list", "--status", "nonsense"], 2),
        (&["workers", "list", "--status", "nonsense"], 2),
        (&["dead-letters", "purge"], 2),
        (&["run", "nobody.knows"], 3),
        (&["run", "nobody.knows", "--any-type", "-p", "a=b", "--queue", "q", "--delay", "1h"], 0),
        (&["run", "nobody.knows", "--any-type", "--wait", "--timeout", "200ms"], 124),
        (&["jobs", "wait", &done], 0),
        (&["jobs", "wait", &delayed, "--timeout", "200ms"], 124),
        (&["jobs", "wait", &delayed, "--timeout", "soon"], 2),
        (&["jobs", "wait", NOBODY], 3),
        (&["jobs", "show", NOBODY], 3),
        (&["jobs", "logs", NOBODY], 3),
        (&["jobs", "list", "--worker", "nobody"], 3),
        (&["workers", "drain", NOBODY], 3),
        (&["queues", "stats", "nobody-knows-it"], 3),
        (&["dead-letters", "show", &done], 3),
        (&["jobs", "cancel", &done], 4),
        (&["jobs", "retry", &done], 4),
        (&["dead-letters", "retry", &done], 4),
        (&["workers", "forget", "one"], 4),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(words, code)| {
            let all = [*words, &["--server", &url]].concat();
            let said = run_to_end(&all, Duration::from_secs(30));
            let wrong = said.code != Some(*code) || (*code != 0 && said.stderr.is_empty());
            wrong.then(|| format!("{words:?}: {:?}, not {code}\n{}", said.code, said.stderr))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // 5 is met in `access`.
    for words in [&["jobs", "list"][..], &["jobs", "wait", &done]] {
        let away = [words, &["--server", "http://127.0.0.1:1"]].concat();
        assert_eq!(run_to_end(&away, Duration::from_secs(30)).code, Some(6));
    }
    let failing = ["run", "core.fail", "--wait", "--server", &url];
    assert_eq!(run_to_end(&failing, Duration::from_secs(60)).code, Some(1));
    let cancelled = run_against(&url, &["jobs", "cancel", &delayed]);
    assert_eq!(cancelled.code, Some(0), "{}", cancelled.stderr);
    let waited = run_against(&url, &["jobs", "wait", &delayed]);
    assert_eq!(waited.code, Some(1), "{}", waited.stderr);
    assert!(waited.stderr.contains(&format!("job {delayed} was cancelled")), "{}", waited.stderr);
    // A reader of its output that goes once made a failed job look like a success.
    let script = format!("\"$0\" {} | true; echo ${{PIPESTATUS[0]}}", failing.join(" "));
    let shell = Command::new("bash").args(["-c", &script]).arg(outlast()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shell.stdout).trim(), "1", "{shell:?}");
}
