//! Nothing in the documentation is untrue: its commands are run.

use std::path::{Path, PathBuf};

use outlast_e2e::document::{Block, Session, blocks};
use outlast_e2e::skip;

/// Pages without a command that is run, and why.
const NOTHING_TO_RUN: &[(&str, &str)] = &[
    ("inside/faults.md", "names tests"),
    ("inside/invariants.md", "rules, enforced by the code"),
    ("inside/nightly.md", "written by .ci/nightly"),
    ("inside/roadmap.md", "what is not there yet"),
    ("inside/state-machine.md", "written by a test of the rules"),
    ("operate/postgres.md", "it needs a PostgreSQL"),
    ("reference/cli.md", "written by a test from the definition of the command line"),
    ("reference/glossary.md", "words"),
    ("reference/http.md", "written by a test of the routes"),
    ("use/comparison.md", "about others, with links"),
    ("use/transactional-enqueue.md", "its SQL is run by a test of transactions"),
];

/// The pages whose commands need Python and Node.js.
const PROGRAMS: &[&str] =
    &["use/from-bullmq.md", "use/from-celery.md", "use/languages.md", "use/tutorial.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(page: &Path) -> Result<(), String> {
    let needed = [("python3", "python3"), ("node", "nodejs"), ("npm", "npm")];
    if PROGRAMS.contains(&&*name(page))
        && !needed.iter().all(|(it, package)| skip::has(it, package))
    {
        return Ok(());
    }
    let text = std::fs::read_to_string(page).expect("a page");
    Session::run(&text).map_err(|fault| format!("{}, {fault}", name(page)))
}

#[test]
fn the_readme_is_true() {
    let page = root().join("README.md");
    let text = std::fs::read_to_string(&page).expect("the README");
    assert!(blocks(&text).len() > 5, "the README shows commands that are run");
    run(&page).unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn the_pages_in_docs_are_true() {
    // Pages mostly wait, and know nothing of each other.
    let pages = pages();
    let faults: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = pages.iter().map(|page| scope.spawn(|| run(page).err())).collect();
        runs.into_iter().filter_map(|run| run.join().expect("a page ends")).collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// The pages for users, operators and contributors.
fn pages() -> Vec<PathBuf> {
    pages_in(&["use", "operate", "reference", "inside"])
}

fn pages_in(folders: &[&str]) -> Vec<PathBuf> {
    let folders = folders.iter().map(|folder| root().join("docs").join(folder));
    let entries = folders.flat_map(|folder| std::fs::read_dir(folder).expect("a folder of pages"));
    let mut pages: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    pages
}

/// A page below `docs`, such as `use/guide.md`.
fn name(page: &Path) -> String {
    let below = page.strip_prefix(root().join("docs")).unwrap_or(page);
    below.to_string_lossy().into_owned()
}

#[test]
fn every_page_is_in_the_folder_of_its_readers() {
    let loose: Vec<String> = pages_in(&["."]).iter().map(|page| name(page)).collect();
    assert_eq!(loose, Vec::<String>::new());
}

#[test]
fn a_page_without_commands_is_known_for_it() {
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let runs = blocks(&text).iter().any(|block| matches!(block, Block::Step(_)));
        let name = name(&page);
        let excused = NOTHING_TO_RUN.iter().any(|(known, _)| *known == name);
        assert_ne!(runs, excused, "{name}: show a command, or name it in NOTHING_TO_RUN with why");
    }
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut pages = pages();
    pages.extend(pages_in(&["adr"]));
    let top = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md"];
    pages.extend(
        top.into_iter()
            .chain(["crates/sdk/README.md", "clients/python/README.md", "clients/node/README.md"])
            .map(|name| root().join(name)),
    );
    let mut dead = Vec::new();
    for page in &pages {
        let text = std::fs::read_to_string(page).expect("a page");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            if !leads_somewhere(page, link) {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_eq!(dead, Vec::<String>::new());
}

/// Returns whether the file of a link exists, and its heading if the link names one.
fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        _ => page.parent().expect("a folder").join(path),
    };
    if heading.is_empty() {
        return target.exists();
    }
    let text = std::fs::read_to_string(target).unwrap_or_default();
    text.lines().any(|line| line.starts_with('#') && anchor(line) == heading)
}

/// The name that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn a_page_that_lies_is_found_out() {
    let lies = [
        ("```console\n$ outlast jobs show nonsense\n```\n", "ended with"),
        ("```console\n$ outlast --version\nsomething else\n```\n", "does not print"),
        ("```console\n$ rm -rf x\n```\n", "is not run"),
        ("\n```sh\nrm -rf x\n```\n", "and the reason"),
    ];
    for (page, why) in lies {
        let fault = Session::run(page).expect_err("it lies");
        assert!(fault.contains(why) && fault.starts_with("line 2"), "{fault}");
    }
}
