//! Parts of ids, by which people name jobs.

use crate::fault::Fault;

/// Reads the `which` digits of an id, such as the `first` ones, without hyphens and in lower case.
///
/// # Errors
/// Says what the field must be, if these are not 4 to 32 digits.
pub fn digits(field: &str, which: &str, text: &str) -> Result<String, Fault> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let are_digits =
        (4..=32).contains(&digits.len()) && digits.chars().all(|digit| digit.is_ascii_hexdigit());
    if !are_digits {
        return Err(Fault::field(field, format!("must be the {which} 4 to 32 digits of an id")));
    }
    Ok(digits.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn hyphens_and_capitals_do_not_matter_and_other_characters_are_refused() {
        assert_eq!(digits("id", "first", "0198-C0DE-").as_deref(), Ok("0198c0de"));
        for wrong in ["", "019", "12g4", &"0".repeat(33), "žžžž"] {
            let fault = digits("id", "last", wrong).expect_err(wrong).to_string();
            assert!(fault.contains("must be the last 4 to 32 digits of an id"), "{fault}");
        }
    }
}
