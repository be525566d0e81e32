//! What settings of queues are after an order, and how the event log names them.

use outlast_core::queue::{LetterRule, QueueRefusal, QueueSettings};
use outlast_core::selector::Placement;
use outlast_core::time::Timestamp;
use outlast_store::queue::{QueueRecord, SetQueue};
use sha2::{Digest as _, Sha256};

/// Returns the record to write; `None` if the settings are so already.
///
/// # Errors
/// Returns why they stay as they are.
pub fn set(
    found: Option<&QueueRecord>,
    order: &SetQueue,
    now: Timestamp,
) -> Result<Option<QueueRecord>, QueueRefusal> {
    let none = QueueSettings::default();
    let before = found.map_or(&none, |record| &record.settings);
    let settings = before.changed(&order.change)?;
    if settings == *before {
        return Ok(None);
    }
    let (queue, set_by) = (order.queue.clone(), order.by.clone());
    Ok(Some(QueueRecord { queue, settings, set_by, set_at: now }))
}

/// Says in words what is set, such as `max_depth 100, fair_by tenant, weight tenant:42=3,
/// requires "gpu=true", dead_letter_action ops.report`.
#[must_use]
pub fn words(settings: &QueueSettings) -> String {
    /// Most weights that are named.
    const NAMED_MAX: usize = 10;
    let mut words = Vec::new();
    words.extend(settings.max_depth.map(|max| format!("max_depth {max}")));
    if let Some(fair) = &settings.fair {
        words.push(format!("fair_by {}", fair.key));
        let weights = fair.weights.iter().take(NAMED_MAX);
        words
            .extend(weights.map(|(value, weight)| format!("weight {}:{value}={weight}", fair.key)));
        if fair.weights.len() > NAMED_MAX {
            words.push(format!("{} weights in all", fair.weights.len()));
        }
    }
    let Placement { requires, prefers } = &settings.placement;
    for (what, selector) in [("requires", requires), ("prefers", prefers)] {
        if !selector.is_empty() {
            words.push(format!("{what} \"{selector}\""));
        }
    }
    for LetterRule { reasons, webhook, action } in &settings.dead_letters {
        let reasons: Vec<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
        let of =
            if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(" ")) };
        let receiver = webhook.as_deref().map(receiver_name);
        words.extend(receiver.map(|name| format!("dead_letter_webhook {name}{of}")));
        words.extend(action.as_ref().map(|action| format!("dead_letter_action {action}{of}")));
    }
    if words.is_empty() { "nothing set".to_owned() } else { words.join(", ") }
}

/// Returns what stands for the address of a webhook where many can read it: some receivers are let in
/// by a part of their address.
#[must_use]
pub fn receiver_name(url: &str) -> String {
    let end = url.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = url.split_at(end);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let digest = Sha256::digest(url);
    let digest: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{scheme}{host} #{digest}")
}

#[cfg(test)]
mod tests {
    use outlast_core::job::DeadLetterReason;

    use super::*;

    #[test]
    fn words_name_the_rules_for_dead_letters_and_no_secret() {
        let rule = |reasons: &[DeadLetterReason], webhook: Option<&str>, action: Option<&str>| {
            let [webhook, action] = [webhook, action].map(|it| it.map(str::to_owned));
            LetterRule { reasons: reasons.to_vec(), webhook, action }
        };
        let of = [DeadLetterReason::Exhausted, DeadLetterReason::PoisonSuspect];
        let dead_letters = vec![
            rule(&of, Some("https://hooks.example.com/T0/SECRET"), None),
            rule(&[], None, Some("ops.report")),
        ];
        let settings = QueueSettings { dead_letters, ..QueueSettings::default() };
        let words = words(&settings);
        let (webhook, action) = words.rsplit_once(", ").unwrap();
        assert!(webhook.starts_with("dead_letter_webhook https://hooks.example.com #"), "{words}");
        assert!(webhook.ends_with(" (exhausted poison_suspect)") && !words.contains("SECRET"));
        assert_eq!(action, "dead_letter_action ops.report");
    }
}
