//! The text of an error with what caused it, which most errors leave to whoever shows them.
//!
//! Takes no credentials out: [`redact`](super::redact) does, where the text goes anywhere.

use std::error::Error;

/// The error with its causes.
pub fn with_causes(error: &dyn Error) -> String {
    follow(error.to_string(), error)
}

/// `text`, which says what `error` itself is, and then its causes, each unless it is said already.
pub fn follow(mut text: String, error: &dyn Error) -> String {
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn each_cause_is_said_once() {
        let inner = Layer("no route", None);
        let middle = Layer("connect: no route", Some(Box::new(inner)));
        let outer = Layer("send", Some(Box::new(middle)));
        assert_eq!(with_causes(&outer), "send: connect: no route");
        assert_eq!(follow("14".to_owned(), &outer), "14: connect: no route");
    }
}
