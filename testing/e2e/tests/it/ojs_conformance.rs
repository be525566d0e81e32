//! The public conformance cases of the levels that are served.

use outlast_e2e::conformance::{Level, Runner, read_level, suites_dir};
use outlast_e2e::{Scene, ServerOptions, skip};

fn check(level: &str) {
    check_those(level, "");
}

/// Plays the cases of a level whose ids begin so.
fn check_those(level: &str, ids: &str) {
    let level = Level::new(level);
    let suites = match suites_dir() {
        Ok(suites) => suites,
        Err(missing) => {
            return skip::for_want_of(&format!("the cases of {}: {missing:#}", level.folder()));
        }
    };
    // The times of the cases are those of the defaults, so nothing is shortened here.
    let scene = Scene::with(ServerOptions::bare().argument("--conformance"));
    let mut cases = read_level(&suites, &level).unwrap();
    cases.retain(|case| case.test_id.starts_with(ids));
    assert!(!cases.is_empty(), "no case begins with {ids}");
    let runner = Runner::new(scene.api().url()).unwrap();
    let tally = runner.play_all(&cases, |report| println!("{report}")).unwrap();
    println!("{}: {tally}", level.folder());
    assert_eq!(tally.failed(), 0, "{tally}; each is printed above");
    assert_eq!(tally.reports.len(), cases.len());
}

#[test]
fn level_0_core() {
    check("0");
}

#[test]
fn level_1_reliable() {
    check("1");
}

#[test]
fn unique_jobs_of_level_4() {
    check_those("4", "L4-UNIQ");
}
