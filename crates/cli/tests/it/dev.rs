//! `outlast dev` and what it says when it cannot start.

use crate::outlast;

#[test]
fn port_that_is_taken_is_named_and_nothing_is_left_running() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let said = outlast(&["dev", "--listen", &address, "--data", data.to_str().unwrap()]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("the server did not start"), "{}", said.err);
    assert_eq!(std::fs::read_to_string(data.join(".gitignore")).unwrap(), "*\n");
}

#[test]
fn data_folder_that_cannot_be_made_is_named() {
    let said = outlast(&["dev", "--data", "/proc/nowhere/data"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("/proc/nowhere/data cannot be created"), "{}", said.err);
}

#[test]
fn reason_why_the_server_did_not_start_is_never_lost() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Its end and its last words race to us: often enough to see both come first.
    for _ in 0..10 {
        let given = ["dev", "--listen", "127.0.0.1:0", "--packs", "/nowhere/packs", "--data"];
        let said = outlast(&[&given[..], &[data.to_str().unwrap()]].concat());
        assert_eq!(said.code, 1, "{}", said.err);
        assert!(said.err.contains("/nowhere/packs: cannot find pack folder"), "{}", said.err);
        assert!(said.err.contains("the server did not start"), "{}", said.err);
    }
}
