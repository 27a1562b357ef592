//! Finds Jobs by their labels, for commands of operators. The scheduler itself watches.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::api::{ApiError, Page, SelectedJob};
use super::client::{JSON, KubeApi};

impl KubeApi {
    /// All Jobs that carry these labels.
    ///
    /// # Errors
    /// The first page that can't be read.
    pub async fn select_jobs(&self, labels: &str) -> Result<Vec<SelectedJob>, ApiError> {
        let labels = utf8_percent_encode(labels, NON_ALPHANUMERIC);
        let selector = format!("labelSelector={labels}");
        let (mut jobs, mut next) = (Vec::new(), None);
        loop {
            let page: Page<SelectedJob> =
                self.list(&self.jobs(), JSON, &selector, next.as_deref()).await?;
            jobs.extend(page.items);
            match page.next {
                Some(more) => next = Some(more),
                None => return Ok(jobs),
            }
        }
    }
}
