//! How `check` looks: each look within its own time and apart from all others, so that one that
//! hangs or breaks costs its own row and no other. A terminal shows what is still waited for.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinHandle;

/// The looks of one `check`. Clones share the progress that is shown.
#[derive(Clone)]
pub struct Looks {
    bar: ProgressBar,
}

impl Looks {
    /// None yet.
    pub fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(0);
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos}/{len} looked at, {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }

    /// Looks at `what`, for `within` at the longest.
    ///
    /// # Errors
    /// It took longer, or broke: what to say of it.
    pub async fn at<T: Send + 'static>(
        &self,
        what: &str,
        within: Duration,
        look: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        self.bar.inc_length(1);
        self.bar.set_message(what.to_owned());
        let mut look = AbortOnDrop(tokio::spawn(look));
        let seen = tokio::time::timeout(within, &mut look.0).await;
        self.bar.inc(1);
        match seen {
            Ok(Ok(seen)) => Ok(seen),
            Ok(Err(broken)) => Err(format!("looking at it broke: {broken}")),
            Err(_) => Err(format!("no answer within {} s", within.as_secs())),
        }
    }

    /// Takes the progress off the terminal.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_hangs_or_breaks_costs_itself_alone() {
        let looks = Looks::new();
        let within = Duration::from_secs(20);
        let (good, hung, broken) = tokio::join!(
            looks.at("a", within, async { 1 }),
            looks.at("b", within, std::future::pending::<i32>()),
            looks.at("c", within, async { panic!("broken on purpose") }),
        );
        let broken: Result<i32, String> = broken;
        assert_eq!((good, hung), (Ok(1), Err("no answer within 20 s".to_owned())));
        assert!(broken.is_err_and(|said| said.contains("broke")));
    }
}
