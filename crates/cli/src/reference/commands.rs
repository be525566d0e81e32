//! `docs/reference/cli.md`: every command with its arguments.

use clap::{Arg, ArgAction, Command};

use super::{check, head, row};
use crate::cli;

const HEAD: &str = "# The command line

Generated from the program's definition with `UPDATE_DOCS=1 cargo test -p outlast-cli`; a difference fails the test.
`outlast COMMAND --help` prints the same, `outlast man` a manual page, `outlast completions SHELL` a completion script.

Data goes to stdout, everything else to stderr. Commands that print data have `-o table|json|jsonl`. A
duration is a number of seconds, or `200ms`, `30s`, `5m`, `2h`, `7d`. Settings of server and worker are in
[configuration.md](configuration.md).

A pipe or a file gets tables whole: nothing is cut, and the columns are the same whatever is in them. A
terminal gets what fits its width: errors and evidence are wrapped, or stand below their row, up to 8 lines;
columns without any value are left out. States are coloured there unless `NO_COLOR` is set.

";

fn page() -> String {
    let mut tree = cli::tree();
    tree.build();
    let mut page = HEAD.to_owned();
    page.push_str(&cli::AFTER_HELP.replace('\n', " "));
    page.push_str("\n\nEvery command has these:\n\n");
    page.push_str(&table(tree.get_arguments().filter(|arg| arg.is_global_set())));
    let version = tree.get_arguments().find(|arg| arg.get_id() == "version").map(option);
    assert!(version.is_some_and(|shown| shown.contains("--version")), "a program has a version");
    for command in tree.get_subcommands() {
        describe(command, "outlast", 2, &mut page);
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn describe(command: &Command, above: &str, depth: usize, page: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{above} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    page.extend([format!(
        "\n{} `{name}`\n\n{}.\n",
        "#".repeat(depth),
        about.trim_end_matches('.')
    )]);
    if command.has_subcommands() {
        for below in command.get_subcommands() {
            describe(below, &name, depth + 1, page);
        }
        return;
    }
    let usage = command.clone().render_usage().to_string();
    page.extend([format!("\n```text\n{}\n```\n", usage.trim_start_matches("Usage: "))]);
    let own = command.get_arguments().filter(|arg| !arg.is_global_set());
    let table = table(own);
    if !table.is_empty() {
        page.extend([format!("\n{table}")]);
    }
    if let Some(after) = command.get_after_help() {
        page.extend([format!("\n{after}\n")]);
    }
}

fn table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let is_documented = |arg: &&Arg| {
        !arg.is_hide_set()
            && !matches!(
                arg.get_action(),
                ArgAction::Help | ArgAction::HelpShort | ArgAction::Version
            )
    };
    let mut shown: Vec<&Arg> = arguments.filter(is_documented).collect();
    if shown.is_empty() {
        return String::new();
    }
    shown.sort_by_key(|arg| !arg.is_positional());
    let rows = shown.into_iter().map(|arg| row(&[&option(arg), &meaning(arg)]));
    head(&["Argument", "Meaning"]) + &rows.collect::<String>()
}

fn option(arg: &Arg) -> String {
    let value = if arg.get_action().takes_values() {
        arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string)
    } else {
        None
    };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> = [short, long].into_iter().flatten().collect();
    let value = value.map(|value| format!("<{value}>"));
    let words = [Some(names.join(", ")).filter(|names| !names.is_empty()), value];
    format!("`{}`", words.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let default = arg.get_default_values();
    if arg.get_action().takes_values() && !arg.is_hide_default_value_set() && !default.is_empty() {
        let default: Vec<_> = default.iter().map(|value| value.to_string_lossy()).collect();
        text.extend([format!(" [default: {}]", default.join(","))]);
    }
    if !arg.is_hide_possible_values_set() && arg.get_action().takes_values() {
        let possible = arg.get_possible_values();
        let names: Vec<&str> = possible.iter().map(|value| value.get_name()).collect();
        if !names.is_empty() {
            text.extend([format!(" ({})", names.join(", "))]);
        }
    }
    // Angle brackets would be taken for HTML.
    let Some((before, default)) = text.split_once(" [default: ") else { return text };
    let (default, after) = default.split_once(']').unwrap_or((default, ""));
    format!("{before} (default: {default}){after}")
}

#[test]
fn page_of_the_command_line_says_what_the_program_takes() {
    check("cli.md", &page());
}

#[test]
fn every_command_and_every_argument_says_what_it_is_for() {
    fn look(command: &Command, dumb: &mut Vec<String>) {
        if command.get_about().is_none() {
            dumb.push(command.get_name().to_owned());
        }
        let silent = command.get_arguments().filter(|arg| arg.get_help().is_none());
        dumb.extend(silent.map(|arg| format!("{} {}", command.get_name(), arg.get_id())));
        command.get_subcommands().for_each(|below| look(below, dumb));
    }
    let mut dumb = Vec::new();
    look(&cli::tree(), &mut dumb);
    assert_eq!(dumb, Vec::<String>::new());
}
