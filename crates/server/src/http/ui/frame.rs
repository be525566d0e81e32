//! What stands around every page.

use outlast_dashboard::{Frame, May, Place, Reader};

use crate::access::Scope;
use crate::http::findings::store_trouble;
use crate::http::request::{ApiRequest, encoded};
use crate::settings::UiMode;

/// Returns the frame of a page.
pub(super) async fn of(req: &ApiRequest, place: Place, title: String, command: String) -> Frame {
    let engine = &req.app.engine;
    let path = req.path_and_query().to_owned();
    let way = path.split('?').next().unwrap_or_default();
    let facts = engine.store().facts();
    let kind = match facts.kind {
        "sqlite" => "SQLite",
        "postgres" => "PostgreSQL",
        other => other,
    };
    let health = engine.health();
    let trouble = match (store_trouble(&health), facts.durable) {
        (Some((words, _)), _) => Some(words),
        (None, false) => {
            Some("--unsafe-no-fsync: a crash loses accepted jobs. For experiments only.".to_owned())
        }
        (None, true) => None,
    };
    Frame {
        place,
        title,
        depth: way.matches('/').count(),
        path,
        reader: reader(req),
        // While the store does not answer, the page says so; its times are then this machine's.
        now: engine.now().await.unwrap_or_else(|_| crate::clock::wall()),
        counted: None,
        server: format!("Store: {kind}"),
        trouble,
        version: engine.settings().version,
        command,
        flash: None,
        is_live: place != Place::Elsewhere,
        is_bare: false,
    }
}

fn reader(req: &ApiRequest) -> Reader {
    let reader = known(req);
    if req.app.engine.settings().ui == UiMode::On {
        return reader;
    }
    let why = "The pages of this server are for reading only, so there are no buttons.";
    Reader { may: May::default(), why_not: Some(why.to_owned()), ..reader }
}

fn known(req: &ApiRequest) -> Reader {
    let Some(token) = req.token() else {
        let all = May { produce: true, operate: true, administer: true, press: true };
        if !req.may_order() {
            let why = "Without tokens, buttons work only at an address or at localhost: anyone could point \
                       another name here.";
            return Reader { why_not: Some(why.to_owned()), ..Reader::default() };
        }
        return Reader { may: all, ..Reader::default() };
    };
    let may = May {
        produce: token.role.allows(Scope::Produce),
        operate: token.role.allows(Scope::Operate),
        administer: token.role.allows(Scope::Administer),
        press: true,
    };
    let why_not = (!may.operate).then(|| {
        let role = token.role.as_str();
        format!("The role {role} does not allow everything, so some buttons are not there.")
    });
    Reader {
        name: Some(token.name.clone()),
        role: Some(token.role.as_str()),
        may,
        why_not,
        has_session: req.session().is_some(),
        sign_in: sign_in_for(req.path_and_query()),
    }
}

/// The page that signs in and comes back to another one, from the root.
pub(super) fn sign_in_for(next: &str) -> String {
    format!("login?next={}", encoded(next))
}
