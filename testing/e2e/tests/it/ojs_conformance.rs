//! The public conformance cases of the levels that are served.

use outlast_e2e::conformance::{Level, Runner, read_level, suites_dir};
use outlast_e2e::{Scene, ServerOptions, skip};

fn check(level: &str) {
    check_those(level, "");
}

/// Plays the cases of a level whose ids begin so.
fn check_those(level: &str, ids: &str) {
    check_each(level, |id| id.starts_with(ids));
}

/// Plays the cases of a level with these ids.
fn check_each(level: &str, is_wanted: impl Fn(&str) -> bool) {
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
    cases.retain(|case| is_wanted(&case.test_id));
    assert!(!cases.is_empty(), "there are no such cases");
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

/// These wait for a minute or two of the clock, so they are played side by side.
const SLOW: [&str; 2] = ["L2-CRON-004", "L2-CRON-005"];

#[test]
fn level_2_scheduled() {
    check_each("2", |id| !SLOW.contains(&id));
}

#[test]
fn level_2_cron_fires() {
    check_those("2", SLOW[0]);
}

#[test]
fn level_2_cron_overlap() {
    check_those("2", SLOW[1]);
}

#[test]
fn level_3_workflows() {
    check("3");
}

#[test]
fn unique_jobs_of_level_4() {
    check_those("4", "L4-UNIQ");
}
