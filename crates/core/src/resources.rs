//! What one attempt of a job may use, and what it has used.

use crate::time::Span;

/// Least memory that can be asked for: below it not even a shell starts.
pub const MEMORY_MIN: u64 = 1024 * 1024;
/// Most memory that can be asked for: a pebibyte, which no host has.
pub const MEMORY_MAX: u64 = 1 << 50;
/// Least time of a processor that can be asked for, in thousandths: the kernel counts no finer.
pub const CPU_MILLIS_MIN: u32 = 10;
/// Most processors that can be asked for, in thousandths.
pub const CPU_MILLIS_MAX: u32 = 1_000_000;
/// Most processes and threads that can be asked for: the most that Linux has.
pub const PROCESSES_MAX: u32 = 4_194_304;

/// Limits of one attempt. Those that are not set are not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Resources {
    memory: Option<u64>,
    cpu_millis: Option<u32>,
    processes: Option<u32>,
}

/// A limit that no attempt can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourcesError {
    /// Less than [`MEMORY_MIN`] or more than [`MEMORY_MAX`].
    #[error("memory is {0} bytes: it can be from 1 MiB to 1 PiB")]
    Memory(u64),
    /// Less than [`CPU_MILLIS_MIN`] or more than [`CPU_MILLIS_MAX`].
    #[error("cpu is {0} thousandths of a processor: it can be from 10 to 1000000")]
    Cpu(u32),
    /// None, or more than [`PROCESSES_MAX`].
    #[error("processes is {0}: it can be from 1 to {PROCESSES_MAX}")]
    Processes(u32),
}

impl Resources {
    /// No limits.
    pub const NONE: Self = Self { memory: None, cpu_millis: None, processes: None };

    /// Checks limits: bytes of memory, thousandths of a processor, processes with their threads.
    ///
    /// # Errors
    /// Returns the first that no attempt can have.
    pub fn new(
        memory: Option<u64>,
        cpu_millis: Option<u32>,
        processes: Option<u32>,
    ) -> Result<Self, ResourcesError> {
        if let Some(memory) = memory.filter(|it| !(MEMORY_MIN..=MEMORY_MAX).contains(it)) {
            return Err(ResourcesError::Memory(memory));
        }
        if let Some(cpu) = cpu_millis.filter(|it| !(CPU_MILLIS_MIN..=CPU_MILLIS_MAX).contains(it)) {
            return Err(ResourcesError::Cpu(cpu));
        }
        if let Some(processes) = processes.filter(|it| !(1..=PROCESSES_MAX).contains(it)) {
            return Err(ResourcesError::Processes(processes));
        }
        Ok(Self { memory, cpu_millis, processes })
    }

    /// Most bytes of memory that its processes may have together.
    #[must_use]
    pub const fn memory(&self) -> Option<u64> {
        self.memory
    }

    /// How much of a processor it may use, in thousandths; 2000 are two processors.
    #[must_use]
    pub const fn cpu_millis(&self) -> Option<u32> {
        self.cpu_millis
    }

    /// How many processes and threads it may have at a time.
    #[must_use]
    pub const fn processes(&self) -> Option<u32> {
        self.processes
    }

    /// Whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns these limits, and those of `other` where these say nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.or(other.memory),
            cpu_millis: self.cpu_millis.or(other.cpu_millis),
            processes: self.processes.or(other.processes),
        }
    }
}

/// What an attempt has used, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Most bytes of memory that its processes had at a time.
    pub peak_memory: Option<u64>,
    /// Time on processors, in user and kernel mode.
    pub cpu: Option<Span>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_no_attempt_can_have_are_refused() {
        let new = Resources::new;
        assert_eq!(new(None, None, None), Ok(Resources::NONE));
        assert!(new(Some(MEMORY_MIN), Some(CPU_MILLIS_MIN), Some(1)).is_ok());
        assert!(new(Some(MEMORY_MAX), Some(CPU_MILLIS_MAX), Some(PROCESSES_MAX)).is_ok());
        for memory in [0, MEMORY_MIN - 1, MEMORY_MAX + 1] {
            assert_eq!(new(Some(memory), None, None), Err(ResourcesError::Memory(memory)));
        }
        for cpu in [0, CPU_MILLIS_MIN - 1, CPU_MILLIS_MAX + 1] {
            assert_eq!(new(None, Some(cpu), None), Err(ResourcesError::Cpu(cpu)));
        }
        for processes in [0, PROCESSES_MAX + 1] {
            let refused = new(None, None, Some(processes));
            assert_eq!(refused, Err(ResourcesError::Processes(processes)));
        }
    }

    #[test]
    fn what_is_not_limited_here_is_limited_there() {
        let action = Resources::new(Some(MEMORY_MIN), None, Some(5)).unwrap();
        let job = Resources::new(Some(2 * MEMORY_MIN), Some(500), None).unwrap();
        let both = Resources::new(Some(2 * MEMORY_MIN), Some(500), Some(5)).unwrap();
        assert_eq!(job.or(action), both);
        assert_eq!(Resources::NONE.or(action), action);
    }
}
