//! A task given on the command line, for `submit` and `render`.

use std::collections::BTreeMap;

use anyhow::bail;

use crate::domain::task::id_of;

/// One task.
#[derive(Debug, Clone, clap::Args)]
pub struct TaskArgs {
    /// The command, such as fuzz.
    #[arg(long, value_name = "COMMAND")]
    pub command: Option<String>,
    /// The job type.
    #[arg(long, value_name = "JOB_TYPE")]
    pub job: Option<String>,
    /// The input: a signed https:// URL or a gs:// path. `@FILE` reads it from a file, which keeps
    /// a signed URL out of the process list and the shell's history.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// What tells the task from others where the URL names no Cloud Storage object. Default: the
    /// URL without its query.
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
}

impl TaskArgs {
    /// The task as a message: its id and attributes.
    ///
    /// # Errors
    /// When a part is missing or the URL's file can't be read.
    pub fn message(&self) -> anyhow::Result<(String, BTreeMap<String, String>)> {
        let (Some(command), Some(job), Some(url)) = (&self.command, &self.job, &self.url) else {
            bail!(
                "a task needs --command, --job and --url\nhint: katabatch submit --command fuzz --job JOB_TYPE --url @FILE"
            );
        };
        let url = match url.strip_prefix('@') {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|e| anyhow::anyhow!("{file}: {e}"))?
                .trim_end_matches(['\n', '\r'])
                .to_owned(),
            None => url.clone(),
        };
        let id = self.id.clone().unwrap_or_else(|| id_of(command, job, &url));
        let pairs = [("command", command.clone()), ("job", job.clone()), ("argument", url)];
        Ok((id, pairs.map(|(key, value)| (key.to_owned(), value)).into()))
    }
}
