//! The event log as a page.

use crate::http::error::ApiError;
use crate::http::event_log;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;

pub(super) async fn list(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let mut query = event_log::filter(&mut req).await?;
    query.after = event_log::cursor(&req);
    query.limit = req.page()?.limit;
    let (events, next) = event_log::read(&req.app, query).await?;
    Ok(ApiResponse::object(|object| {
        object
            .array("events", &events, |out, (cursor, event)| event_log::write(out, cursor, event));
        object.text_or_null("next_cursor", next.as_deref());
    }))
}
