//! A workflow to be started.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Workflow;
use crate::client::{Client, ClientError, NewJob, Retry, encoded};

/// A workflow that is described step by step: see [`Client::workflow`]. What concerns all of it is
/// said before its first step.
#[derive(Debug)]
#[must_use]
pub struct NewWorkflow {
    start: StartWorkflow,
    definition: Map<String, Value>,
    steps: Vec<Value>,
}

/// A step of a workflow: what is said concerns this step, until [`NewStep::step`] or
/// [`NewStep::then`] begins the next.
#[derive(Debug)]
#[must_use]
pub struct NewStep {
    workflow: NewWorkflow,
    name: String,
    fields: Map<String, Value>,
}

/// A workflow that is about to be started, with what it is given: see [`Client::start_workflow`].
#[derive(Debug)]
#[must_use]
pub struct StartWorkflow {
    client: Client,
    fields: Map<String, Value>,
    idempotency_key: Option<String>,
    /// The first one. Only when it is sent can it be returned.
    error: Option<ClientError>,
}

impl StartWorkflow {
    pub(super) fn of(client: Client, reference: String) -> Self {
        Self::new(client).option("workflow_ref", Value::String(reference))
    }

    fn new(client: Client) -> Self {
        Self { client, fields: Map::new(), idempotency_key: None, error: None }
    }

    /// What it is called. Default: as its pack says.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.option("name", json!(name.into()))
    }

    /// A parameter. Default: as the workflow says.
    pub fn parameter(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        if let Some(value) = self.value("parameter", value) {
            self.entry("parameters", name.into(), value);
        }
        self
    }

    /// Several parameters: a map, or a struct with a field for each.
    pub fn parameters(mut self, parameters: impl Serialize) -> Self {
        match self.value("parameters", parameters) {
            Some(Value::Object(parameters)) => {
                for (name, value) in parameters {
                    self.entry("parameters", name, value);
                }
            }
            Some(_) => {
                let problem = "the parameters of a workflow are no names and values".to_owned();
                self.fail(ClientError::usage(problem, "give a map or a struct"));
            }
            None => {}
        }
        self
    }

    /// A label of its jobs, beside the workflow's own.
    pub fn label(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.entry("labels", name.into(), json!(value.to_string()));
        self
    }

    /// A key of its jobs, such as `("tenant", 42)`. It replaces the workflow's own of this name.
    pub fn key(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.entry("keys", name.into(), json!(value.to_string()));
        self
    }

    /// Makes it safe to start the same again: as long as the workflow is kept the same key gives the workflow that
    /// was started first. 1 to 255 printable ASCII characters. Default: one that the client makes
    /// for this call, so that it may repeat the request.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// A field of the request by its name in the API, for those without a method here.
    pub fn option(mut self, name: impl Into<String>, value: Value) -> Self {
        self.fields.insert(name.into(), value);
        self
    }

    /// Starts it. Once this returns, it survives a crash of the server.
    ///
    /// # Errors
    /// When something given cannot be written as JSON, the server refuses the workflow, or it cannot
    /// be reached. Only [`ClientError::Unreachable`] leaves open whether it was started.
    pub async fn start(self) -> Result<Workflow, ClientError> {
        let Self { client, fields, idempotency_key, error } = self;
        match error {
            Some(error) => Err(error),
            None => client.send_workflow(encoded("workflow", &fields)?, idempotency_key).await,
        }
    }

    /// Starts it and waits until it has ended, however it ended, for at most `patience`.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Client::wait_for_workflow`].
    pub async fn run(self, patience: Duration) -> Result<Workflow, ClientError> {
        let client = self.client.clone();
        let started = self.start().await?;
        client.wait_for_workflow(started.id, patience).await
    }

    fn entry(&mut self, field: &str, name: String, value: Value) {
        match self.fields.entry(field).or_insert_with(|| json!({})) {
            Value::Object(entries) => drop(entries.insert(name, value)),
            _ => {
                let problem = format!("`{field}` of the workflow is no object");
                self.fail(ClientError::usage(problem, "set it with an object of names and values"));
            }
        }
    }

    fn value(&mut self, what: &'static str, value: impl Serialize) -> Option<Value> {
        match serde_json::to_value(value) {
            Ok(value) => Some(value),
            Err(source) => {
                self.fail(ClientError::encode(what, source));
                None
            }
        }
    }

    fn fail(&mut self, error: ClientError) {
        self.error.get_or_insert(error);
    }
}

