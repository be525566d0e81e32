use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use outlast_packs::PackSet;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::{ResolvedSecrets, SecretError, Secrets};

const WISHES: &str = "secrets: {API_KEY: , CERT: {as: file, from: tls.crt}}\n";

/// Gathers the secrets of an action that wishes for these, from `folder`.
fn resolve(folder: &Path, wishes: &str) -> Result<ResolvedSecrets, SecretError> {
    let packs = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = packs.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("demo/pack.yaml", "ref: demo\n");
    put("demo/actions/it.sh", "");
    put("demo/actions/it.yaml", &format!("runner_type: shell\nentry_point: it.sh\n{wishes}"));
    let set = PackSet::load(&[packs.path().to_owned()]).unwrap();
    Secrets::new(Some(folder.to_owned())).resolve(set.get("demo.it").unwrap())
}

fn folder(mode: u32) -> TempDir {
    // Not on a file system in memory, where other rules hold.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    for (name, text) in [("API_KEY", "sesame\n"), ("tls.crt", "-----BEGIN\n")] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    folder
}

#[test]
fn secrets_come_as_variable_or_file() {
    for mode in [0o400, 0o440, 0o600] {
        let found = resolve(folder(mode).path(), WISHES).unwrap();
        assert_eq!(found.variables, [("API_KEY".to_owned(), "sesame".to_owned())]);
        assert_eq!(found.files, [("CERT_FILE".to_owned(), b"-----BEGIN\n".to_vec())]);
        assert_eq!(format!("{found:?}"), "ResolvedSecrets(1 variables, 1 files)");
    }
}

#[test]
fn what_others_may_read_or_change_is_refused_with_what_would_be_right() {
    for (mode, part) in [(0o644, "read by everybody"), (0o660, "changed by others")] {
        let error = resolve(folder(mode).path(), WISHES).unwrap_err().to_string();
        assert!(error.contains("`API_KEY`") && error.contains(part), "{error}");
        assert!(error.contains("chmod 400"), "{error}");
    }
}

#[test]
fn files_of_kubernetes_are_links_to_a_hidden_folder() {
    let folder = folder(0o400);
    let data = folder.path().join("..2026_11_21");
    fs::create_dir(&data).unwrap();
    fs::rename(folder.path().join("API_KEY"), data.join("API_KEY")).unwrap();
    symlink("..2026_11_21", folder.path().join("..data")).unwrap();
    symlink("..data/API_KEY", folder.path().join("API_KEY")).unwrap();
    assert!(resolve(folder.path(), WISHES).is_ok());
    // A link that leads out of the folder is not followed.
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::remove_file(folder.path().join("API_KEY")).unwrap();
    symlink(outside.path(), folder.path().join("API_KEY")).unwrap();
    let error = resolve(folder.path(), WISHES).unwrap_err().to_string();
    assert!(error.contains("leads out of the folder"), "{error}");
}

#[test]
fn a_file_in_memory_may_be_readable_by_all_as_kubernetes_and_docker_leave_it() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(folder.path().join("API_KEY"), "sesame").unwrap();
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(folder.path().join("API_KEY"), mode).unwrap();
    assert!(resolve(folder.path(), "secrets: {API_KEY: }\n").is_ok());
}

/// Opening it would wait for a writer.
#[test]
fn a_pipe_is_no_secret_and_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("API_KEY");
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let error = resolve(folder.path(), "secrets: {API_KEY: }\n").unwrap_err().to_string();
    assert!(error.contains("is no plain file"), "{error}");
}

#[test]
fn a_missing_secret_is_named() {
    let error = resolve(folder(0o400).path(), "secrets: {OTHER: {as: env}}\n").unwrap_err();
    assert!(error.to_string().starts_with("secret `OTHER` is missing: there is no file "));
}
