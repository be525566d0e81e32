//! `outlast export`: all that a store holds, as it is at one moment, as files.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use outlast_cli_core::clock;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, say, text_at};
use outlast_store_rules::transfer::drive::{self, Doing, Label};
use outlast_store_rules::transfer::folder::Manifest;
use outlast_store_rules::transfer::{Page, TransferError};
use serde_json::{Value, json};

use super::store::AnySource;
use crate::config::{Environment, Flag, Settings, value};
use crate::output::{Format, print_list};

const AFTER_HELP: &str = "\
Stop the servers first if the store is to move: what happens to it afterwards is not in the export.
Nothing in the store is changed, and servers may run meanwhile if a copy is enough.
Exit codes: 0 the export is whole and on disk, 4 the folder holds something else, 1 it failed.";

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Store, as sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:outlast.db]
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder to write to: a new or empty one, or that of an interrupted export
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Output format of what was exported: table, json or jsonl
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_possible_values = true,
          value_name = "FORMAT")]
    output: Format,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let flags = vec![Flag::new("server.database", "--database", args.database)];
    let settings = Settings::load(args.config.as_deref(), environment, flags)?;
    let database = settings.get("server.database", value::database)?;
    let mut source = AnySource::open(&database).await?;
    let label = Label {
        export: uuid::Uuid::now_v7(),
        outlast: env!("CARGO_PKG_VERSION").to_owned(),
        taken: clock::now().to_string(),
    };
    let mut progress = ProgressLines::default();
    let mut report = |doing, section, rows| progress.report(doing, section, rows);
    let exporting = drive::export(&mut source, &args.out, label, Page::STANDARD, &mut report);
    let manifest = exporting.await.map_err(|error| failed(&error))?;
    print_sections(args.output, &manifest)?;
    let shown = settings.setting("server.database")?.shown();
    say(&format!("{shown} is exported to {}\n", args.out.display()));
    Ok(Exit::Ok)
}

/// Prints what an export holds.
pub(super) fn print_sections(format: Format, manifest: &Manifest) -> Result<(), Failure> {
    let items: Vec<Value> = manifest
        .sections
        .iter()
        .map(|entry| json!({"section": entry.name, "rows": entry.rows, "sha256": entry.sha256}))
        .collect();
    let columns: &[Column] = &[
        ("SECTION", |item| text_at(item, "section")),
        ("ROWS", |item| text_at(item, "rows")),
        ("SHA256", |item| text_at(item, "sha256")),
    ];
    print_list(format, &items, columns)
}

/// Prints progress to stderr: a line per section that has rows.
#[derive(Debug, Default)]
pub(super) struct ProgressLines {
    last: Option<(Doing, &'static str)>,
    reported: u64,
}

impl ProgressLines {
    /// Rows between two progress lines of a section.
    const ROWS: u64 = 100_000;

    pub(super) fn report(&mut self, doing: Doing, section: &'static str, rows: u64) {
        if self.last != Some((doing, section)) {
            if self.last.is_none_or(|(before, _)| before != doing) {
                say(&format!("{}\n", words(doing)));
            }
            self.last = Some((doing, section));
            self.reported = 0;
        }
        if rows - self.reported >= Self::ROWS {
            self.reported = rows;
            say(&format!("  {section}: {rows} rows\n"));
        }
    }
}

const fn words(doing: Doing) -> &'static str {
    match doing {
        Doing::Exporting => "writing the export",
        Doing::Checking => "checking the export",
        Doing::Importing => "storing rows",
        Doing::Comparing => "reading the store back",
    }
}

/// Why a move failed, with a hint.
pub(super) fn failed(error: &TransferError) -> Failure {
    let (exit, hint) = match error {
        TransferError::Occupied { .. } => (Exit::Conflict, "--out names another folder"),
        TransferError::NotEmpty { .. } => {
            (Exit::Conflict, "import into a new file or database; nothing has changed")
        }
        TransferError::AlreadyImported => {
            (Exit::Conflict, "nothing is left to do; --verify compares the two")
        }
        TransferError::OtherImport { .. } => (
            Exit::Conflict,
            "finish that import with its own folder, or start with a new file or database",
        ),
        TransferError::Unfinished { .. } => {
            (Exit::NotFound, "run `outlast export` again with the same folder")
        }
        TransferError::Damaged { .. } => {
            (Exit::Failed, "copy the export again, or create a new one; nothing was imported")
        }
        TransferError::NewerFormat { .. } => {
            (Exit::Failed, "import with that version or a later one")
        }
        TransferError::Differs { .. } => {
            (Exit::Failed, "the store is not what was exported: import into a new file or database")
        }
        TransferError::Store(_) => (Exit::Failed, "run the same command again: it resumes"),
        TransferError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            return Failure::new(Exit::NotFound, error.to_string());
        }
        _ => return Failure::failed(error.to_string()),
    };
    Failure::new(exit, error.to_string()).with_hint(hint)
}
