//! An action's YAML file, from its keys to an [`Action`].
//!
//! Faults name file and line. A key that only other systems act on is noted, not
//! refused, and so is an action of a kind that they run and this one does not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::labels::check_wanted;
use outlast_core::resources::Resources;
use outlast_core::selector::{Placement, Selector};
use outlast_wire::ojs::names;
use outlast_wire::resources;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use super::{
    Action, Entry, JobKeys, OnDrain, Overlap, PackPolicy, RetrySpec, Runner, SecretSpec, WarmSpec,
    environment, is_name, retry, warm,
};
use crate::duration;
use crate::environment::{EnvironmentKind, PackEnvironment};
use crate::error::PackError;
use crate::keys;
use crate::note::Note;
use crate::output::OutputFormat;
use crate::parameters::Parameters;
use crate::render::{Delivery, Format};
use crate::source::{Source, inside};
use crate::yaml::{At, Document, kind, line, scalar};

/// One action file on its way to an action.
pub(crate) struct Reading<'a> {
    pub(crate) source: &'a Source,
    pub(crate) document: &'a Document,
    pub(crate) pack: PackFile<'a>,
    /// The file's name without its ending.
    pub(crate) stem: &'a str,
}

/// What an action has from its pack.
#[derive(Clone, Copy)]
pub(crate) struct PackFile<'a> {
    pub(crate) reference: &'a str,
    pub(crate) enabled: bool,
    pub(crate) python: InLanguage<'a>,
    pub(crate) node: InLanguage<'a>,
    pub(crate) warm: Option<&'a WarmSpec>,
}

/// What scripts in one language have from their pack.
#[derive(Clone, Copy)]
pub(crate) struct InLanguage<'a> {
    /// The program that the pack names to run them.
    pub(crate) own: Option<&'a str>,
    pub(crate) environment: Option<&'a Arc<PackEnvironment>>,
}

/// What runs a script, and what it may import.
struct Interpreted {
    own: Option<String>,
    environment: Option<Arc<PackEnvironment>>,
}

/// What was read from an action file.
pub(crate) struct Read {
    /// The action, unless it is of a kind that is not run here.
    pub(crate) action: Option<Action>,
    pub(crate) notes: Vec<Note>,
}

#[derive(Deserialize)]
struct Definition {
    #[serde(rename = "ref")]
    reference: At<String>,
    name: At<String>,
    label: Option<String>,
    description: Option<String>,
    enabled: Option<bool>,
    runner_type: At<String>,
    entry_point: At<String>,
    parameters: At<Value>,
    parameter_delivery: At<String>,
    parameter_format: At<String>,
    output_format: At<String>,
    timeout: At<Value>,
    timeout_seconds: At<Value>,
    tags: Option<Vec<String>>,
    retry: At<Value>,
    queue: At<String>,
    priority: At<Value>,
    interruptible: Option<bool>,
    resources: At<Value>,
    on_drain: At<String>,
    overlap: At<String>,
    packs: At<String>,
    required_labels: At<Value>,
    requires: At<String>,
    prefers: At<String>,
    keys: At<Value>,
    env: At<Value>,
    secrets: At<Value>,
    python: At<String>,
    node: At<String>,
    warm: At<Value>,
}

/// The interpreter of a virtual environment, from the pack's folder.
const VENV_PYTHON: &str = ".venv/bin/python";

/// Kinds of action that packs may contain and that are not run here.
const FOREIGN: &[&str] = &[
    "native",
    "builtin",
    "standalone",
    "docker",
    "workflow",
    "perl",
    "ruby",
    "go",
    "java",
    "r",
    "inquirer",
    "http",
];

