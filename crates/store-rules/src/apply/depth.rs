//! Which requests a bounded queue has room for. A request is stored as a whole or not at all.

use std::collections::BTreeMap;

use outlast_core::queue::Depth;
use outlast_store::job::EnqueueRefusal;

/// How full the bounded ones are of the queues that a request is for.
pub type Depths<'a> = BTreeMap<&'a str, Depth>;

/// By how much a request changes how many jobs wait in each queue.
#[derive(Debug, Default)]
pub struct Adds<'a>(BTreeMap<&'a str, i64>);

impl<'a> Adds<'a> {
    /// A job is stored in a queue.
    pub fn stored(&mut self, queue: &'a str) {
        *self.0.entry(queue).or_default() += 1;
    }

    /// A job that waits in a queue is replaced.
    pub fn replaced(&mut self, queue: &'a str) {
        *self.0.entry(queue).or_default() -= 1;
    }

    /// Checks that the queues have room for the request.
    ///
    /// # Errors
    /// Returns the refusal, and which queue it is about.
    pub fn fit(&self, depths: &Depths<'a>) -> Result<(), (&'a str, EnqueueRefusal)> {
        for (queue, depth) in depths {
            let more = self.0.get(queue).copied().unwrap_or(0);
            if !depth.has_room_for(more) {
                let (more, depth) = (more.unsigned_abs(), *depth);
                let refusal = EnqueueRefusal::QueueFull { queue: (*queue).into(), depth, more };
                return Err((queue, refusal));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(adds: &[(&'static str, i64)], depths: &[(&'static str, u64, u32)]) -> Option<String> {
        let mut all = Adds::default();
        for (queue, more) in adds {
            let each = if *more > 0 { Adds::stored } else { Adds::replaced };
            (0..more.abs()).for_each(|_| each(&mut all, queue));
        }
        let depth = |(queue, jobs, max): &(&'static str, u64, u32)| {
            (*queue, Depth { jobs: *jobs, max: *max })
        };
        let depths: Depths<'_> = depths.iter().map(depth).collect();
        all.fit(&depths).err().map(|(_, refusal)| refusal.to_string())
    }

    #[test]
    fn request_fits_if_every_queue_has_room() {
        assert_eq!(fit(&[("a", 5), ("b", 2)], &[("a", 5, 10), ("b", 0, 2)]), None);
        assert_eq!(fit(&[("a", 100)], &[]), None, "not bounded");
        let full = "queue a has no room for 6 more jobs: 5 wait in it, at most 10 may";
        assert_eq!(fit(&[("a", 6)], &[("a", 5, 10)]).unwrap(), full);
        let full = "queue b is full: 3 jobs wait in it, at most 2 may";
        assert_eq!(fit(&[("a", 1), ("b", 1)], &[("a", 5, 10), ("b", 3, 2)]).unwrap(), full);
    }

    #[test]
    fn job_that_takes_the_place_of_a_waiting_one_needs_no_room() {
        assert_eq!(fit(&[("a", 1), ("a", -1)], &[("a", 10, 10)]), None);
        assert_eq!(fit(&[("a", 1), ("b", -1)], &[("b", 10, 10)]), None);
        let full = "queue a is full: 10 jobs wait in it, at most 10 may";
        assert_eq!(fit(&[("a", 2), ("a", -1)], &[("a", 10, 10)]).unwrap(), full);
        assert_eq!(fit(&[("a", 1), ("b", -1)], &[("a", 10, 10), ("b", 1, 1)]).unwrap(), full);
    }
}
