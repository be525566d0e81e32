//! How long to wait after something has failed, so that servers do not hammer a store that is away.

use outlast_core::time::Span;

/// Pauses that double with each failure, up to a limit, and differ from server to server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    first: Span,
    most: Span,
    next: Span,
}

impl Backoff {
    pub(super) fn new(first: Span, most: Span) -> Self {
        let most = most.max(first);
        Self { first, most, next: first }
    }

    /// Returns how long to wait after another failure.
    pub(super) fn failed(&mut self) -> Span {
        let pause = self.next;
        self.next = Span(pause.0.saturating_mul(2)).min(self.most);
        let half = pause.0 / 2;
        let jitter: u64 = rand::random();
        Span(half + jitter % (half + 1))
    }

    /// It went well.
    pub(super) const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_until_it_goes_well() {
        let mut backoff = Backoff::new(Span(50), Span(30_000));
        let pauses: Vec<u64> = (0..14).map(|_| backoff.failed().0).collect();
        for (at, pause) in pauses.iter().enumerate() {
            let whole = (50_u64 << at).min(30_000);
            assert!((whole / 2..=whole).contains(pause), "{pauses:?}");
        }
        backoff.reset();
        assert!(backoff.failed() <= Span(50));
    }
}
