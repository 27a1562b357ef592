//! A list's pages, all of one moment.

use std::collections::BTreeMap;

use super::super::api::{ApiError, Page};

/// The first page of `all`, whose sequels are put into `pages`; or the one that `next` names.
pub(super) fn page_of<T: Clone>(
    pages: &mut BTreeMap<String, Page<T>>,
    all: impl Iterator<Item = T>,
    size: usize,
    version: u64,
    next: Option<&str>,
) -> Result<Page<T>, ApiError> {
    if let Some(token) = next {
        return pages.remove(token).ok_or_else(|| {
            ApiError::answered(410, "Expired", "The provided continue parameter is too old")
        });
    }
    let all: Vec<T> = all.collect();
    let mut chunks: Vec<Vec<T>> = all.chunks(size.max(1)).map(<[T]>::to_vec).collect();
    if chunks.is_empty() {
        chunks.push(Vec::new());
    }
    let token = |n: usize| format!("{version}/{n}");
    let last = chunks.len() - 1;
    let made = chunks.into_iter().enumerate().map(|(n, items)| {
        let next = (n < last).then(|| token(n + 1));
        (token(n), Page { items, next, resource_version: version.to_string() })
    });
    pages.extend(made);
    pages.remove(&token(0)).ok_or_else(|| ApiError::lost("no first page"))
}
