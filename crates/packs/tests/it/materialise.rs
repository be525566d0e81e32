//! The built-in pack on disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::thread;

use outlast_packs::{EntryPoint, PackSet};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn built_in_scripts_are_written_private_and_executable() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("made/here");
    let set = PackSet::embedded_core().unwrap();
    set.materialise(&root).unwrap();
    for action in set.actions() {
        let EntryPoint::Embedded { name, bytes } = action.entry_point() else {
            panic!("{} is not built in", action.reference);
        };
        let program = action.program(&root);
        assert_eq!(program.script, root.join(name));
        assert_eq!(program.folder, root.join("core"));
        assert_eq!(fs::read(&program.script).unwrap(), bytes);
        assert_eq!(mode(&program.script), 0o755);
    }
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join("core/actions")), 0o700);
}

#[test]
fn changed_files_are_put_right_and_right_ones_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let set = PackSet::embedded_core().unwrap();
    set.materialise(folder.path()).unwrap();
    let kept = folder.path().join("core/actions/noop.sh");
    let written = fs::metadata(&kept).unwrap().modified().unwrap();
    let echo = folder.path().join("core/actions/echo.sh");
    fs::write(&echo, "#!/bin/sh\necho other\n").unwrap();
    let fail = folder.path().join("core/actions/fail.sh");
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&fail, &elsewhere).unwrap();
    symlink(&elsewhere, &fail).unwrap();

    set.materialise(folder.path()).unwrap();

    assert!(fs::read_to_string(&echo).unwrap().contains("read_parameters"));
    assert!(fs::symlink_metadata(&fail).unwrap().is_file());
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), written);
}

#[test]
fn several_at_once_leave_whole_files_and_no_drafts() {
    let folder = tempfile::tempdir().unwrap();
    let set = PackSet::embedded_core().unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| set.materialise(folder.path()).unwrap());
        }
    });
    let names = fs::read_dir(folder.path().join("core/actions")).unwrap();
    let drafts: Vec<_> = names
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().ends_with(".new"))
        .collect();
    assert_eq!(drafts, Vec::<std::ffi::OsString>::new());
    assert!(set.actions().all(|action| action.program(folder.path()).script.is_file()));
}

#[test]
fn a_folder_that_cannot_be_made_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let fault = PackSet::embedded_core().unwrap().materialise(&file).unwrap_err();
    assert!(fault.to_string().contains("cannot write built-in pack"), "{fault}");
    let link = folder.path().join("link");
    fs::create_dir(folder.path().join("real")).unwrap();
    symlink(folder.path().join("real"), &link).unwrap();
    let fault = PackSet::embedded_core().unwrap().materialise(&link).unwrap_err();
    assert!(fault.to_string().contains("not a folder of its own"), "{fault}");
}