impl NewWorkflow {
    pub(super) fn new(client: Client) -> Self {
        let start = StartWorkflow::new(client);
        Self { start, definition: Map::new(), steps: Vec::new() }
    }

    /// What it is called. Default: nothing.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.option("name", json!(name.into()))
    }

    /// Longest that it may take. Then its jobs are stopped. Default: no limit. In milliseconds.
    pub fn timeout(self, longest: Duration) -> Self {
        self.option("timeout", json!(millis(longest)))
    }

    /// A value that expressions read as `parameters.NAME`.
    pub fn parameter(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        self.start = self.start.parameter(name, value);
        self
    }

    /// A label of its jobs.
    pub fn label(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.start = self.start.label(name, value);
        self
    }

    /// A key of its jobs, such as `("tenant", 42)`.
    pub fn key(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.start = self.start.key(name, value);
        self
    }

    /// As [`StartWorkflow::idempotency_key`].
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.start = self.start.idempotency_key(key);
        self
    }

    /// A key of the workflow by its name in a file, for those without a method here.
    pub fn option(mut self, name: impl Into<String>, value: Value) -> Self {
        self.definition.insert(name.into(), value);
        self
    }

    /// Adds a step. It starts at once unless [`NewStep::after`] names steps before it.
    pub fn step(self, name: impl Into<String>) -> NewStep {
        NewStep { workflow: self, name: name.into(), fields: Map::new() }
    }

    /// Starts it: see [`StartWorkflow::start`].
    ///
    /// # Errors
    /// As there; and when it has no steps.
    pub async fn start(self) -> Result<Workflow, ClientError> {
        self.whole().start().await
    }

    /// Starts it and waits for its end: see [`StartWorkflow::run`].
    ///
    /// # Errors
    /// As there; and when it has no steps.
    pub async fn run(self, patience: Duration) -> Result<Workflow, ClientError> {
        self.whole().run(patience).await
    }

    fn whole(self) -> StartWorkflow {
        let Self { mut start, mut definition, steps } = self;
        if steps.is_empty() {
            let problem = "the workflow has no steps".to_owned();
            start.fail(ClientError::usage(problem, "describe one with `step`"));
        }
        definition.insert("steps".to_owned(), Value::Array(steps));
        start.option("workflow", Value::Object(definition))
    }
}

impl NewStep {
    /// Runs a packaged action, such as `core.echo`. [`Self::with`] gives its parameters.
    pub fn action(self, reference: impl Into<String>) -> Self {
        self.option("action", json!(reference.into()))
    }

    /// Starts another workflow of a pack and ends with it. [`Self::with`] gives its parameters.
    pub fn workflow(self, reference: impl Into<String>) -> Self {
        self.option("workflow", json!(reference.into()))
    }

    /// Enqueues such a job. It must not have an idempotency key: the step has it once.
    pub fn job(mut self, job: NewJob) -> Self {
        match job.into_parts() {
            Ok((_, Some(_))) => {
                let problem = format!("the job of step {:?} has an idempotency key", self.name);
                let remedy = "give one to the workflow";
                self.workflow.start.fail(ClientError::usage(problem, remedy));
            }
            Ok((envelope, None)) => {
                self.fields.extend(envelope.as_object().cloned().unwrap_or_default());
            }
            Err(error) => self.workflow.start.fail(error),
        }
        self
    }

    /// The parameters of its action or workflow. Texts may hold expressions such as
    /// `${{ steps.load.result.files }}`.
    pub fn with(mut self, parameters: impl Serialize) -> Self {
        if let Some(parameters) = self.workflow.start.value("with", parameters) {
            self.fields.insert("with".to_owned(), parameters);
        }
        self
    }

