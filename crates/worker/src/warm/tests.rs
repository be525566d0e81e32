use super::*;

fn key() -> WarmKey {
    WarmKey {
        pack: "demo".to_owned(),
        digest: "one".into(),
        program: "/usr/bin/python3".into(),
        options: vec!["-u".to_owned()],
        environment: None,
        preload: vec!["json".to_owned()],
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
    let before = key();
    assert!(!before.replaces(&before));
    assert!(WarmKey { digest: "two".into(), ..key() }.replaces(&before));
    assert!(WarmKey { environment: Some("/venv".into()), ..key() }.replaces(&before));
    assert!(WarmKey { program: "/venv/bin/python".into(), ..key() }.replaces(&before));
    let other = [
        WarmKey { pack: "other".to_owned(), ..key() },
        WarmKey { preload: Vec::new(), ..key() },
        WarmKey { folder: "/demo/more".into(), ..key() },
        WarmKey { variables: vec![variable("A", "1")], ..key() },
    ];
    for other in other {
        assert!(!other.replaces(&before), "both are used: {other:?}");
    }
}

#[test]
fn a_variable_that_interpreters_read_at_their_start_must_have_been_there() {
    let at_start = [variable("LANG", "C.UTF-8"), variable("PYTHONHASHSEED", "0")];
    let of = |name, value| read_at_start(&at_start, &[variable(name, value)]).map(str::to_owned);
    assert_eq!(of("OUTLAST_JOB_ID", "7"), None);
    assert_eq!(of("LANG", "C.UTF-8"), None);
    assert_eq!(of("PYTHONHASHSEED", "0"), None);
    for (name, value) in
        [("PYTHONHASHSEED", "1"), ("PYTHONPATH", "/x"), ("LANG", "C"), ("TZ", "UTC")]
    {
        assert_eq!(of(name, value).as_deref(), Some(name));
    }
}

#[test]
fn attempts_that_no_pid_namespace_holds_are_executed() {
    let processes = WarmProcesses::new(OwnProgram::at("/bin/false"), "/attempts");
    for containment in [Containment::Cgroup, Containment::Subreaper] {
        let request = WarmRequest {
            key: key(),
            environment: None,
            script: "it.py".to_owned(),
            variables: &[],
            containment,
            hidden: Vec::new(),
        };
        assert!(processes.find(request).is_none());
        assert!(processes.lock().entries.is_empty(), "none is started");
        let why = format!("jobs are held by {containment}");
        assert!(processes.lock().said.iter().any(|(_, said)| said.contains(&why)));
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
