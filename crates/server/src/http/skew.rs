//! Which workers have other files of a pack than this server, which validates parameters with its own.

use std::collections::BTreeMap;

use outlast_core::labels::short_digest;
use outlast_packs::{Pack, PackSet};
use outlast_store::command::WorkerRole;
use outlast_store::record::WorkerRecord;
use outlast_wire::json::Object;
use serde::Deserialize;

/// Most workers that are named for a pack.
const NAMED_MAX: usize = 50;

/// The packs of a worker, as it says.
#[derive(Debug, Default, Deserialize)]
struct About {
    #[serde(default)]
    packs: BTreeMap<String, PackOfWorker>,
    #[serde(default)]
    lacking: BTreeMap<String, String>,
}

/// One pack of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct PackOfWorker {
    digest: String,
    version: Option<String>,
}

/// Which workers have a pack, and as which files.
#[derive(Debug, Default)]
pub(super) struct Spread<'a> {
    /// How many have the same files as this server.
    same: usize,
    /// Those that have others.
    other: Vec<(&'a str, PackOfWorker)>,
    /// How many do not have it.
    without: usize,
}

/// Live workers that run actions and say which packs they have.
#[derive(Debug)]
pub(super) struct Fleet<'a>(Vec<(&'a str, About)>);

impl<'a> Fleet<'a> {
    pub(super) fn of(workers: &'a [WorkerRecord]) -> Self {
        let says = |worker: &'a WorkerRecord| Some((worker.name.as_str(), about(worker)?));
        Self(workers.iter().filter_map(says).collect())
    }

    /// Returns which workers have a pack.
    pub(super) fn spread(&self, pack: &Pack) -> Spread<'a> {
        let mut spread = Spread::default();
        for (name, about) in &self.0 {
            match about.packs.get(&pack.reference) {
                None => spread.without += 1,
                Some(theirs) if theirs.digest == pack.digest => spread.same += 1,
                Some(theirs) => spread.other.push((name, theirs.clone())),
            }
        }
        spread
    }

    /// Says of each worker what it has otherwise than this server, and what it lacks.
    pub(super) fn words(&self, packs: &PackSet) -> Vec<String> {
        let each = |(name, about): &(&str, About)| {
            let words = skew_of(about, packs);
            words.into_iter().map(|words| format!("{name} {words}")).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(each).take(NAMED_MAX).collect()
    }
}

impl Spread<'_> {
    /// Writes it.
    pub(super) fn write(&self, object: &mut Object<'_>) {
        object.number("same", self.same);
        object.number("without", self.without);
        object.array("other", self.other.iter().take(NAMED_MAX), |out, (worker, pack)| {
            let mut object = Object::begin(out);
            object.text("worker", worker);
            object.text_or_null("version", pack.version.as_deref());
            object.text("digest", &pack.digest);
            object.end();
        });
    }
}

/// Returns what a worker has otherwise than this server, and what it lacks, in words.
pub(super) fn of_worker(worker: &WorkerRecord, packs: &PackSet) -> Vec<String> {
    about(worker).map(|about| skew_of(&about, packs)).unwrap_or_default()
}

fn about(worker: &WorkerRecord) -> Option<About> {
    let is_alive = worker.role == WorkerRole::Action && worker.standing.holds_lease();
    // One of a build that says nothing of its packs has none to compare.
    let about: About = serde_json::from_str(&worker.about).ok().filter(|_| is_alive)?;
    (!about.packs.is_empty()).then_some(about)
}

fn skew_of(about: &About, packs: &PackSet) -> Vec<String> {
    let mut words = Vec::new();
    for pack in packs.packs() {
        let name = &pack.reference;
        match about.packs.get(name) {
            Some(theirs) if theirs.digest != pack.digest => words.push(format!(
                "runs {name} {}, validated with {}",
                version(theirs.version.as_deref(), &theirs.digest),
                version(pack.version.as_deref(), &pack.digest)
            )),
            Some(_) => {}
            None => words.push(format!("has no pack {name}")),
        }
    }
    for name in about.packs.keys().filter(|name| packs.packs().all(|it| it.reference != **name)) {
        words.push(format!("has pack {name}, which this server has not"));
    }
    words.extend(about.lacking.iter().map(|(action, what)| format!("lacks {what} for {action}")));
    words.truncate(NAMED_MAX);
    words
}

/// `1.3 (12a60748f371)`, or the digest alone.
fn version(version: Option<&str>, digest: &str) -> String {
    let digest = short_digest(digest);
    version.map_or_else(|| digest.to_owned(), |version| format!("{version} ({digest})"))
}
