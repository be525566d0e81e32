//! What stands around every page.

use outlast_core::time::{Span, Timestamp};

use crate::assets::{SCRIPT, STYLE};
use crate::atoms::Lasting;

/// The pages of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// What needs someone.
    Now,
    /// Jobs.
    Jobs,
    /// Why jobs wait.
    Waiting,
    /// Queues.
    Queues,
    /// Workers.
    Workers,
    /// Workers by version.
    Deploy,
    /// Attempts that were lost.
    Losses,
    /// Failures by type and error.
    Failures,
    /// Dead letters.
    DeadLetters,
    /// Limits and who holds them.
    Limits,
    /// Schedules.
    Schedules,
    /// Workflows.
    Workflows,
    /// Who did what.
    Log,
    /// Servers.
    Servers,
    /// Actions.
    Actions,
    /// A page that no menu has.
    Elsewhere,
}

impl Place {
    /// What the menu has, in its order.
    pub const MENU: [Self; 15] = [
        Self::Now,
        Self::Jobs,
        Self::Waiting,
        Self::Queues,
        Self::Workers,
        Self::Deploy,
        Self::Losses,
        Self::Failures,
        Self::DeadLetters,
        Self::Limits,
        Self::Schedules,
        Self::Workflows,
        Self::Log,
        Self::Servers,
        Self::Actions,
    ];

    /// Its name in the menu.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Now => "Now",
            Self::Jobs => "Jobs",
            Self::Waiting => "Waiting",
            Self::Queues => "Queues",
            Self::Workers => "Workers",
            Self::Deploy => "Deploy",
            Self::Losses => "Losses",
            Self::Failures => "Failures",
            Self::DeadLetters => "Dead letters",
            Self::Limits => "Limits",
            Self::Schedules => "Schedules",
            Self::Workflows => "Workflows",
            Self::Log => "Log",
            Self::Servers => "Servers",
            Self::Actions => "Actions",
            Self::Elsewhere => "",
        }
    }

    /// Its path, without the slash that it begins with.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Now | Self::Elsewhere => "",
            Self::Jobs => "jobs",
            Self::Waiting => "waiting",
            Self::Queues => "queues",
            Self::Workers => "workers",
            Self::Deploy => "deploy",
            Self::Losses => "losses",
            Self::Failures => "failures",
            Self::DeadLetters => "dead-letters",
            Self::Limits => "limits",
            Self::Schedules => "schedules",
            Self::Workflows => "workflows",
            Self::Log => "events",
            Self::Servers => "servers",
            Self::Actions => "actions",
        }
    }
}

/// What a reader may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a right of its own")]
pub struct May {
    /// Enqueue and cancel jobs.
    pub produce: bool,
    /// Give orders to workers and queues, retry, and the like.
    pub operate: bool,
    /// Everything else.
    pub administer: bool,
    /// Press buttons that need no right, such as to end a session of one's own.
    pub press: bool,
}

/// Who looks at a page.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// The name of the token; none if the server has none.
    pub name: Option<String>,
    /// Its role.
    pub role: Option<&'static str>,
    /// What it allows here.
    pub may: May,
    /// Why it allows less than it could, if it does.
    pub why_not: Option<String>,
    /// Whether there is a session that can be ended.
    pub has_session: bool,
    /// The page that signs in and comes back to this one, from the root; empty if there is none.
    pub sign_in: String,
}

/// What came of the request before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Whether it did what it was to do.
    pub is_good: bool,
    /// What to say.
    pub text: String,
}

/// What stands around a page.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Where the page is in the menu.
    pub place: Place,
    /// What the page is about.
    pub title: String,
    /// How many folders deep its path is.
    pub depth: usize,
    /// Its own path and query, without the slash that they begin with.
    pub path: String,
    /// Who looks at it.
    pub reader: Reader,
    /// When it is made, by the store's clock.
    pub now: Timestamp,
    /// When its numbers were counted, if it has numbers that are.
    pub counted: Option<Timestamp>,
    /// The server and its store, in a few words.
    pub server: String,
    /// What is wrong with the store, if something is.
    pub trouble: Option<String>,
    /// The build of the server.
    pub version: &'static str,
    /// The command that shows the same.
    pub command: String,
    /// What came of the request before.
    pub flash: Option<Flash>,
    /// Whether it is kept up to date.
    pub is_live: bool,
    /// Whether it is for readers whom the server does not know: without a menu.
    pub is_bare: bool,
}

impl Frame {
    /// The way from the page to the root of the dashboard.
    #[must_use]
    pub fn root(&self) -> String {
        if self.depth == 0 { "./".to_owned() } else { "../".repeat(self.depth) }
    }

    /// What stands in the menu.
    #[must_use]
    pub const fn menu(&self) -> &'static [Place] {
        &Place::MENU
    }

    /// The name of the style sheet.
    #[must_use]
    pub fn style(&self) -> &'static str {
        &STYLE.name
    }

    /// The name of the script.
    #[must_use]
    pub fn script(&self) -> &'static str {
        &SCRIPT.name
    }

    /// How old the page's numbers are.
    #[must_use]
    pub fn age(&self) -> String {
        let age = self.counted.map_or(Span::ZERO, |counted| self.now.since(counted));
        format!("{} old", Lasting(age))
    }

    /// Whether its numbers are too old to go by.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.counted.is_some_and(|counted| self.now.since(counted) > Span::from_secs(3))
    }

    /// An instant that may change, as the page shows it.
    #[must_use]
    pub fn live_moment(&self, at: Timestamp, row: &str, column: usize) -> crate::atoms::LiveMoment {
        let moment = self.moment(at);
        crate::atoms::LiveMoment { moment, key: format!("{row}.{column}") }
    }

    /// An instant, as the page shows it.
    #[must_use]
    pub const fn moment(&self, at: Timestamp) -> crate::atoms::Moment {
        crate::atoms::Moment { at, now: self.now }
    }
}
