//! What must hold of workflows that have ended, whatever was killed meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use outlast_e2e::judge::verdict;
use serde_json::Value;

use super::{Line, Site, ids};

const TABLES: [&str; 4] = ["workflow_item", "workflow_end", "job_row", "finished"];

/// How a job ended, as the store has it.
#[derive(Clone, Debug)]
struct Ended {
    state: String,
    epoch: u64,
}

/// What the store and the ledger say of the jobs of workflows.
struct Record {
    /// The items of each workflow.
    items: BTreeMap<String, Vec<Value>>,
    /// How each job ended; `None` if it has not.
    jobs: HashMap<String, Option<Ended>>,
    /// The workflow of each job.
    of: HashMap<String, String>,
    ends: usize,
    /// The lines of each job, with their place in the ledger.
    lines: HashMap<String, Vec<(usize, Line)>>,
}

impl Site {
    /// Compares store, API and ledger.
    ///
    /// # Panics
    ///
    /// When anything is wrong; the message names all of it.
    #[track_caller]
    pub(super) fn judge(&self, workflows: &[String]) {
        let record = Record::of(self);
        let mut wrong = Vec::new();
        if record.ends > 0 {
            wrong.push(format!("{} ends were never taken", record.ends));
        }
        for (job, ended) in &record.jobs {
            if ended.is_none() {
                wrong.push(format!("job {job} of {} has not ended", record.of[job]));
            }
        }
        for id in workflows {
            let shown = self.show(id);
            let found = record.wrong_with(id, &shown);
            wrong.extend(found.into_iter().map(|what| format!("{id}: {what}")));
        }
        let of_none = |line: &&Line| !record.of.contains_key(&line.job);
        let stray = self.lines().iter().filter(of_none).count();
        if stray > 0 {
            wrong.push(format!("{stray} lines are of jobs that no workflow has"));
        }
        assert!(wrong.is_empty(), "{}", verdict(&wrong));
    }
}

impl Record {
    fn of(site: &Site) -> Self {
        // What was written before the copy is in it.
        let mut lines: HashMap<String, Vec<(usize, Line)>> = HashMap::new();
        for (at, line) in site.lines().into_iter().enumerate() {
            lines.entry(line.job.clone()).or_default().push((at, line));
        }
        let rows = site.rows(&TABLES);
        let ended = |row: &Value| {
            let ended = Ended {
                state: row["state"].as_str().unwrap_or_default().to_owned(),
                epoch: row["epoch"].as_u64().unwrap_or_default(),
            };
            (row["seq"].as_u64(), ended)
        };
        let finished: HashMap<Option<u64>, Ended> = rows["finished"].iter().map(ended).collect();
        let (mut jobs, mut of) = (HashMap::new(), HashMap::new());
        for row in &rows["job_row"] {
            let extra: Value = serde_json::from_str(word(&row["extra"])).unwrap_or_default();
            if let Some(workflow) = extra["workflow"]["id"].as_str() {
                let id = word(&row["id"]).to_owned();
                jobs.insert(id.clone(), finished.get(&row["seq"].as_u64()).cloned());
                of.insert(id, workflow.to_owned());
            }
        }
        let mut items: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for row in &rows["workflow_item"] {
            items.entry(word(&row["workflow"]).to_owned()).or_default().push(row.clone());
        }
        Self { items, jobs, of, ends: rows["workflow_end"].len(), lines }
    }

    fn wrong_with(&self, id: &str, shown: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        if shown["finished"].is_null() {
            wrong.push(format!("has not ended: {}", shown["status"]));
        }
        let steps = shown["steps"].as_array().cloned().unwrap_or_default();
        let items = self.items.get(id).map_or(&[][..], Vec::as_slice);
        let by_name: BTreeMap<&str, &Value> =
            steps.iter().map(|step| (word(&step["name"]), step)).collect();
        for (at, step) in (0_u64..).zip(&steps) {
            let of_step: Vec<&Value> =
                items.iter().filter(|item| item["step"].as_u64() == Some(at)).collect();
            let found = self.wrong_with_step(step, &of_step);
            let waits = self.began_early(step, &by_name);
            let name = word(&step["name"]);
            wrong.extend(found.into_iter().chain(waits).map(|what| format!("{name}: {what}")));
        }
        let known: BTreeSet<&str> = items.iter().map(|item| word(&item["job"])).collect();
        for (job, of) in &self.of {
            if of == id && !known.contains(job.as_str()) {
                wrong.push(format!("job {job} carries out no item"));
            }
        }
        wrong
    }

