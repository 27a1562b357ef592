"""Puts a small farm's job types and flags into Datastore, as ClusterFuzz would write them."""

from google.cloud import ndb

from models import FeatureFlag, Job, JobTemplate, OssFuzzProject, context

PROJECTS = ["abseil-cpp", "curl", "libpng", "zlib"]
SANITIZERS = ["asan", "msan", "ubsan"]


def entities():
    yield JobTemplate(id="libfuzzer", name="libfuzzer", environment_string="APP_NAME = launcher.py\n")
    for sanitizer in SANITIZERS:
        name = f"engine_{sanitizer}"
        yield JobTemplate(id=name, name=name, environment_string="LSAN = False\n")
    for project in PROJECTS:
        yield OssFuzzProject(id=project, name=project)
        for sanitizer in SANITIZERS:
            yield Job(
                name=f"libfuzzer_{sanitizer}_{project}",
                platform="LINUX",
                templates=["libfuzzer", f"engine_{sanitizer}"],
                project=project,
                environment_string=f"PROJECT_NAME = {project}\nMANAGED = True\nDISK_SIZE_GB = None\n",
            )
    yield FeatureFlag(
        id="k8s_jobs_frequency", enabled=True, value=1.0, description="Kubernetes' share of tasks"
    )
    yield FeatureFlag(
        id="k8s_jobs_pending_limit", enabled=True, value=1000, description="Most pending pods"
    )


def main():
    with context():
        # Numbered keys would make a second Job of the same name.
        ndb.delete_multi(Job.query().fetch(keys_only=True))
        keys = ndb.put_multi(list(entities()))
    print(f"{len(keys)} entities")


if __name__ == "__main__":
    main()
