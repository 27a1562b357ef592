//! `GET /v1/why`: why a job type runs or does not.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::{Endpoint, json};
use crate::domain::name::JobType;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    job_type: JobType,
    command: Option<String>,
}

/// Answers.
pub(super) async fn answer(
    State(endpoint): State<Arc<Endpoint>>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(asked) = read(query.as_deref().unwrap_or_default()) else {
        let text = "the query is ?job_type=JOB_TYPE, with &command=COMMAND or without";
        return Problem::new(StatusCode::BAD_REQUEST, text).into_response();
    };
    let Some(answer) = endpoint.source.why(&asked.job_type, asked.command.as_deref()).await else {
        let text = "this process keeps no ledger";
        return Problem::new(StatusCode::NOT_FOUND, text).into_response();
    };
    match serde_json::to_string(&answer) {
        Ok(text) => json(StatusCode::OK, text),
        Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer can't be written")
            .into_response(),
    }
}

/// `None`: it asks for what is not there, or twice, or for no job type.
fn read(query: &str) -> Option<Asked> {
    let (mut job_type, mut command) = (None, None);
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let asked = match name.as_ref() {
            "job_type" => &mut job_type,
            "command" => &mut command,
            _ => return None,
        };
        if asked.replace(value.into_owned()).is_some() {
            return None;
        }
    }
    Some(Asked { job_type: JobType::from(job_type?.as_str()), command })
}
