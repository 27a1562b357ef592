//! What is made of the kernel's files, on copies of them. The kernel itself is e2e's.

use super::*;

const MIXED: &str = "36 31 0:35 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
const UNIFIED: &str =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn the_own_cgroup_is_found_in_either_version_and_inside_a_container() {
    let check = |cgroup: &str, mountinfo: &str, expect: Option<(Version, &str)>| {
        let found = Home::parse(cgroup, mountinfo).map(|home| (home.version, home.own));
        assert_eq!(found, expect.map(|(version, own)| (version, own.into())), "{cgroup}");
    };
    let v1 = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/c\n";
    check(v1, MIXED, Some((Version::V1, "/sys/fs/cgroup/memory/a/b")));
    check("4:memorable:/a\n0::/c\n", MIXED, Some((Version::V2, "/sys/fs/cgroup/unified/c")));
    let session = "0::/user.slice/user-1000.slice/session-3.scope\n";
    let own = "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope";
    check(session, UNIFIED, Some((Version::V2, own)));
    check("0::/\n", UNIFIED, Some((Version::V2, "/sys/fs/cgroup/")));
    // A container that sees its own part of the tree only.
    let part =
        "36 31 0:35 /docker/1 /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory\n";
    check("4:memory:/docker/1\n", part, Some((Version::V1, "/sys/fs/cgroup/memory/")));
    check("4:memory:/docker/2\n", part, None);
    check("0::/../outside\n", UNIFIED, None);
    check("4:memory:/a\n", UNIFIED, None);
    check("", "", None);
}

/// A tree of version 2's files: a directory, its controllers, its subtree's, its processes.
fn tree(groups: &[(&str, &str, &str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (path, controllers, subtree, processes) in groups {
        let group = dir.path().join(path);
        std::fs::create_dir_all(&group).expect("made");
        let put = |name: &str, text: &str| std::fs::write(group.join(name), text).expect("written");
        put("cgroup.controllers", controllers);
        put("cgroup.subtree_control", subtree);
        put("cgroup.procs", processes);
    }
    dir
}

#[test]
fn in_version_2_a_cgroup_of_ones_own_is_taken_and_else_the_nearest_that_may_be_used() {
    let check = |own: &str, groups: &[(&str, &str, &str, &str)], expect: Option<(&str, bool)>| {
        let dir = tree(groups);
        let mount = dir.path().to_owned();
        let home = Home { version: Version::V2, own: mount.join(own), mount: mount.clone() };
        let found = in_version_2(&home, 7);
        let found = found.as_ref().map(|found| {
            let place = found.place.strip_prefix(&mount).expect("below");
            (place.to_str().expect("text"), found.leave.is_some())
        });
        assert_eq!(found.ok(), expect, "{own}");
    };
    let all = "cpu memory pids\n";
    // A service that is delegated.
    let top = ("", all, "memory", "");
    check("s", &[top, ("s", all, "", "7\n")], Some(("s", true)));
    // A shell is in there, too: beside it.
    check("a/s", &[top, ("a", all, "memory", ""), ("a/s", all, "", "6\n7\n")], Some(("a", false)));
    // The subgroup of a delegated service: what is above has nobody in it and can be used.
    check("s/m", &[top, ("s", all, "", ""), ("s/m", "", "", "7\n")], Some(("s", false)));
    // Not where processes are, nor where the controller is not.
    check("a/s", &[("a", all, "", "5\n"), ("a/s", all, "", "6\n7\n")], None);
    check("a/s", &[("a", "cpu", "cpu", ""), ("a/s", "cpu", "", "7\n")], None);
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let dir = tree(&[("s", "cpu", "", "7\n")]);
    let own = dir.path().join("s");
    let home = Home { version: Version::V2, own: own.clone(), mount: dir.path().to_owned() };
    let missing = in_version_2(&home, 7).expect_err("nothing");
    assert!(
        missing.lacks.contains(&own.display().to_string()) && missing.hint.contains("Delegate")
    );
    let missing = in_version_1(Path::new("/no/such")).expect_err("nothing");
    assert_eq!(missing.lacks, "/no/such (cgroup v1) can't be written");
    assert!(missing.hint.contains("root"));
}

#[test]
fn a_groups_limit_is_written_as_each_version_has_it_and_its_kills_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |version, files: &[(&str, &str)], kills: (&str, &str)| {
        let place = dir.path().join(format!("{version:?}"));
        std::fs::create_dir(&place).expect("made");
        let cgroups = Cgroups { version, place, leave: None };
        let group = cgroups.group(Path::new("/work"), "cf-job-1");
        assert_ne!(group, cgroups.group(Path::new("/work2"), "cf-job-1"));
        group.make(4096).expect("made");
        for (file, text) in files {
            let found = std::fs::read_to_string(group.path.join(file)).expect("written");
            assert_eq!(found, *text, "{file}");
        }
        assert_eq!(group.oom_kills(), 0);
        std::fs::write(group.path.join(kills.0), kills.1).expect("written");
        assert_eq!(group.oom_kills(), 3);
    };
    let v1 = [("memory.limit_in_bytes", "4096"), ("memory.memsw.limit_in_bytes", "4096")];
    check(
        Version::V1,
        &v1,
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
    );
    let v2 = [
        ("memory.max", "4096"),
        ("memory.swap.max", "0"),
        ("../cgroup.subtree_control", "+memory"),
    ];
    check(Version::V2, &v2, ("memory.events", "oom 5\noom_kill 3\noom_group_kill 1\n"));
}
