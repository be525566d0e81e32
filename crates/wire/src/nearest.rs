//! The known name that a wrong one is most like.

/// Returns the known name that is most like `name`, if one is: by Jaro-Winkler similarity, which is
/// between 0 and 1, and without regard to case.
pub fn nearest<T: AsRef<str>>(
    name: &str,
    known: impl IntoIterator<Item = T>,
    likeness: f64,
) -> Option<T> {
    let wanted = name.to_lowercase();
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(&wanted, &known.as_ref().to_lowercase()), known))
        .filter(|(like, _)| *like >= likeness)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        let known = ["concurrency", "rate"];
        assert_eq!(nearest("Concurency", known, 0.7), Some("concurrency"));
        assert_eq!(nearest("tare", known, 0.99), None);
        assert_eq!(nearest("anything", [""; 0], 0.0), None);
    }
}
