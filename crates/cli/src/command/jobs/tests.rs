use outlast_cli_core::clock;
use outlast_cli_core::output::Table;
use serde_json::json;

use super::COLUMNS;

#[test]
fn a_usual_list_fits_a_hundred_columns_and_shows_each_status_whole() {
    let hours_ago = (clock::now() - jiff::SignedDuration::from_hours(5)).to_string();
    let job = |status: &str, attempt: u32| {
        json!({"id": "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c", "action_ref": "core.sleep",
            "status": status, "queue": "default", "attempt": attempt, "max_attempts": 3,
            "worker": {"name": "worker-1"}, "created": hours_ago})
    };
    let jobs = [job("completed", 1), job("requested", 0)];
    let shown = Table::of(&jobs, COLUMNS).fit(None).to_string();
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert!(!shown.contains("WAIT"), "nothing waits: {shown}");
    let piped = Table::for_pipe(&jobs, COLUMNS).to_string();
    assert!(piped.contains("WAIT"), "{piped}");
    let narrow = Table::of(&jobs, COLUMNS).fit(Some(60)).to_string();
    assert!(narrow.contains("completed") && narrow.contains("requested"), "{narrow}");
}
