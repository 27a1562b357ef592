//! Many tasks: never more at once than allowed, each exactly once.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_run_once_each_and_never_more_than_jobs_at_a_time() {
    for jobs in [1, 3] {
        let place = Place::new();
        std::fs::create_dir(place.path("now")).expect("a directory");
        let script = "touch $OUT/now/$$; ls $OUT/now | wc -l >> $OUT/seen
            echo $KATABATCH_TASK >> $OUT/ran; rm $OUT/now/$$";
        let running = place.start(script, jobs);
        let workload = place.workload();
        let tasks: Vec<Task> = (0..24).map(|n| task(&format!("gs://b/{n}"))).collect();
        // Each is submitted twice, side by side, as two deliveries of one message.
        let twice = tasks.iter().chain(&tasks);
        let all = twice.map(|task| running.submit_until_placed(&workload, task));
        futures::future::join_all(all).await;
        assert_eq!(running.ended(tasks.len()).await, [(End::Succeeded, tasks.len())].into());

        let most = place.lines("seen").iter().map(|n| n.trim().parse().expect("a count")).max();
        assert!(most <= Some(jobs), "{most:?} at once with {jobs} jobs");
        let mut ran = place.lines("ran");
        ran.sort();
        let mut expect: Vec<String> = tasks.iter().map(|task| task.hash.to_string()).collect();
        expect.sort();
        assert_eq!(ran, expect);
        assert_eq!(running.backend.room().borrow().free(), jobs);
    }
}

#[tokio::test]
async fn at_the_limit_a_task_waits_and_the_room_says_so() {
    let place = Place::new();
    let running = place.start("until test -e $OUT/go; do sleep 0.05; done", 1);
    let workload = place.workload();
    assert_eq!(running.backend.room().borrow().free(), 1);
    assert_eq!(running.submit(&workload, &task("gs://b/1")).await, CREATED);
    assert_eq!(running.backend.room().borrow().free(), 0);
    let second = running.submit(&workload, &task("gs://b/2")).await;
    assert!(matches!(&second, Outcome::Deferred(d) if d.kind == HoldKind::LiveLimit), "{second:?}");
    // What is there already needs no room.
    assert_eq!(running.submit(&workload, &task("gs://b/1")).await, ALREADY_THERE);
    std::fs::write(place.path("go"), "").expect("written");
    running.ended(1).await;
    assert_eq!(running.submit(&workload, &task("gs://b/1")).await, ALREADY_THERE);
    assert_eq!(running.submit(&workload, &task("gs://b/2")).await, CREATED);
    running.ended(2).await;
}

#[tokio::test]
async fn a_finished_task_is_removed_once_it_is_acked_and_not_before() {
    let place = Place::new();
    let mut settings = place.settings(":", 2);
    settings.retain_finished = Duration::ZERO;
    let running = Running::of(LocalBackend::open(settings, Arc::new(SystemClock)).expect("opened"));
    let (acked, unacked) = (task("gs://b/1"), task("gs://b/2"));
    for task in [&acked, &unacked] {
        running.submit(&place.workload(), task).await;
    }
    running.ended(2).await;
    running.backend.acked(&[acked.hash]);
    let dir = |task: &Task| running.backend.tasks.directory(&task.hash);
    eventually("its removal", || async { (!dir(&acked).exists()).then_some(()) }).await;
    assert!(dir(&unacked).exists());
    assert_eq!(running.submit(&place.workload(), &unacked).await, ALREADY_THERE);
}