impl Reading<'_> {
    pub(crate) fn action(&self) -> Result<Read, PackError> {
        let keys = self.document.mapping()?;
        let definition: Definition = self.document.read()?;
        let reference = self.reference(&definition)?;
        if let Some(reason) = self.foreign(&definition, keys.contains_key("workflow_file")) {
            let message = format!("action {reference} is left out: {reason}");
            let notes = vec![Note::new(self.document.file(), message)];
            return Ok(Read { action: None, notes });
        }
        let mut notes = self.document.check_keys(&keys, &keys::ACTION)?;
        if definition.timeout.is_some() && definition.timeout_seconds.is_some() {
            let message = "key `timeout_seconds` has no effect beside `timeout`";
            notes.push(Note::new(self.document.file(), message));
        }
        let named = [
            (Runner::Python, definition.python.is_some()),
            (Runner::Node, definition.node.is_some()),
        ];
        let of_pack = [(Runner::Python, self.pack.python.own), (Runner::Node, self.pack.node.own)];
        let names_warm = definition.warm.is_some();
        let action = self.build(reference, definition)?;
        let file = self.document.file();
        let is_named = named.contains(&(action.runner, true))
            || of_pack.iter().any(|(runner, own)| *runner == action.runner && own.is_some());
        for (runner, _) in named.into_iter().filter(|(runner, is)| *is && *runner != action.runner)
        {
            let message =
                format!("key `{runner}` has no effect: this is a {} action", action.runner);
            notes.push(Note::new(file, message));
        }
        if names_warm && !warm::suits(action.runner) {
            let message = format!("key `warm` has no effect: this is a {} action", action.runner);
            notes.push(Note::new(file, message));
        }
        notes.extend(passed_over(&action, is_named).map(|message| Note::new(file, message)));
        let of_parameters = action.parameters.notes().iter();
        notes.extend(of_parameters.map(|note| Note::new(file, format!("parameters: {note}"))));
        notes.extend(unfit_defaults(file, &action));
        Ok(Read { action: Some(action), notes })
    }

    fn build(&self, reference: String, definition: Definition) -> Result<Action, PackError> {
        let document = self.document;
        let entry_point = definition.entry_point.as_ref().ok_or_else(|| {
            let remedy = "name the script, relative to actions/, such as `entry_point: run.sh`";
            document.fault(None, "key `entry_point` is missing", remedy)
        })?;
        let runner = self.runner(definition.runner_type.as_ref())?;
        let interpreted = self.interpreted(runner, &definition)?;
        let warm = self.warm(definition.warm.as_ref(), runner)?;
        let parameters = self.parameters(definition.parameters)?;
        let keys = self.keys(definition.keys.as_ref(), &parameters)?;
        let timeout = definition.timeout.as_ref().or(definition.timeout_seconds.as_ref());
        Ok(Action {
            pack: self.pack.reference.to_owned(),
            own_interpreter: interpreted.own,
            environment_of_pack: interpreted.environment,
            label: definition.label.unwrap_or_else(|| self.stem.to_owned()),
            description: definition.description.unwrap_or_default(),
            runner,
            delivery: document.choose(
                "parameter_delivery",
                definition.parameter_delivery.as_ref(),
                &[("stdin", Delivery::Stdin), ("file", Delivery::File), ("env", Delivery::Env)],
                Delivery::Stdin,
            )?,
            format: document.choose(
                "parameter_format",
                definition.parameter_format.as_ref(),
                &[("json", Format::Json), ("yaml", Format::Yaml), ("dotenv", Format::Dotenv)],
                Format::Json,
            )?,
            output_format: document.choose(
                "output_format",
                definition.output_format.as_ref(),
                &[
                    ("text", OutputFormat::Text),
                    ("json", OutputFormat::Json),
                    ("yaml", OutputFormat::Yaml),
                    ("jsonl", OutputFormat::Jsonl),
                ],
                OutputFormat::Text,
            )?,
            timeout: timeout.map(|timeout| self.timeout(timeout)).transpose()?,
            enabled: self.pack.enabled && definition.enabled.unwrap_or(true),
            tags: definition.tags.unwrap_or_default(),
            retry: definition.retry.as_ref().map(|retry| self.retry(retry)).transpose()?,
            queue: definition.queue.as_ref().map(|queue| self.queue(queue)).transpose()?,
            priority: definition.priority.as_ref().map(|it| self.priority(it)).transpose()?,
            interruptible: definition.interruptible.unwrap_or(true),
            on_drain: self.on_drain(definition.on_drain.as_ref(), definition.interruptible)?,
            resources: self.resources(definition.resources.as_ref())?,
            overlap: self.overlap(definition.overlap.as_ref())?,
            packs: self.pack_policy(definition.packs.as_ref())?,
            required_labels: definition
                .required_labels
                .as_ref()
                .map_or(Ok(BTreeMap::new()), |labels| self.labels(labels))?,
            placement: Placement {
                requires: self.selector("requires", definition.requires.as_ref())?,
                prefers: self.selector("prefers", definition.prefers.as_ref())?,
            },
            environment: self.environment(definition.env.as_ref())?,
            secrets: self.secrets(definition.secrets.as_ref())?,
            warm: warm.filter(|_| warm::suits(runner)),
            keys,
            parameters,
            entry: Entry::find(self.source, document, self.pack.reference, entry_point)?,
            reference,
        })
    }

    fn overlap(&self, given: Option<&Spanned<String>>) -> Result<Overlap, PackError> {
        let words = [("allowed", Overlap::Allowed), ("forbidden", Overlap::Forbidden)];
        self.document.choose("overlap", given, &words, Overlap::Allowed)
    }

    fn pack_policy(&self, given: Option<&Spanned<String>>) -> Result<PackPolicy, PackError> {
        let words = [("any", PackPolicy::Any), ("pinned", PackPolicy::Pinned)];
        self.document.choose("packs", given, &words, PackPolicy::Any)
    }

    fn reference(&self, definition: &Definition) -> Result<String, PackError> {
        let pack = self.pack.reference;
        let Some(given) = &definition.reference else {
            let name = definition.name.as_ref().map_or(self.stem, |name| name.value.as_str());
            let name = name.strip_prefix(&format!("{pack}.")).unwrap_or(name);
            return Ok(format!("{pack}.{name}"));
        };
        let name = given.value.strip_prefix(pack).and_then(|rest| rest.strip_prefix('.'));
        if name.is_some_and(|name| name.split('.').all(is_name)) {
            return Ok(given.value.clone());
        }
        Err(self.document.fault(
            line(given),
            format!("ref `{}` does not belong to pack `{pack}`", given.value),
            format!("write `ref: {pack}.{}`", self.stem),
        ))
    }

    fn foreign(&self, definition: &Definition, is_workflow: bool) -> Option<String> {
        if is_workflow {
            return Some("a workflow is no action here, but a file in workflows/".to_owned());
        }
        let runner = definition.runner_type.as_ref()?.value.to_ascii_lowercase();
        let known_elsewhere = FOREIGN.contains(&runner.as_str());
        known_elsewhere.then(|| format!("runner_type `{runner}` is not one of {RUNNERS}"))
    }

    fn runner(&self, given: Option<&Spanned<String>>) -> Result<Runner, PackError> {
        let remedy = format!("use one of {RUNNERS}");
        let Some(given) = given else {
            return Err(self.document.fault(None, "key `runner_type` is missing", remedy));
        };
        Runner::from_name(&given.value).ok_or_else(|| {
            let problem = format!("runner_type `{}` is not known", given.value);
            self.document.fault(line(given), problem, remedy)
        })
    }

    fn timeout(&self, given: &Spanned<Value>) -> Result<Duration, PackError> {
        let timeout = duration::parse(&given.value)
            .map_err(|problem| self.document.fault(line(given), problem, duration::REMEDY))?;
        if timeout.is_zero() {
            let remedy = "leave it out for no limit, or write a time above 0";
            return Err(self.document.fault(line(given), "the timeout is 0", remedy));
        }
        Ok(timeout)
    }

    fn parameters(&self, given: At<Value>) -> Result<Parameters, PackError> {
        let at = given.as_ref().and_then(line);
        let value = given.map_or(Value::Null, |given| given.value);
        Parameters::new(value).map_err(|problem| {
            let remedy = "describe each parameter, such as `message: {type: string}`";
            self.document.fault(at, format!("parameters: {problem}"), remedy)
        })
    }

    fn retry(&self, given: &Spanned<Value>) -> Result<RetrySpec, PackError> {
        retry::read(&given.value).map_err(|problem| {
            let remedy = "write a number of attempts, or a mapping of max_attempts, \
                          initial_interval, max_interval, backoff_coefficient, jitter, \
                          non_retryable_errors, on_exhaustion";
            self.document.fault(line(given), format!("retry: {problem}"), remedy)
        })
    }

    /// The program that the action, or else its pack, names for its runner; and the environment
    /// that it runs in. A virtual environment goes by its interpreter, `node_modules` does not.
    fn interpreted(
        &self,
        runner: Runner,
        definition: &Definition,
    ) -> Result<Interpreted, PackError> {
        let (own, of_pack) = match runner {
            Runner::Shell => return Ok(Interpreted { own: None, environment: None }),
            Runner::Python => (&definition.python, self.pack.python),
            Runner::Node => (&definition.node, self.pack.node),
        };
        if let Some(empty) = own.as_ref().filter(|own| own.value.is_empty()) {
            let remedy =
                format!("write a path such as `{runner}: .venv/bin/{runner}`, or a program's name");
            return Err(self.document.fault(line(empty), format!("{runner} is empty"), remedy));
        }
        let own = own.as_ref().map(|own| own.value.as_str()).or(of_pack.own);
        let mut interpreted =
            Interpreted { own: own.map(str::to_owned), environment: of_pack.environment.cloned() };
        if runner == Runner::Python && interpreted.environment.is_some() {
            let chosen = interpreted.own.get_or_insert_with(|| VENV_PYTHON.to_owned());
            let is_inside = |path: PathBuf| path.starts_with(EnvironmentKind::Python.link());
            if !inside(chosen).is_some_and(is_inside) {
                interpreted.environment = None;
            }
        }
        Ok(interpreted)
    }

    fn queue(&self, given: &Spanned<String>) -> Result<String, PackError> {
        match names::queue(&given.value) {
            Ok(()) => Ok(given.value.clone()),
            Err(fault) => {
                Err(self.document.fault(line(given), fault.message, "such as `queue: reports`"))
            }
        }
    }

    fn priority(&self, given: &Spanned<Value>) -> Result<i8, PackError> {
        let number = given.value.as_i64().and_then(|number| i8::try_from(number).ok());
        number.filter(|number| (-100..=100).contains(number)).ok_or_else(|| {
            let problem =
                format!("priority `{}` is not a whole number from -100 to 100", given.value);
            let remedy = "-100 goes last, 100 goes first";
            self.document.fault(line(given), problem, remedy)
        })
    }

    fn on_drain(
        &self,
        given: Option<&Spanned<String>>,
        interruptible: Option<bool>,
    ) -> Result<OnDrain, PackError> {
        let known = [("finish", OnDrain::Finish), ("stop", OnDrain::Stop)];
        let chosen = self.document.choose("on_drain", given, &known, OnDrain::Finish)?;
        if chosen == OnDrain::Stop && interruptible == Some(false) {
            let problem = "on_drain `stop` contradicts `interruptible: false`";
            let remedy = "leave one of them out";
            return Err(self.document.fault(given.and_then(line), problem, remedy));
        }
        Ok(chosen)
    }

    fn resources(&self, given: Given<'_>) -> Result<Resources, PackError> {
        let Some(given) = given else { return Ok(Resources::NONE) };
        resources::limits(&given.value).map_err(|problem| {
            let remedy = "write a mapping such as `{memory: 64MiB, cpu: 0.5, processes: 64}`";
            self.document.fault(line(given), format!("resources {problem}"), remedy)
        })
    }

    fn environment(&self, given: Given<'_>) -> Result<BTreeMap<String, String>, PackError> {
        let Some(given) = given else { return Ok(BTreeMap::new()) };
        environment::environment(&given.value).map_err(|problem| {
            let remedy = "write a mapping of variables such as `{LOG_LEVEL: info}`";
            self.document.fault(line(given), format!("env: {problem}"), remedy)
        })
    }

    fn secrets(&self, given: Given<'_>) -> Result<BTreeMap<String, SecretSpec>, PackError> {
        let Some(given) = given else { return Ok(BTreeMap::new()) };
        environment::secrets(&given.value).map_err(|problem| {
            let remedy = "write a mapping such as `{API_KEY: {as: env}}` or `{KEY: {as: file}}`";
            self.document.fault(line(given), format!("secrets: {problem}"), remedy)
        })
    }

    fn warm(&self, given: Given<'_>, runner: Runner) -> Result<Option<WarmSpec>, PackError> {
        given.map_or_else(
            || Ok(self.pack.warm.cloned()),
            |given| warm::read(self.document, given, &[runner]),
        )
    }

    fn keys(&self, given: Given<'_>, parameters: &Parameters) -> Result<JobKeys, PackError> {
        let Some(given) = given else { return Ok(JobKeys::default()) };
        JobKeys::read(&given.value, parameters).map_err(|slip| {
            self.document.fault(line(given), format!("keys: {}", slip.problem), slip.remedy)
        })
    }

    fn selector(&self, key: &str, given: Option<&Spanned<String>>) -> Result<Selector, PackError> {
        let Some(given) = given else { return Ok(Selector::default()) };
        given.value.parse().map_err(|error| {
            let remedy = format!("write a selector such as `{key}: \"gpu=true, zone in (a, b)\"`");
            self.document.fault(line(given), format!("{key}: {error}"), remedy)
        })
    }

    fn labels(&self, given: &Spanned<Value>) -> Result<BTreeMap<String, String>, PackError> {
        let read = labels(&given.value).ok_or_else(|| {
            let problem = format!("required_labels holds {}", kind(&given.value));
            let remedy = "write a mapping such as `{zone: east}` or a list such as `[zone=east]`";
            self.document.fault(line(given), problem, remedy)
        })?;
        check_wanted(&read).map_err(|error| {
            let problem = format!("required_labels asks for what no worker can carry: {error}");
            self.document.fault(line(given), problem, "name labels that workers can have")
        })?;
        Ok(read)
    }
}

