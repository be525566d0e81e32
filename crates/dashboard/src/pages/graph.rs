//! Steps and what they wait for, as a drawing: columns from left to right.

use std::collections::HashMap;

use crate::atoms::Status;

/// Width of a box, and of the room between columns; height of a box, and of the room between rows.
const BOX: (usize, usize) = (190, 46);
const ROOM: (usize, usize) = (60, 18);
const EDGE: usize = 10;
/// Most letters in a box.
const LETTERS: usize = 22;
/// Most steps that are drawn.
const STEPS_MAX: usize = 200;

/// A drawing of steps.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The steps, placed.
    pub nodes: Vec<Node>,
    /// The ways between them.
    pub edges: Vec<Edge>,
    /// How wide and high it is.
    pub size: (usize, usize),
    /// How many steps are not drawn.
    pub left_out: usize,
}

/// A step that is to be drawn.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
    /// What else is to be said: how many items ended.
    pub count: String,
    /// The steps before it, by their places in the list.
    pub after: Vec<usize>,
    /// Where it leads, from the page.
    pub href: Option<String>,
}

/// A step, placed.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its number among the steps.
    pub number: usize,
    /// Left and upper edge.
    pub at: (usize, usize),
    /// Its name, cut.
    pub name: String,
    /// Its name, whole.
    pub title: String,
    /// Its status.
    pub status: String,
    /// Its status with a shape, and its count.
    pub line: String,
    /// Where it leads.
    pub href: Option<String>,
}

impl Node {
    /// Where its texts stand.
    #[must_use]
    pub const fn text_at(&self) -> (usize, usize, usize) {
        (self.at.0 + 10, self.at.1 + 19, self.at.1 + 37)
    }

    /// How large its box is.
    #[must_use]
    pub const fn size(&self) -> (usize, usize) {
        BOX
    }
}

/// A way from the right edge of one box to the left edge of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// As an SVG path.
    pub path: String,
}

impl Graph {
    /// Places steps: each in the column behind the last of those that it waits for.
    #[must_use]
    pub fn of(steps: &[Step]) -> Self {
        let drawn = &steps[..steps.len().min(STEPS_MAX)];
        let columns = columns(drawn);
        let mut rows: HashMap<usize, usize> = HashMap::new();
        let mut nodes: Vec<Node> = Vec::new();
        for (number, (step, column)) in drawn.iter().zip(&columns).enumerate() {
            let row = rows.entry(*column).or_default();
            let at = (EDGE + column * (BOX.0 + ROOM.0), EDGE + *row * (BOX.1 + ROOM.1));
            *row += 1;
            let status = Status(&step.status);
            let count = if step.count.is_empty() { "" } else { " " };
            nodes.push(Node {
                number,
                at,
                name: cut(&step.name),
                title: step.name.clone(),
                line: format!("{} {}{count}{}", status.shape(), step.status, step.count),
                status: step.status.clone(),
                href: step.href.clone(),
            });
        }
        let mut edges = Vec::new();
        for (number, step) in drawn.iter().enumerate() {
            for before in step.after.iter().filter(|before| **before < nodes.len()) {
                edges.push(way(&nodes[*before], &nodes[number]));
            }
        }
        let widest = columns.iter().max().map_or(0, |last| last + 1);
        let highest = rows.values().max().copied().unwrap_or(0);
        let size = (
            2 * EDGE + widest * BOX.0 + widest.saturating_sub(1) * ROOM.0,
            2 * EDGE + highest * BOX.1 + highest.saturating_sub(1) * ROOM.1,
        );
        Self { nodes, edges, size, left_out: steps.len() - drawn.len() }
    }
}

/// Returns the column of each step. Steps wait for earlier ones or later ones of the list, never in a circle.
fn columns(steps: &[Step]) -> Vec<usize> {
    let mut columns = vec![0; steps.len()];
    // A step is at most as far right as there are steps.
    for _ in 0..steps.len() {
        let mut changed = false;
        for (number, step) in steps.iter().enumerate() {
            let before = step.after.iter().filter_map(|before| columns.get(*before));
            let column = before.max().map_or(0, |last| last + 1);
            changed |= columns[number] != column;
            columns[number] = column;
        }
        if !changed {
            break;
        }
    }
    columns
}

fn way(from: &Node, to: &Node) -> Edge {
    let (x1, y1) = (from.at.0 + BOX.0, from.at.1 + BOX.1 / 2);
    let (x2, y2) = (to.at.0, to.at.1 + BOX.1 / 2);
    let half = ROOM.0 / 2;
    let (a, b) = (x1 + half, x2.saturating_sub(half));
    Edge { path: format!("M{x1} {y1}C{a} {y1} {b} {y2} {x2} {y2}") }
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(LETTERS) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::{Graph, Step};

    fn step(name: &str, after: &[usize]) -> Step {
        Step {
            name: name.into(),
            status: "waiting".into(),
            after: after.to_vec(),
            ..Step::default()
        }
    }

    #[test]
    fn step_stands_behind_all_that_it_waits_for() {
        // The last one stands before the second in the list.
        let steps = [step("a", &[]), step("d", &[2, 0]), step("b", &[0]), step("c", &[0])];
        let graph = Graph::of(&steps);
        let column = |number: usize| graph.nodes[number].at.0;
        assert!(column(0) < column(2) && column(2) < column(1), "{graph:?}");
        assert_eq!(column(2), column(3));
        assert_ne!(graph.nodes[2].at.1, graph.nodes[3].at.1);
        assert_eq!(graph.edges.len(), 4);
        let right = graph.nodes.iter().map(|node| node.at.0 + 190).max().unwrap();
        assert!(right <= graph.size.0);
    }

    #[test]
    fn very_many_steps_are_cut_and_counted() {
        let steps: Vec<Step> = (0..1_000).map(|n| step(&format!("{n}"), &[])).collect();
        let graph = Graph::of(&steps);
        assert_eq!((graph.nodes.len(), graph.left_out), (200, 800));
    }
}
