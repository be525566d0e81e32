use std::path::PathBuf;

use super::{HostEnvironment, JobIdentity, RefusedName};

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn identity() -> JobIdentity {
    JobIdentity {
        job_id: "job-1".to_owned(),
        attempt: 2,
        epoch: 7,
        idempotency_key: "key-1".to_owned(),
        checkpoint: PathBuf::from("/tmp/folder/checkpoint"),
    }
}

fn value<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut found = variables.iter().filter(|(known, _)| known == name).map(|(_, value)| value);
    let first = found.next();
    assert!(found.next().is_none(), "{name} is set twice");
    first.map(String::as_str)
}

#[test]
fn secrets_of_the_worker_stay_with_the_worker() {
    let host = HostEnvironment::allowed_of(pairs(&[
        ("PATH", "/bin"),
        ("LC_ALL", "C.UTF-8"),
        ("OUTLAST_TOKEN", "secret"),
        ("OJS_AUTH_TOKEN", "secret"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ]));
    let variables = host.for_job(&identity(), &[]).unwrap();
    assert!(variables.iter().all(|(_, value)| value != "secret"), "{variables:?}");
    assert_eq!(value(&variables, "LC_ALL"), Some("C.UTF-8"));
}

#[test]
fn job_is_told_who_it_is() {
    let variables = HostEnvironment::allowed_of([]).for_job(&identity(), &[]).unwrap();
    assert_eq!(value(&variables, "OUTLAST_JOB_ID"), Some("job-1"));
    assert_eq!(value(&variables, "ATTUNE_EXEC_ID"), Some("job-1"));
    assert_eq!(value(&variables, "OUTLAST_ATTEMPT"), Some("2"));
    assert_eq!(value(&variables, "OUTLAST_EPOCH"), Some("7"));
    assert_eq!(value(&variables, "OUTLAST_IDEMPOTENCY_KEY"), Some("key-1"));
    assert_eq!(value(&variables, "OUTLAST_CHECKPOINT"), Some("/tmp/folder/checkpoint"));
}

#[test]
fn worker_without_path_still_gives_jobs_one() {
    assert!(HostEnvironment::allowed_of([]).path().contains("/bin"));
}

#[test]
fn delivered_names_cannot_replace_ours_or_load_code() {
    let host = HostEnvironment::allowed_of([]);
    let refusal =
        |name: &str, value: &str| host.for_job(&identity(), &pairs(&[(name, value)])).unwrap_err();
    assert_eq!(refusal("PATH", "/evil"), RefusedName::Reserved("PATH".to_owned()));
    assert_eq!(refusal("OUTLAST_EPOCH", "9"), RefusedName::Reserved("OUTLAST_EPOCH".to_owned()));
    assert_eq!(refusal("LD_PRELOAD", "x.so"), RefusedName::Loader("LD_PRELOAD".to_owned()));
    assert_eq!(refusal("", "x"), RefusedName::Malformed(String::new()));
    assert_eq!(refusal("a=b", "x"), RefusedName::Malformed("a=b".to_owned()));
    assert_eq!(refusal("a", "x\0y"), RefusedName::Malformed("a".to_owned()));
    let delivered = pairs(&[("MESSAGE", "hi there\n$HOME")]);
    let variables = host.for_job(&identity(), &delivered).unwrap();
    assert_eq!(value(&variables, "MESSAGE"), Some("hi there\n$HOME"));
}

#[test]
fn the_operator_lets_more_through_but_never_what_is_the_workers() {
    let pairs = ["HTTP_PROXY", "AWS_REGION", "AWS_PROFILE", "OUTLAST_TOKEN", "OTHER"];
    let pairs = pairs.map(|name| (name.to_owned(), "x".to_owned()));
    let let_through = ["HTTP_PROXY", "AWS_*", "OUTLAST_*", "OJS_*"].map(str::to_owned);
    let host = HostEnvironment::allowed_of([]).also(pairs, &let_through);
    let names: Vec<&str> = host.kept.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["PATH", "HTTP_PROXY", "AWS_REGION", "AWS_PROFILE"]);
}
