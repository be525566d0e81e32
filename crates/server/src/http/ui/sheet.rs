//! Small things that pages of sections need.

use outlast_dashboard::pages::html;
use outlast_dashboard::pages::sheet::{Cell, Field, Form, Section, SheetPage};
use outlast_dashboard::{Flash, Frame, Place};
use uuid::Uuid;

use super::{frame, orders};
use crate::http::request::ApiRequest;

/// The name of the field that tells forms apart.
pub(super) const ONCE: &str = "once";

/// What a page is called, where it stands, and what came of the order before.
pub(super) struct Head {
    pub(super) place: Place,
    pub(super) title: String,
    pub(super) command: String,
    pub(super) said: Option<Flash>,
}

impl Head {
    pub(super) fn new(place: Place, title: impl Into<String>, command: impl Into<String>) -> Self {
        Self { place, title: title.into(), command: command.into(), said: None }
    }

    pub(super) fn saying(mut self, said: Option<Flash>) -> Self {
        self.said = said;
        self
    }

    pub(super) async fn frame(self, req: &ApiRequest) -> Frame {
        let mut frame = frame::of(req, self.place, self.title, self.command).await;
        frame.flash = self.said;
        frame
    }
}

/// A field by which a form that is sent twice, as by a double click, is known for one.
pub(super) fn once() -> Field {
    Field::hidden(ONCE, Uuid::new_v4().to_string())
}

/// Writes a page, with those of its buttons that its reader may press.
pub(super) fn page(frame: Frame, mut sections: Vec<Section>) -> String {
    let may = |form: &Form| orders::may_press(&frame, &form.action);
    for section in &mut sections {
        match section {
            Section::Buttons(forms) => forms.retain(may),
            Section::Table(table) => {
                for cell in table.rows.iter_mut().flat_map(|row| &mut row.cells) {
                    if let Cell::Buttons(forms) = cell {
                        forms.retain(may);
                    }
                }
            }
            _ => {}
        }
    }
    html(&SheetPage { frame, sections })
}

/// A link to a job.
pub(super) fn job(root: &str, id: impl ToString) -> Cell {
    let id = id.to_string();
    Cell::Link(id.clone(), format!("{root}jobs/{id}"))
}

/// A link to a worker, by its name.
pub(super) fn worker(root: &str, id: Option<impl ToString>, name: Option<&str>) -> Cell {
    match (id, name) {
        (Some(id), name) => {
            let id = id.to_string();
            Cell::Link(
                name.map_or_else(|| id.clone(), str::to_owned),
                format!("{root}workers/{id}"),
            )
        }
        (None, name) => Cell::text(name),
    }
}

/// The last digits of an id: enough to tell rows apart.
pub(super) fn key(id: impl ToString) -> String {
    let id = id.to_string();
    id.rsplit('-').next().unwrap_or(&id).to_owned()
}
