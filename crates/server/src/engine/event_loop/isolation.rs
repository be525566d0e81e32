//! Keeps a worker free for jobs that must run alone, on one server for each class.

use outlast_core::leadership::LeadershipRefusal;
use outlast_core::time::Span;
use outlast_store::command::{ClassId, LeadershipRequest};
use outlast_store::{Command, Reply};

use super::{EventLoop, Planning};
use crate::clock::boot_time;
use crate::engine::batcher::{Op, ReplyTo};
use crate::engine::isolation::{Ask, LEASE};

impl EventLoop {
    /// Brings the reservations up to date.
    pub(super) fn keep_workers_free(&mut self) {
        let Self { sessions, planning: Planning { isolation, classes, .. }, .. } = self;
        for ask in isolation.update(sessions, classes, boot_time()) {
            match ask {
                Ask::Lead(class) => {
                    self.ask_to_lead(class, Some(LEASE), ReplyTo::Isolation(class));
                }
                Ask::Resign(class) => self.ask_to_lead(class, None, ReplyTo::None),
            }
        }
    }

    fn ask_to_lead(&mut self, class: ClassId, hold: Option<Span>, reply_to: ReplyTo) {
        let name = format!("isolate:{}", class.0);
        let request = LeadershipRequest { name, holder: self.server, hold };
        self.batcher.push(Op { command: Command::Leadership(request), reply_to });
    }

    /// The store said who leads for a class.
    pub(super) fn led(&mut self, class: ClassId, reply: &Reply) {
        let now = boot_time();
        match reply {
            Reply::Leadership(Ok(_)) => {
                if !self.planning.isolation.leads(class, LEASE, now) {
                    self.ask_to_lead(class, None, ReplyTo::None);
                }
            }
            Reply::Leadership(Err(LeadershipRefusal::Elsewhere(current))) => {
                let left = self.shared.store_time().map(|now| current.until.since(now));
                self.planning.isolation.waits(class, now.after(left.unwrap_or(LEASE)));
            }
            _ => self.not_led(class),
        }
    }

    /// The store could not say who leads for a class.
    pub(super) fn not_led(&mut self, class: ClassId) {
        self.planning.isolation.waits(class, boot_time().after(Span::from_secs(1)));
    }
}
