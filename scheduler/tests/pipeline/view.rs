//! What others may see of a running pipeline.

use std::time::Duration;

use katabatch::domain::outcome::*;

use crate::world;
use crate::{created, deferred};

#[tokio::test(start_paused = true)]
async fn a_refusal_is_seen_until_something_is_scheduled_again() {
    let answer = |name: &str, nth| match nth {
        1 => deferred(Scope::Backend, HoldKind::Forbidden, 5),
        _ => created(name, nth),
    };
    let mut world = world::world(Box::new(answer), 0, 9, false);
    let view = world.pipeline.view();
    world.put("a", "1");
    let looking = view.clone();
    let early = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(4)).await;
        looking.seen()
    });
    world.run_for(Duration::from_secs(30)).await;
    let early = early.await.unwrap();
    let kind = |of: &katabatch::pipeline::view::Seen| {
        of.backends.first().and_then(|b| b.refused.as_ref()).map(|why| why.kind)
    };
    assert_eq!(kind(&early), Some(HoldKind::Forbidden));
    assert_eq!(early.held.get(&HoldKind::Forbidden).map(|held| held.tasks), Some(1));
    assert_eq!(early.queues.first().map(|q| (q.in_hand, q.oldest.is_some())), Some((1, true)));
    let late = view.seen();
    assert_eq!((kind(&late), late.held.len(), late.obstacles.is_empty()), (None, 0, true));
    let stages: Vec<_> = view.stages().iter().map(|(stage, h)| (stage, h.count())).collect();
    assert_eq!(stages, [("queued", 1), ("held", 1), ("submitted", 1)]);
}
