//! The examples of `docs/use/packs.md`, taken from the page and run.

use std::fs;
use std::path::Path;

use outlast_packs::PackSet;
use serde_json::json;

use crate::fixture::run;

/// Writes every block that is marked with a file's name below `folder`.
fn write_examples(folder: &Path) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/packs.md");
    let page = fs::read_to_string(page).unwrap();
    for block in page.split("\n```").filter(|block| block.contains(" file=")) {
        let (head, text) = block.split_once('\n').unwrap();
        let (_, name) = head.split_once(" file=").unwrap();
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
}

#[test]
fn examples_of_the_documentation_run_and_have_no_notes() {
    let folder = tempfile::tempdir().unwrap();
    write_examples(folder.path());
    let set = PackSet::load(&[folder.path().join("packs")]).unwrap();
    assert_eq!(set.packs().flat_map(|pack| pack.notes()).next(), None);

    let hello = set.get("greet.hello").unwrap();
    let ran = run(hello, &json!({"name": "Ada \"$HOME\""}));
    assert_eq!(hello.result(&ran.stdout), json!({"stdout": "Hello, Ada \"$HOME\"!"}).to_string());

    let count = set.get("greet.count").unwrap();
    let ran = run(count, &json!({"text": "three short words"}));
    assert_eq!(count.result(&ran.stdout), json!({"words": 3}).to_string());
    assert!(count.check(&json!({"text": "x", "other": 1})).is_err());
}
