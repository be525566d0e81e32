use super::*;

fn key() -> WarmKey {
    WarmKey {
        runtime: Runtime::Python,
        pack: "demo".to_owned(),
        digest: "one".into(),
        program: "/usr/bin/python3".into(),
        options: vec!["-u".to_owned()],
        environment: None,
        preload: vec!["json".to_owned()],
        imports: false,
        folder: "/demo/actions".into(),
        cwd: "/demo".into(),
        variables: Vec::new(),
        idle: Duration::from_secs(60),
    }
}

fn variable(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn one_of_another_digest_or_environment_takes_the_place_of_the_one_before() {
    let before = WarmKey { environment: Some("/venv.1".into()), ..key() };
    assert!(!before.replaces(&before));
    assert!(WarmKey { digest: "two".into(), preload: Vec::new(), ..key() }.replaces(&before));
    assert!(WarmKey { environment: Some("/venv.2".into()), ..key() }.replaces(&before));
}

#[test]
fn actions_of_one_pack_with_other_settings_have_their_own() {
    let before = WarmKey { environment: Some("/venv".into()), ..key() };
    let others = [
        WarmKey { pack: "other".to_owned(), digest: "two".into(), ..key() },
        WarmKey { runtime: Runtime::Node, digest: "two".into(), ..key() },
        WarmKey { preload: Vec::new(), ..key() },
        WarmKey { folder: "/demo/more".into(), ..key() },
        WarmKey { variables: vec![variable("A", "1")], ..key() },
        WarmKey { idle: Duration::from_secs(1), ..key() },
        // Actions that name their interpreter run in no environment.
        WarmKey { program: "/usr/bin/python3.12".into(), environment: None, ..key() },
    ];
    for other in others {
        assert!(!other.replaces(&before) && !before.replaces(&other), "both are used: {other:?}");
    }
}

#[test]
fn a_reason_is_said_once_although_it_is_worded_differently_each_time() {
    let processes = WarmProcesses::new(OwnProgram::at("/bin/false"), "/attempts");
    let start = |module: &str| Topic::Start(vec![module.to_owned()]);
    for address in ["0x7f00", "0x7f10"] {
        processes.say_once(
            "demo",
            start("it"),
            &format!("cannot import it: <object at {address}>"),
        );
    }
    assert_eq!(processes.reasons().len(), 1);
    processes.say_once("demo", start("other"), "cannot import other");
    assert_eq!(processes.reasons().len(), 2, "other modules are another matter");
}

#[test]
fn a_variable_that_interpreters_read_at_their_start_must_have_been_there() {
    let variables = vec![variable("LANG", "C.UTF-8"), variable("PYTHONHASHSEED", "0")];
    let python = WarmKey { variables, ..key() };
    let of = |name, value| read_at_start(&python, &[variable(name, value)]).map(str::to_owned);
    assert_eq!(of("OUTLAST_JOB_ID", "7"), None);
    assert_eq!(of("LANG", "C.UTF-8"), None);
    assert_eq!(of("PYTHONHASHSEED", "0"), None);
    for (name, value) in
        [("PYTHONHASHSEED", "1"), ("PYTHONPATH", "/x"), ("LANG", "C"), ("TZ", "UTC")]
    {
        assert_eq!(of(name, value).as_deref(), Some(name));
    }
    assert_eq!(of("NODE_OPTIONS", "--no-warnings"), None, "that is for others");
    let node = WarmKey { runtime: Runtime::Node, ..python.clone() };
    let options = [variable("PYTHONPATH", "/x"), variable("NODE_OPTIONS", "--no-warnings")];
    assert_eq!(read_at_start(&node, &options), Some("NODE_OPTIONS"));
}

#[test]
fn attempts_that_no_pid_namespace_holds_are_executed() {
    let processes = WarmProcesses::new(OwnProgram::at("/bin/false"), "/attempts");
    let ways = [
        (Runtime::Python, Containment::Cgroup, "attempts are forked into"),
        (Runtime::Python, Containment::Subreaper, "attempts are forked into"),
        (Runtime::Node, Containment::Subreaper, "interpreters are started ahead in"),
    ];
    for (runtime, containment, what) in ways {
        let request = WarmRequest {
            key: WarmKey { runtime, ..key() },
            environment: None,
            variables: &[],
            containment,
            hidden: Vec::new(),
        };
        assert!(processes.find(request).is_none());
        assert_eq!(processes.lock().count(), 0, "none is started");
        let why = format!("{what} PID namespaces only, and jobs are held by {containment}");
        assert!(processes.reasons().iter().any(|(_, said)| *said == why));
    }
}

#[test]
fn no_more_are_started_than_there_may_be() {
    let mut table = Table::default();
    let mut add = |number: usize| {
        let mut entry = Entry::new();
        entry.slot.starts();
        table.entries.insert(Arc::new(WarmKey { pack: number.to_string(), ..key() }), entry);
        let is_full = table.is_full_without(&Arc::new(key()));
        (is_full, table.is_full_without(&Arc::new(WarmKey { pack: "0".to_owned(), ..key() })))
    };
    let first: Vec<_> = (0..PROCESSES_MAX - 1).map(&mut add).collect();
    assert!(first.iter().all(|full| *full == (false, false)));
    assert_eq!(add(PROCESSES_MAX - 1), (true, false), "its own does not count");
}
