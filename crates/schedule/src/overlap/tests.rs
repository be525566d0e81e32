use super::*;

#[test]
fn names_are_read_as_they_are_written() {
    for overlap in Overlap::ALL {
        assert_eq!(Overlap::parse(overlap.as_str()), Ok(overlap));
    }
    assert_eq!(Overlap::default(), Overlap::Skip);
}

#[test]
fn other_words_are_refused() {
    let error = Overlap::parse("forbid").unwrap_err();
    assert_eq!(error.to_string(), "overlap is skip, queue, replace or allow, not `forbid`");
    assert!(Overlap::parse("Skip").is_err());
}