    /// The steps that it waits for.
    pub fn after<T: Into<String>>(self, steps: impl IntoIterator<Item = T>) -> Self {
        let steps: Vec<String> = steps.into_iter().map(Into::into).collect();
        self.option("after", json!(steps))
    }

    /// When it runs, once those have ended: `success`, `failure`, `always`, or an expression.
    /// Default: `success`.
    pub fn when(self, condition: impl Into<String>) -> Self {
        self.option("when", json!(condition.into()))
    }

    /// Runs it for each item of a list, or of an expression such as
    /// `${{ steps.load.result.files }}`; `${{ item }}` is the item. Its result is the list of the
    /// results.
    pub fn for_each(mut self, list: impl Serialize) -> Self {
        if let Some(list) = self.workflow.start.value("for_each", list) {
            self.fields.insert("for_each".to_owned(), list);
        }
        self
    }

    /// How many items run at once. Default: all.
    pub fn concurrency(self, most: u32) -> Self {
        self.option("concurrency", json!(most))
    }

    /// Its failure counts as success for the steps after it and for the workflow. Default: it is a
    /// failure.
    pub fn continue_on_failure(self) -> Self {
        self.option("on_failure", json!("continue"))
    }

    /// The retry policy of its jobs. Default: that of the action, or of the server.
    pub fn retry(self, retry: Retry) -> Self {
        self.option("retry", retry.into_value())
    }

    /// Longest that an attempt of its jobs may run. Default: as the action says, or no limit. In
    /// milliseconds.
    pub fn timeout(self, longest: Duration) -> Self {
        self.option("timeout", json!(millis(longest)))
    }

    /// Queue of its jobs. Default: as the action says, or `default`.
    pub fn queue(self, name: impl Into<String>) -> Self {
        self.option("queue", json!(name.into()))
    }

    /// Priority of its jobs, from -100 to 100. Default: as the action says, or 0.
    pub fn priority(self, priority: i8) -> Self {
        self.option("priority", json!(priority))
    }

    /// What the workers of its jobs must match: see [`NewJob::requires`].
    pub fn requires(self, selector: impl Into<String>) -> Self {
        self.option("requires", json!(selector.into()))
    }

    /// What the workers of its jobs should match: see [`NewJob::prefers`].
    pub fn prefers(self, selector: impl Into<String>) -> Self {
        self.option("prefers", json!(selector.into()))
    }

    /// A key of the step by its name in a file, for those without a method here.
    pub fn option(mut self, name: impl Into<String>, value: Value) -> Self {
        self.fields.insert(name.into(), value);
        self
    }

    /// Adds another step. It starts at once unless [`Self::after`] names steps before it.
    pub fn step(self, name: impl Into<String>) -> Self {
        self.end().step(name)
    }

    /// Begins a step that waits for this one.
    pub fn then(self, name: impl Into<String>) -> Self {
        let before = self.name.clone();
        self.end().step(name).after([before])
    }

    /// Starts the workflow: see [`StartWorkflow::start`].
    ///
    /// # Errors
    /// As there.
    pub async fn start(self) -> Result<Workflow, ClientError> {
        self.end().start().await
    }

    /// Starts the workflow and waits for its end: see [`StartWorkflow::run`].
    ///
    /// # Errors
    /// As there.
    pub async fn run(self, patience: Duration) -> Result<Workflow, ClientError> {
        self.end().run(patience).await
    }

    /// Steps are sent as a list, so that the server sees a name that is there twice.
    fn end(self) -> NewWorkflow {
        let Self { mut workflow, name, mut fields } = self;
        fields.insert("name".to_owned(), Value::String(name));
        workflow.steps.push(Value::Object(fields));
        workflow
    }
}

