//! How often this machine can make a small append durable.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to measure.
const LENGTH: Duration = Duration::from_secs(2);

/// Returns durable 4 KiB appends a second in `folder`, one after the other.
pub(crate) fn rate(folder: &Path) -> anyhow::Result<f64> {
    let mut file = std::fs::File::create(folder.join("fsync"))?;
    let block = [0_u8; 4096];
    let begun = Instant::now();
    let mut count = 0_usize;
    while begun.elapsed() < LENGTH {
        file.write_all(&block)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(crate::rate(count, begun))
}
