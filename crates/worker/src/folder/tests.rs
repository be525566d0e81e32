use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use outlast_core::limits::CHECKPOINT_BYTES_MAX;

use super::{CheckpointError, WorkFolder, unlock};

fn folder(root: &tempfile::TempDir) -> WorkFolder {
    WorkFolder::create(&root.path().join("attempts"), "one").unwrap()
}

#[test]
fn folder_is_private_and_goes_with_the_attempt() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(&root);
    let path = folder.working();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    fs::create_dir(path.join("locked")).unwrap();
    fs::write(path.join("locked/file"), "x").unwrap();
    fs::set_permissions(path.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    folder.remove().unwrap();
    assert!(!path.exists());
}

// Cleaning up by path let a race give rights to a folder elsewhere.
#[test]
fn rights_are_not_given_by_way_of_a_link() {
    let root = tempfile::tempdir().unwrap();
    let (elsewhere, link) = (root.path().join("elsewhere"), root.path().join("link"));
    fs::create_dir(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o500)).unwrap();
    symlink(&elsewhere, &link).unwrap();
    fs::create_dir_all(root.path().join("opened/below")).unwrap();
    fs::set_permissions(root.path().join("opened/below"), fs::Permissions::from_mode(0o000))
        .unwrap();
    symlink(&elsewhere, root.path().join("opened/link")).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    unlock(&link);
    unlock(&root.path().join("opened"));
    assert_eq!(mode(&elsewhere), 0o500);
    assert_eq!(mode(&root.path().join("opened/below")), 0o700);
}

#[test]
fn second_attempt_under_the_same_name_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let _first = folder(&root);
    assert!(WorkFolder::create(&root.path().join("attempts"), "one").is_err());
}

#[test]
fn parameters_are_readable_by_the_owner_only() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(&root);
    let path = folder.write_parameters(b"{}").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read(path).unwrap(), b"{}");
}

#[test]
fn checkpoint_is_handed_on_and_read_back() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(&root);
    assert!(folder.read_checkpoint().unwrap().is_none());
    folder.write_checkpoint(b"row 7").unwrap();
    assert_eq!(folder.read_checkpoint().unwrap().unwrap(), b"row 7");
    fs::write(folder.checkpoint(), b"row 8").unwrap();
    assert_eq!(folder.read_checkpoint().unwrap().unwrap(), b"row 8");
}

#[test]
fn checkpoint_beyond_the_limit_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(&root);
    fs::write(folder.checkpoint(), vec![b'x'; CHECKPOINT_BYTES_MAX]).unwrap();
    assert_eq!(folder.read_checkpoint().unwrap().unwrap().len(), CHECKPOINT_BYTES_MAX);
    fs::write(folder.checkpoint(), vec![b'x'; CHECKPOINT_BYTES_MAX + 1]).unwrap();
    assert!(matches!(folder.read_checkpoint(), Err(CheckpointError::TooLarge)));
}

#[test]
fn checkpoint_that_is_a_link_or_a_pipe_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(&root);
    symlink("/etc/passwd", folder.checkpoint()).unwrap();
    assert!(matches!(folder.read_checkpoint(), Err(CheckpointError::NotAFile)));
    fs::remove_file(folder.checkpoint()).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.checkpoint(), mode).unwrap();
    assert!(matches!(folder.read_checkpoint(), Err(CheckpointError::NotAFile)));
}
