//! `outlast import`: an export into an empty store of either kind, checked before and after.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::say;
use outlast_store_rules::transfer::Page;
use outlast_store_rules::transfer::drive;

use super::export::{ProgressLines, failed, print_sections};
use super::store::{AnySource, AnyTarget};
use crate::config::{Environment, Flag, Settings, value};
use crate::output::Format;

const AFTER_HELP: &str = "\
An import that was cut off is continued by the same command; until it is done, servers refuse the
store. In the end the store is read back and compared with the export.
Exit codes: 0 the store holds exactly the export, 4 the store is in use or not empty, 3 there is no
whole export, 1 the export is damaged, the store differs from it, or the import was cut off.";

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Folder that `outlast export` wrote
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Store to fill, as sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:outlast.db]
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change nothing: check the export, and with --database that the store holds exactly that
    #[arg(long)]
    verify: bool,
    /// Output format of what was imported: table, json or jsonl
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_possible_values = true,
          value_name = "FORMAT")]
    output: Format,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let compare = args.database.is_some();
    let flags = vec![Flag::new("server.database", "--database", args.database)];
    let settings = Settings::load(args.config.as_deref(), environment, flags)?;
    let database = settings.get("server.database", value::database)?;
    let shown = settings.setting("server.database")?.shown();
    let folder = args.folder.display();
    let mut progress = ProgressLines::default();
    let mut report = |doing, section, rows| progress.report(doing, section, rows);
    if args.verify {
        let manifest = drive::check(&args.folder, &mut report).map_err(|error| failed(&error))?;
        let mut message = format!("{folder} is whole");
        if compare {
            let mut source = AnySource::open(&database).await?;
            let comparing = drive::compare(&mut source, &manifest, Page::STANDARD, &mut report);
            comparing.await.map_err(|error| failed(&error))?;
            message = format!("{message}, and {shown} holds exactly that");
        }
        print_sections(args.output, &manifest)?;
        say(&format!("{message}\n"));
        return Ok(Exit::Ok);
    }
    // A wrong folder is reported before a store is created or migrated.
    outlast_store_rules::transfer::folder::read_manifest(&args.folder)
        .map_err(|error| failed(&error))?;
    let mut target = AnyTarget::open(&database).await?;
    let importing = drive::import(&mut target, &args.folder, Page::STANDARD, &mut report);
    let manifest = importing.await.map_err(|error| failed(&error))?;
    print_sections(args.output, &manifest)?;
    say(&format!("{shown} holds exactly what {folder} does; servers may use it now\n"));
    Ok(Exit::Ok)
}