fn millis(length: Duration) -> String {
    format!("{}ms", length.as_millis())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn client() -> Client {
        Client::new("http://127.0.0.1:1").unwrap()
    }

    fn sent(start: StartWorkflow) -> Value {
        assert!(start.error.is_none(), "{:?}", start.error);
        Value::Object(start.fields)
    }

    #[test]
    fn a_chain_is_one_line() {
        let chain = client().workflow().step("a").action("x.a").then("b").action("x.b").then("c");
        let chain = chain.job(NewJob::new("email.send", 1));
        let expected = json!({"workflow": {"steps": [
            {"action": "x.a", "name": "a"},
            {"after": ["a"], "action": "x.b", "name": "b"},
            {"after": ["b"], "type": "email.send", "args": [1], "name": "c"},
        ]}});
        assert_eq!(sent(chain.end().whole()), expected);
    }

    #[test]
    fn everything_that_is_said_has_its_name_in_a_file() {
        let workflow = client()
            .workflow()
            .name("night")
            .timeout(Duration::from_secs(60))
            .option("description", json!("Does it"))
            .parameter("folder", "in")
            .label("zone", "a")
            .key("tenant", 42)
            .idempotency_key("k")
            .step("each")
            .action("ase.one")
            .with(json!({"file": "${{ item }}"}))
            .for_each(["a", "b"])
            .concurrency(4)
            .when("always")
            .continue_on_failure()
            .retry(Retry::attempts(2))
            .timeout(Duration::from_millis(1500))
            .queue("q")
            .priority(-5)
            .requires("gpu=true")
            .prefers("zone=a")
            .option("resources", json!({"memory": "1GiB"}))
            .step("sub")
            .workflow("a.b")
            .after(["each"]);
        let start = workflow.end().whole();
        assert_eq!(start.idempotency_key.as_deref(), Some("k"));
        let expected = json!({
            "parameters": {"folder": "in"}, "labels": {"zone": "a"}, "keys": {"tenant": "42"},
            "workflow": {
                "name": "night", "timeout": "60000ms", "description": "Does it",
                "steps": [
                    {
                        "name": "each", "action": "ase.one", "with": {"file": "${{ item }}"},
                        "for_each": ["a", "b"], "concurrency": 4, "when": "always",
                        "on_failure": "continue", "retry": {"max_attempts": 2},
                        "timeout": "1500ms", "queue": "q", "priority": -5,
                        "requires": "gpu=true", "prefers": "zone=a",
                        "resources": {"memory": "1GiB"},
                    },
                    {"name": "sub", "workflow": "a.b", "after": ["each"]},
                ],
            },
        });
        assert_eq!(sent(start), expected);
    }

    #[test]
    fn a_workflow_of_a_pack_takes_its_parameters_one_by_one_or_together() {
        let together = BTreeMap::from([("a", 1), ("b", 2)]);
        let start = client().start_workflow("a.b").parameters(together).parameter("b", "x");
        let expected = json!({"workflow_ref": "a.b", "parameters": {"a": 1, "b": "x"}});
        assert_eq!(sent(start.name("n")), {
            let mut expected = expected;
            expected["name"] = json!("n");
            expected
        });
    }

    #[test]
    fn what_cannot_be_sent_is_an_error_of_the_start_and_the_first_one_counts() {
        let nothing = client().workflow().whole();
        let error = nothing.error.expect("it has no steps");
        assert!(error.to_string().contains("has no steps"), "{error}");
        let keyed = NewJob::new("t", 1).idempotency_key("k");
        let wrong = client().workflow().step("a").job(keyed).then("b").with(f64::NAN);
        let error = wrong.end().whole().error.expect("a key");
        assert!(error.to_string().contains("the job of step \"a\" has an idempotency key"));
        let list = client().start_workflow("a.b").parameters([1]);
        assert!(list.error.is_some_and(|it| it.to_string().contains("no names and values")));
        let map = BTreeMap::from([(vec![1], 1)]);
        let encode = client().start_workflow("a.b").parameters(map).error;
        assert!(matches!(encode, Some(ClientError::Encode { what: "parameters", .. })));
    }
}
