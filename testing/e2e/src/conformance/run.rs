//! Playing cases against a server.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::assertions;
use super::case::{Case, Step};
use super::context::{Context, Response};
use super::expected;
use crate::authority::trusting_nobody;

const MEDIA_TYPE: &str = "application/openjobspec+json";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const RESET_PATH: &str = "/ojs/v1/admin/reset";

/// Plays cases, one after the other.
#[derive(Debug)]
pub struct Runner {
    url: String,
    client: reqwest::blocking::Client,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything asserted held.
    Passed,
    /// It ran, and asserts nothing.
    AssertedNothing,
    /// Something did not hold: a line each.
    Failed(Vec<String>),
    /// It failed, as the list of expected failures says.
    FailedAsExpected(&'static str),
    /// It passed, though the list of expected failures says it cannot.
    PassedUnexpectedly(&'static str),
}

/// One case and how it ended.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// The case's id and name.
    pub label: String,
    /// How it ended.
    pub verdict: Verdict,
}

/// Reports of many cases.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// In the order they ran.
    pub reports: Vec<CaseReport>,
}

impl Runner {
    /// Prepares to play against the server at `url`.
    ///
    /// # Errors
    ///
    /// When the HTTP client cannot be built.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let client = reqwest::blocking::Client::builder()
            .tls_backend_preconfigured(trusting_nobody())
            .timeout(REQUEST_TIMEOUT)
            .build()?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), client })
    }

    /// Plays cases in order, reporting each as it ends.
    ///
    /// # Errors
    ///
    /// When the server cannot be reset; what is wrong with a case is in its report.
    pub fn play_all(
        &self,
        cases: &[Case],
        mut ended: impl FnMut(&CaseReport),
    ) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        for case in cases {
            self.reset()?;
            let report = CaseReport { label: case.label(), verdict: self.play(case) };
            ended(&report);
            tally.reports.push(report);
        }
        Ok(tally)
    }

    fn reset(&self) -> anyhow::Result<()> {
        let reply = self.client.post(format!("{}{RESET_PATH}", self.url)).send();
        let reply = reply.with_context(|| format!("resetting {}", self.url))?;
        if !reply.status().is_success() {
            bail!("POST {RESET_PATH}: {} (is it running with --conformance?)", reply.status());
        }
        Ok(())
    }

    fn play(&self, case: &Case) -> Verdict {
        let mut context = Context::default();
        let mut failures = Vec::new();
        let setup = case.setup.as_ref().map_or(&[][..], |setup| &setup.steps);
        self.play_steps(setup, &mut context, &mut failures);
        if failures.is_empty() {
            self.play_steps(&case.steps, &mut context, &mut failures);
        }
        let teardown = case.teardown.as_ref().map_or(&[][..], |teardown| &teardown.steps);
        self.play_steps(teardown, &mut context, &mut Vec::new());
        match (failures.is_empty(), expected::reason(&case.test_id)) {
            (true, Some(reason)) => Verdict::PassedUnexpectedly(reason),
            (true, None) if case.asserts_something() => Verdict::Passed,
            (true, None) => Verdict::AssertedNothing,
            (false, Some(reason)) => Verdict::FailedAsExpected(reason),
            (false, None) => Verdict::Failed(failures),
        }
    }

    fn play_steps(&self, steps: &[Step], context: &mut Context, failures: &mut Vec<String>) {
        let mut rest = steps;
        while !rest.is_empty() {
            let together = parallel_run(rest);
            let (group, after) = rest.split_at(together);
            rest = after;
            let before = &*context;
            let outcomes: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> =
                    group.iter().map(|step| scope.spawn(move || self.step(step, before))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a step's thread")).collect()
            });
            for (step, (response, found)) in group.iter().zip(outcomes) {
                let named =
                    |failure| format!("{} {} {}: {failure}", step.id, step.action, step.path);
                failures.extend(found.into_iter().map(named));
                if let Some(response) = response {
                    context.record(&step.id, &response);
                }
            }
        }
    }

    fn step(&self, step: &Step, context: &Context) -> (Option<Response>, Vec<String>) {
        thread::sleep(Duration::from_millis(step.delay_ms));
        let asserted = step.assertions.clone().unwrap_or_default();
        match step.action.as_str() {
            "WAIT" => {
                thread::sleep(Duration::from_millis(step.duration_ms));
                return (None, Vec::new());
            }
            "ASSERT" => return (None, assertions::failures_across(&asserted, context)),
            _ => {}
        }
        let mut failures = Vec::new();
        let mut last = None;
        for _ in 0..step.repeat.unwrap_or(1).max(1) {
            match self.request(step, context) {
                Ok(response) => {
                    failures.extend(assertions::failures(&asserted, &response, context));
                    last = Some(response);
                }
                Err(failure) => failures.push(failure),
            }
        }
        (last, failures)
    }

    fn request(&self, step: &Step, context: &Context) -> Result<Response, String> {
        let method = reqwest::Method::from_bytes(step.action.as_bytes())
            .map_err(|error| error.to_string())?;
        let url = format!("{}{}", self.url, context.fill(&step.path)?);
        let mut request = self.client.request(method, url);
        let body = match (&step.raw_body, &step.body) {
            (Some(raw), _) => Some(raw.clone()),
            (None, Some(body)) => Some(context.fill_body(body)?.to_string()),
            (None, None) => None,
        };
        let typed = step.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type"));
        if body.is_some() && !typed {
            request = request.header("Content-Type", MEDIA_TYPE);
        }
        for (name, value) in &step.headers {
            request = request.header(name, context.fill(value)?);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let started = Instant::now();
        let reply = request.send().map_err(|error| format!("no reply: {error}"))?;
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let status = reply.status().as_u16();
        let mut headers = BTreeMap::new();
        for (name, value) in reply.headers() {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.insert(name.as_str().to_owned(), value);
        }
        let text = reply.text().map_err(|error| format!("reading the reply: {error}"))?;
        let body: Option<Value> = serde_json::from_str(&text).ok();
        Ok(Response { status, headers, text, body, took_ms })
    }
}

