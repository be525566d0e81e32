use super::*;

#[test]
fn places_read_like_paths() {
    let root = Place::Root;
    let steps = root.key("steps");
    let step = steps.index(3);
    let after = step.key("after");
    assert_eq!(after.index(1).to_string(), "steps[3].after[1]");
    assert_eq!(root.to_string(), "");
}

#[test]
fn long_and_unprintable_text_is_cut_and_escaped() {
    assert_eq!(shown("a\nb"), "a\\nb");
    assert_eq!(shown(&"x".repeat(100)).chars().count(), 61);
}

#[test]
fn a_slip_names_its_neighbour_and_another_word_names_all() {
    assert_eq!(instead("afer", &["after", "when"]), "did you mean `after`?");
    assert_eq!(instead("zzz", &["after", "when"]), "write one of after, when");
}
