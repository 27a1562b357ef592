//! The input's URL, as the process gets it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::Case;
use katabatch_e2e::farm::{JOB_TYPE, task};
use katabatch_e2e::real::RealNode;

use crate::world::{Ending, Work, World};

/// What would be code to a shell, to Kubernetes' expansion, to YAML, to a template, to a terminal.
const HOSTILE: [&str; 16] = [
    "plain?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Signature=00ff",
    "a/b%2Fc%00%0a%25?x=1&y=%26&z",
    "home?x=$(HOST_UID)&y=$$&z=$$(UWORKER)&w=$",
    "dollars?$$$(HOST_UID)$$$$(&$(UNKNOWN)&$(E2E_SCRIPT)",
    "shell?`id`;$(id)&${HOME}|id>x<y#z!*~",
    "quotes?\"'`\\\"&a=\\n\\\\'\"'\"'",
    "templates?{{ task.url }}{% raw %}{# c #}&safe",
    "yaml?: - # &anchor *alias !tag | > @ ---",
    "lines?a\nb\r\nc\td",
    "unicode?é😀\u{85}\u{2028}\u{202e}\u{feff}\u{fffe}\u{e000}",
    "combining?e\u{301}&ÅÅ&\u{ac00}",
    "controls?\u{1}\u{7f}\u{1b}[31m\u{8}",
    "spaces?  x  ",
    "slots?__katabatch__&KATABATCH_TASK_URL",
    "variables?UWORKER_INPUT_DOWNLOAD_URL=x\u{1f}HOST_UID=0",
    "long?",
];

/// All that a process was started with, but for what is between the bytes.
const SHOW: &str = "od -An -v -tx1 /proc/1/environ";

pub async fn the_process_gets_the_url_byte_for_byte(case: Case, node: Arc<RealNode>) -> Result<()> {
    let mut urls: Vec<String> =
        HOSTILE.iter().map(|rest| format!("https://storage.googleapis.com/b/{rest}")).collect();
    if let Some(long) = urls.last_mut() {
        long.push_str(&"x$(HOST_UID)".repeat(600));
    }
    let world = World::start(&case, &node, Work::script(SHOW)).await?;
    world.put(&urls).await?;
    for url in &urls {
        let name = task("fuzz", JOB_TYPE, url)?.job_name().to_string();
        let environment = environment(&world, &name).await.with_context(|| format!("{url:?}"))?;
        let variable = |name: &str| environment.get(name.as_bytes()).map(Vec::as_slice);
        let got = variable("UWORKER_INPUT_DOWNLOAD_URL").context("the variable is gone")?;
        ensure!(got == url.as_bytes(), "{url:?} became {:?}", String::from_utf8_lossy(got));
        ensure!(variable("HOST_UID") == Some(b"1337"), "{url:?} changed HOST_UID");
        ensure!(variable("E2E_SCRIPT") == Some(SHOW.as_bytes()), "{url:?} changed the script");
    }
    Ok(())
}

/// The variables of a Job's process, as it printed them.
async fn environment(world: &World, job: &str) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let job = world.site.api::<Job>().get(job).await?;
    let pod = world.pod_of(&job, "has ended", |pod| Ending::of(pod).is_some()).await?;
    let log = world.log(&pod).await?;
    ensure!(Ending::of(&pod).is_some_and(|end| end.code == 0), "it failed: {log}");
    let digits: String = log.split_whitespace().collect();
    let bytes = hex::decode(&digits).with_context(|| format!("not bytes: {log}"))?;
    let variables = bytes.split(|byte| *byte == 0).filter(|variable| !variable.is_empty());
    let pair = |variable: &[u8]| {
        let at = variable.iter().position(|byte| *byte == b'=').context("no = in a variable")?;
        let (name, value) = variable.split_at(at);
        Ok((name.to_vec(), value.get(1..).unwrap_or_default().to_vec()))
    };
    variables.map(pair).collect()
}