/// Counts the steps at the front that are to be sent together.
fn parallel_run(steps: &[Step]) -> usize {
    let together = steps.iter().take_while(|step| step.parallel_with.is_some()).count();
    together.max(1)
}

impl Tally {
    /// Counts the cases that stand as they should.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Passed | Verdict::AssertedNothing))
    }

    /// Counts the cases that do not.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Failed(_) | Verdict::PassedUnexpectedly(_)))
    }

    /// Counts the cases that failed as listed.
    #[must_use]
    pub fn failed_as_expected(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::FailedAsExpected(_)))
    }

    fn count(&self, holds: impl Fn(&Verdict) -> bool) -> usize {
        self.reports.iter().filter(|report| holds(&report.verdict)).count()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed(), self.failed())?;
        let nothing = self.count(|verdict| *verdict == Verdict::AssertedNothing);
        if nothing > 0 {
            write!(formatter, " ({nothing} of the passed assert nothing)")?;
        }
        match self.failed_as_expected() {
            0 => Ok(()),
            known => write!(formatter, ", {known} failed as expected"),
        }
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = &self.label;
        match &self.verdict {
            Verdict::Passed => write!(formatter, "pass  {label}"),
            Verdict::AssertedNothing => write!(formatter, "pass  {label} (asserts nothing)"),
            Verdict::FailedAsExpected(reason) => write!(formatter, "known {label}: {reason}"),
            Verdict::PassedUnexpectedly(reason) => {
                write!(formatter, "FAIL  {label}: passed, though it is listed: {reason}")
            }
            Verdict::Failed(failures) => {
                write!(formatter, "FAIL  {label}")?;
                failures.iter().try_for_each(|failure| write!(formatter, "\n      {failure}"))
            }
        }
    }
}
