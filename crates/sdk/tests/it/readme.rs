//! The README shows the examples as they are: both are compiled, and the examples are run.

const README: &str = include_str!("../../README.md");

#[test]
fn the_readme_shows_the_examples_as_they_are() {
    for example in
        [include_str!("../../examples/worker.rs"), include_str!("../../examples/producer.rs")]
    {
        let (_header, program) = example.split_once("\n\n").expect("a header");
        assert!(
            README.contains(&format!("```rust,no_run\n{program}```\n")),
            "not shown:\n{program}"
        );
    }
}
