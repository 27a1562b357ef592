//! Our Jobs, truly run: rendered and created by a real `katabatch run`, on a node of this machine
//! whose kubelet, containerd and runc are real. **The handler `kata` is runc here**: what is shown is
//! what becomes of a pod, and nothing about isolation.

#[path = "real/cleanup.rs"]
mod cleanup;
#[path = "real/ends.rs"]
mod ends;
#[path = "real/node.rs"]
mod node;
#[path = "real/pod.rs"]
mod pod;
#[path = "real/url.rs"]
mod url;
#[path = "real/world.rs"]
mod world;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use katabatch_e2e::Suite;
use katabatch_e2e::process::as_katabatch;

/// Long enough for a busy machine; nothing here takes nearly so long.
const SOON: Duration = Duration::from_secs(90);

/// Lists each test under its own name; the long ones first.
macro_rules! suite {
    ($($file:ident::$test:ident,)*) => {
        Suite::new()?.side_by_side(6)$(.real(stringify!($test), $file::$test))*
    };
}

fn main() -> Result<ExitCode> {
    if let Some(code) = as_katabatch() {
        return Ok(code);
    }
    let suite = suite! {
        node::a_killed_kubelet_loses_the_node_and_its_pods,
        cleanup::a_killed_run_is_cleaned_up_by_the_next,
        url::the_process_gets_the_url_byte_for_byte,
        ends::an_absent_image_lasts_until_the_deadline,
        ends::a_task_over_its_deadline_is_ended,
        ends::a_hook_that_cannot_run_fails_the_task,
        ends::too_much_memory_is_told_from_a_failure,
        ends::a_child_killed_for_memory_is_the_tasks_own_matter,
        ends::the_exit_code_and_the_last_words_arrive,
        ends::a_full_dev_shm_is_seen_inside,
        pod::the_shell_sees_dev_shm_of_its_size,
        pod::a_privileged_pod_has_every_capability,
    };
    Ok(suite.main())
}
