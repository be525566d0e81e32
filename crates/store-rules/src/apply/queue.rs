//! What settings of queues are after an order, and how the event log names them.

use outlast_core::queue::{QueueRefusal, QueueSettings};
use outlast_core::selector::Placement;
use outlast_core::time::Timestamp;
use outlast_store::queue::{QueueRecord, SetQueue};

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
/// requires "gpu=true"`.
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
    if words.is_empty() { "nothing set".to_owned() } else { words.join(", ") }
}
