//! Pages of the documentation as something to run: CONTRIBUTING.md says how they are written.
//!
//! ```text
//! page ─▶ blocks: files to write, steps (a command and what it must print)
//!      ─▶ session: a folder, a server, ids seen so far ─▶ the first step that is not true
//! ```

mod expect;
mod session;

use std::sync::LazyLock;

use regex::Regex;

pub use self::session::Session;

static EXIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s+# exits with (\d+)$"));

/// Blocks in these languages hold commands.
const SHELLS: &[&str] = &["sh", "bash", "shell", "zsh"];

/// Part of a page that something is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A file to write.
    File {
        /// Where, below the page's folder.
        path: String,
        /// What is in it.
        text: String,
    },
    /// A command to run.
    Step(Step),
    /// Commands for readers only.
    Unrun {
        /// Line of the page, from 1.
        line: usize,
        /// Why they are not run; empty if the page does not say.
        reason: String,
    },
}

/// A command, and what is said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Line of the page, from 1.
    pub line: usize,
    /// As it would be typed.
    pub command: String,
    /// Exit code it must end with.
    pub code: i32,
    /// Lines it must print, in this order.
    pub shown: Vec<String>,
}

/// Reads the blocks of a page that are to be run or written, in order.
#[must_use]
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let inside: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| !line.trim_start().starts_with("```"))
            .collect();
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default();
        if let Some(path) = words.find_map(|word| word.strip_prefix("file=")) {
            let text = inside.join("\n") + "\n";
            found.push(Block::File { path: path.to_owned(), text });
        } else if language == "console" {
            // The block's first line is the second after the fence's, counted from 1.
            found.extend(steps(&inside, at + 2).into_iter().map(Block::Step));
        } else if SHELLS.contains(&language) {
            let reason = info.split_once("not run:").map_or("", |(_, reason)| reason.trim());
            found.push(Block::Unrun { line: at + 1, reason: reason.to_owned() });
        }
    }
    found
}

fn steps(lines: &[&str], first: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (line, text) in lines.iter().enumerate() {
        let latest = steps.last_mut();
        match (text.strip_prefix("$ "), latest) {
            (_, Some(step)) if goes_on => {
                step.command.push('\n');
                step.command.push_str(text);
            }
            (Some(command), _) => steps.push(Step {
                line: first + line,
                command: command.to_owned(),
                code: 0,
                shown: Vec::new(),
            }),
            (None, Some(step)) if !text.trim().is_empty() => step.shown.push((*text).to_owned()),
            (None, _) => {}
        }
        goes_on = text.ends_with('\\') && steps.last().is_some_and(|step| step.shown.is_empty());
    }
    for step in &mut steps {
        if let Some(exit) = EXIT.captures(&step.command) {
            step.code = exit[1].parse().unwrap_or(0);
            step.command = EXIT.replace(&step.command, "").into_owned();
        }
    }
    steps
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid expression")
}

#[cfg(test)]
mod tests {
    use super::{Block, Step, blocks};

    const PAGE: &str = "# Page

```sh not run: it would hurt
rm -rf /
```

```yaml file=packs/a/pack.yaml
ref: a
```

```console
$ outlast run a.b \\
    -p c=d
id  x

$ outlast jobs show nothing   # exits with 3
```
";

    #[test]
    fn files_and_commands_are_found_in_order_and_the_rest_is_named() {
        let step = |line, command: &str, code, shown: &[&str]| {
            let shown = shown.iter().map(|line| (*line).to_owned()).collect();
            Block::Step(Step { line, command: command.to_owned(), code, shown })
        };
        let file = Block::File { path: "packs/a/pack.yaml".into(), text: "ref: a\n".into() };
        let unrun = Block::Unrun { line: 3, reason: "it would hurt".into() };
        let expected = [
            unrun,
            file,
            step(12, "outlast run a.b \\\n    -p c=d", 0, &["id  x"]),
            step(16, "outlast jobs show nothing", 3, &[]),
        ];
        assert_eq!(blocks(PAGE), expected);
    }
}