    fn wrong_with_step(&self, step: &Value, items: &[&Value]) -> Vec<String> {
        let mut wrong = Vec::new();
        let (status, total) = (word(&step["status"]), step["total"].as_u64().unwrap_or_default());
        if u64::try_from(items.len()).ok() != Some(total) {
            wrong.push(format!("{total} items, and {} rows", items.len()));
        }
        if status == "skipped" && total > 0 || ["waiting", "running"].contains(&status) {
            wrong.push(format!("is {status} in the end"));
        }
        let jobs: BTreeSet<&str> = items.iter().map(|item| word(&item["job"])).collect();
        if jobs.len() != items.len() {
            wrong.push("two items have one job".to_owned());
        }
        for item in items {
            let (state, job) = (word(&item["state"]), word(&item["job"]));
            let Some(Some(ended)) = self.jobs.get(job) else {
                wrong.push(format!("item {} has no job that has ended", item["item"]));
                continue;
            };
            let agree = (state == "completed") == (ended.state == "completed");
            if ["held", "running"].contains(&state) || !agree {
                wrong.push(format!("item {} is {state}, its job {}", item["item"], ended.state));
            }
            wrong.extend(self.wrong_with_job(job, ended));
            let lines = self.lines.get(job).map_or(&[][..], Vec::as_slice);
            if lines.iter().any(|(_, line)| Some(line.item) != item["item"].as_u64()) {
                wrong.push(format!("job {job} of item {} ran another: {lines:?}", item["item"]));
            }
        }
        wrong
    }

    /// The attempt that counts began once and ended once, and none came after it.
    fn wrong_with_job(&self, job: &str, ended: &Ended) -> Vec<String> {
        let lines = self.lines.get(job).map_or(&[][..], Vec::as_slice);
        let count = |event: &str| {
            let is_it =
                |line: &&(usize, Line)| line.1.epoch == ended.epoch && line.1.event == event;
            lines.iter().filter(is_it).count()
        };
        let mut wrong = Vec::new();
        if ended.state == "completed" && (count("begin"), count("end")) != (1, 1) {
            wrong.push(format!("job {job} completed at epoch {}: {lines:?}", ended.epoch));
        }
        if lines.iter().any(|(_, line)| line.epoch > ended.epoch) {
            wrong.push(format!("job {job} ran after its end at epoch {}: {lines:?}", ended.epoch));
        }
        wrong
    }

    /// Compares when a step began with when those before it ended.
    fn began_early(&self, step: &Value, by_name: &BTreeMap<&str, &Value>) -> Option<String> {
        let jobs = ids(step, "job_ids");
        let of_step = jobs.iter().filter_map(|job| self.lines.get(job)).flatten();
        let first = of_step.map(|(at, _)| *at).min()?;
        let before = step["after"].as_array()?.iter().filter_map(|name| by_name.get(word(name)));
        let last = before
            .flat_map(|before| ids(before, "job_ids"))
            .filter_map(|job| self.end_of(&job))
            .max()?;
        (first < last).then(|| format!("began at line {first}, before the end at line {last}"))
    }

    /// Returns where in the ledger the attempt that counts ended.
    fn end_of(&self, job: &str) -> Option<usize> {
        let ended = self.jobs.get(job)?.as_ref()?;
        let of_attempt = |line: &&(usize, Line)| line.1.epoch == ended.epoch;
        self.lines.get(job)?.iter().filter(of_attempt).map(|(at, _)| *at).max()
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
