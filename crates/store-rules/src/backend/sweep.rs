//! What time alone does to jobs.

use outlast_store::command::{Strand, Sweep};
use outlast_store::reply::{Stranded, Swept};

use super::{Backend, carry_out};
use crate::apply::sweep::{self, Due};

pub(super) async fn sweep<B: Backend>(backend: &mut B, order: &Sweep) -> Result<Swept, B::Error> {
    let mut swept = Swept::default();
    for due in [Due::Timer, Due::Expiry, Due::Visibility, Due::Deadline] {
        let found = backend.due(due, order).await?;
        swept.more |= found.more;
        for loaded in &found.jobs {
            // The nth move of a command draws the nth jitter, of whatever kind it is.
            let nth = swept.moved.len();
            if let Some(decided) = sweep::due(loaded, due, nth, &backend.context()) {
                swept.moved.push(carry_out(backend, loaded, &decided).await?);
            }
        }
    }
    Ok(swept)
}

pub(super) async fn strand<B: Backend>(
    backend: &mut B,
    order: &Strand,
) -> Result<Stranded, B::Error> {
    let mut stranded = Stranded::default();
    for (nth, loaded) in backend.stranded(order).await?.into_iter().enumerate() {
        if let Some(decided) = sweep::strand(&loaded, order, nth, &backend.context()) {
            stranded.moved.push(carry_out(backend, &loaded, &decided).await?);
        }
    }
    stranded.next = backend.next_stranded(order).await?;
    Ok(stranded)
}
