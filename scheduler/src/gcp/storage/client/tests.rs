//! The client against a server that does as it is told.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode as Status;
use axum::response::{IntoResponse, Response as Answer};

use super::*;

/// One answer: a status, a generation, a body.
type Say = (u16, Option<i64>, &'static str);

#[derive(Clone, Default)]
struct Server {
    says: Arc<Mutex<VecDeque<Say>>>,
    heard: Arc<Mutex<Vec<String>>>,
}

async fn answer(State(server): State<Server>, request: Request) -> Answer {
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let heard = format!("{} {} {}", request.method(), request.uri(), token.unwrap_or("-"));
    server.heard.lock().unwrap_or_else(PoisonError::into_inner).push(heard);
    let said = server.says.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (status, generation, body) = said.unwrap_or((500, None, "nothing more to say"));
    let mut answer = (Status::from_u16(status).expect("a status"), body).into_response();
    if let Some(generation) = generation {
        answer.headers_mut().insert("x-goog-generation", generation.into());
    }
    answer
}

/// Tokens `t0`, `t1`, … one for each renewal.
#[derive(Default)]
struct Counting(Mutex<u32>);

#[async_trait]
impl Tokens for Counting {
    async fn bearer(&self) -> Result<Bearer, TokenError> {
        Ok(Bearer::new(format!("t{}", self.0.lock().expect("unpoisoned"))))
    }

    async fn renew(&self, _refused: &Bearer) -> Result<Bearer, TokenError> {
        *self.0.lock().expect("unpoisoned") += 1;
        self.bearer().await
    }
}

async fn client(says: &[Say], tokens: bool) -> (CloudStorage, Server) {
    let server = Server::default();
    server.says.lock().expect("unpoisoned").extend(says);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = Router::new().fallback(answer).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let endpoint = Endpoint::choose(Some(&format!("http://{address}")), None, GOOGLE);
    let tokens = tokens.then(|| Arc::new(Counting::default()) as Arc<dyn Tokens>);
    (CloudStorage::open(&endpoint, tokens).expect("a client"), server)
}

fn object() -> ObjectName {
    ObjectName::parse("gs://bucket/dir/o x?").expect("a name")
}

fn heard(server: &Server) -> Vec<String> {
    server.heard.lock().expect("unpoisoned").clone()
}

#[tokio::test]
async fn an_object_is_read_once_a_generation() {
    let says =
        [(200, Some(7), "one"), (304, None, ""), (200, Some(7), "one"), (200, Some(8), "two")];
    let (client, server) = client(&says, false).await;
    let known = Generation(7);
    let new = |generation, text: &str| Fetched::New {
        generation: Generation(generation),
        bytes: text.into(),
    };
    assert_eq!(client.read(&object(), None).await, Ok(new(7, "one")));
    assert_eq!(client.read(&object(), Some(known)).await, Ok(Fetched::Same));
    // As an emulator does that does not know the condition.
    assert_eq!(client.read(&object(), Some(known)).await, Ok(Fetched::Same));
    assert_eq!(client.read(&object(), Some(known)).await, Ok(new(8, "two")));
    let path = "GET /storage/v1/b/bucket/o/dir%2Fo%20x%3F?alt=media";
    assert_eq!(heard(&server)[0], format!("{path} -"));
    assert_eq!(heard(&server)[1], format!("{path}&ifGenerationNotMatch=7 -"));
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_and_the_request_sent_again() {
    let (client, server) = client(&[(401, None, ""), (200, None, "{}")], true).await;
    assert_eq!(client.exists(&object()).await, Ok(true));
    let tokens: Vec<String> = heard(&server)
        .iter()
        .filter_map(|line| line.rsplit(' ').next().map(str::to_owned))
        .collect();
    assert_eq!(tokens, ["t0", "t1"]);
}

#[tokio::test]
async fn a_token_that_is_refused_again_is_an_error_of_the_credentials() {
    let (client, _server) = client(&[(401, None, ""), (401, None, "")], true).await;
    assert!(matches!(client.exists(&object()).await, Err(StorageError::Unauthenticated(_))));
}

#[tokio::test]
async fn a_short_trouble_is_waited_out_and_a_longer_one_told() {
    let (client, server) = client(&[(503, None, ""), (404, None, "")], false).await;
    assert_eq!(client.exists(&object()).await, Ok(false));
    assert!(matches!(client.exists(&object()).await, Err(StorageError::Later(_))));
    assert_eq!(heard(&server).len(), 5);
}

#[tokio::test]
async fn a_write_over_a_generation_says_so_and_is_made_once() {
    let says = [(200, None, r#"{"generation": "9"}"#), (412, None, ""), (503, None, "")];
    let (client, server) = client(&says, false).await;
    let over = Some(Generation(8));
    assert_eq!(client.write(&object(), b"x".to_vec(), over).await, Ok(Generation(9)));
    let lost = client.write(&object(), b"x".to_vec(), over).await;
    assert_eq!(lost, Err(StorageError::Overtaken(object())));
    let doubt = client.write(&object(), b"x".to_vec(), None).await;
    assert!(matches!(doubt, Err(StorageError::Later(_))), "{doubt:?}");
    let lines = heard(&server);
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[0],
        "POST /upload/storage/v1/b/bucket/o?uploadType=media&name=dir%2Fo%20x%3F\
         &ifGenerationMatch=8 -"
    );
}

#[tokio::test]
async fn nobody_there_is_said_without_address_or_number() {
    let endpoint = Endpoint::choose(Some("http://127.0.0.1:1"), None, GOOGLE);
    let client = CloudStorage::open(&endpoint, None).expect("a client");
    let error = client.read(&object(), None).await.expect_err("nobody");
    assert_eq!(error.to_string(), "Cloud Storage can't be reached: no connection comes up");
}
