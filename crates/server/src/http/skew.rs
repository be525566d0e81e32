//! Which workers have other files of a pack than this server, which validates parameters with its own.

use std::collections::BTreeMap;

use outlast_core::labels::{POOL, short_digest};
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
    /// What it runs in stale environments, in words.
    #[serde(default)]
    stale: Vec<String>,
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

/// A worker that runs actions and says which packs it has.
#[derive(Debug)]
struct Member<'a> {
    name: &'a str,
    pool: Option<&'a str>,
    about: About,
}

/// All of those that live.
#[derive(Debug)]
pub(super) struct Fleet<'a>(Vec<Member<'a>>);

impl<'a> Fleet<'a> {
    pub(super) fn of(workers: &'a [WorkerRecord]) -> Self {
        let says = |worker: &'a WorkerRecord| {
            let pool = worker.labels.get(POOL).map(String::as_str);
            Some(Member { name: &worker.name, pool, about: about(worker)? })
        };
        Self(workers.iter().filter_map(says).collect())
    }

    /// Returns which workers have a pack.
    pub(super) fn spread(&self, pack: &Pack) -> Spread<'a> {
        let mut spread = Spread::default();
        for Member { name, about, .. } in &self.0 {
            match about.packs.get(&pack.reference) {
                None => spread.without += 1,
                Some(theirs) if theirs.digest == pack.digest => spread.same += 1,
                Some(theirs) => spread.other.push((name, theirs.clone())),
            }
        }
        spread
    }

    /// Says of each worker what it has otherwise than this server, and what it lacks. A pack that no
    /// worker of a pool has is not meant for that pool.
    pub(super) fn words(&self, packs: &PackSet) -> Vec<String> {
        let mut words = Vec::new();
        let names = || packs.packs().map(|pack| pack.reference.as_str());
        for name in names().filter(|_| !self.0.is_empty()) {
            if self.0.iter().all(|member| !member.about.packs.contains_key(name)) {
                words.push(format!("no worker has pack {name}"));
            }
        }
        for member in &self.0 {
            let skew = skew_of(&member.about, packs);
            words.extend(skew.into_iter().map(|words| format!("{} {words}", member.name)));
            for name in names().filter(|name| self.lacks_alone(member, name)) {
                let pool = member.pool.map(|pool| format!(" of pool {pool}")).unwrap_or_default();
                words.push(format!("{} has no pack {name}, and others{pool} have it", member.name));
            }
        }
        words.truncate(NAMED_MAX);
        words
    }

    /// Whether a worker lacks a pack that another one of its pool has.
    fn lacks_alone(&self, member: &Member<'_>, pack: &str) -> bool {
        let has = |other: &Member<'_>| other.about.packs.contains_key(pack);
        !has(member) && self.0.iter().any(|other| other.pool == member.pool && has(other))
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

/// Returns what a worker has otherwise than this server, and what its actions lack, in words.
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
        if let Some(theirs) = about.packs.get(name).filter(|it| it.digest != pack.digest) {
            words.push(format!(
                "runs {name} {}, validated with {}",
                version(theirs.version.as_deref(), &theirs.digest),
                version(pack.version.as_deref(), &pack.digest)
            ));
        }
    }
    for name in about.packs.keys().filter(|name| packs.packs().all(|it| it.reference != **name)) {
        words.push(format!("has pack {name}, which this server has not"));
    }
    words.extend(about.lacking.iter().map(|(action, what)| format!("lacks {what} for {action}")));
    words.extend(about.stale.iter().cloned());
    words.truncate(NAMED_MAX);
    words
}

/// `1.3 (12a60748f371)`, or the digest alone.
fn version(version: Option<&str>, digest: &str) -> String {
    let digest = short_digest(digest);
    version.map_or_else(|| digest.to_owned(), |version| format!("{version} ({digest})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet<'a>(workers: &[(&'a str, Option<&'a str>, &[&str])]) -> Fleet<'a> {
        let core = PackSet::load(&[]).unwrap();
        let digest = &core.packs().next().unwrap().digest;
        let member = |(name, pool, packs): &(&'a str, Option<&'a str>, &[&str])| {
            let of = |pack: &&str| {
                let digest = if *pack == "core" { digest.clone() } else { "x".to_owned() };
                ((*pack).to_owned(), PackOfWorker { digest, version: None })
            };
            let packs = packs.iter().map(of).collect();
            Member { name, pool: *pool, about: About { packs, ..About::default() } }
        };
        Fleet(workers.iter().map(member).collect())
    }

    /// Once each worker of such a pool was said to differ.
    #[test]
    fn a_pack_that_no_worker_of_a_pool_has_is_no_difference() {
        let core = PackSet::load(&[]).unwrap();
        let words =
            |workers: &[(&'static str, Option<&'static str>, &[&str])]| fleet(workers).words(&core);
        let (all, none): (&[&str], &[&str]) = (&["core"], &[]);
        assert!(words(&[]).is_empty());
        assert!(
            words(&[("a", None, all), ("b", Some("gpu"), none), ("c", Some("gpu"), none)])
                .is_empty()
        );
        assert_eq!(
            words(&[("a", None, all), ("b", Some("gpu"), none), ("c", Some("gpu"), all)]),
            ["b has no pack core, and others of pool gpu have it"]
        );
        assert_eq!(
            words(&[("a", None, all), ("b", None, none)]),
            ["b has no pack core, and others have it"]
        );
        assert_eq!(
            words(&[("a", None, none), ("b", Some("gpu"), none)]),
            ["no worker has pack core"]
        );
    }
}