/// A value of the file that may be missing.
type Given<'a> = Option<&'a Spanned<Value>>;

const RUNNERS: &str = "shell, python, node, nodejs";

fn labels(value: &Value) -> Option<BTreeMap<String, String>> {
    match value {
        Value::Object(map) => {
            map.iter().map(|(name, value)| Some((name.clone(), scalar(value)?))).collect()
        }
        Value::Array(list) => list
            .iter()
            .map(|item| item.as_str()?.split_once('='))
            .map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// What looks as if it chose the interpreter of a script, and does not. Nothing does if the action
/// or its pack names one.
fn passed_over(action: &Action, is_named: bool) -> impl Iterator<Item = String> {
    let runner = action.runner;
    let chooses = runner != Runner::Shell && !is_named;
    let runs = match &action.own_interpreter {
        Some(of_pack) => format!("{of_pack} of the pack runs it"),
        None => format!("{} of the worker runs it", action.interpreter()),
    };
    let remedy = format!("`{runner}: PATH` names another one");
    let shebang = action.entry.shebang().filter(|command| !is_usual(runner, command));
    let shebang = shebang.map(|command| {
        format!("the script's first line `#!{command}` has no effect: {runs}; {remedy}")
    });
    let path = action.environment.contains_key("PATH");
    let path = path.then(|| format!("PATH in `env` is for the script: {runs}; {remedy}"));
    shebang.into_iter().chain(path).filter(move |_| chooses)
}

/// Whether a script's first line asks for the program that it gets anyway.
fn is_usual(runner: Runner, command: &str) -> bool {
    let words = command.split_whitespace().filter(|word| *word != "-S");
    let mut words = words.map(|word| word.rsplit('/').next().unwrap_or(word));
    let is_system =
        ["/usr/bin/", "/bin/", "/usr/local/bin/"].iter().any(|at| command.starts_with(at));
    let program = words.find(|word| *word != "env");
    is_system && program.and_then(Runner::from_name) == Some(runner)
}

/// Reports defaults that their own schema refuses: every call without them would fail.
fn unfit_defaults(file: &str, action: &Action) -> Vec<Note> {
    let unfit = action.parameters.unfit_defaults();
    unfit.map(|violation| Note::new(file, format!("default of parameter {violation}"))).collect()
}
