"""ClusterFuzz's entities, as far as a scheduler reads them, under the names they have in Datastore."""

import os
import sys

import google.auth.credentials
from google.cloud import ndb


class Job(ndb.Model):
    """A job type: what a task's `job` attribute names. Its key is a number."""

    name = ndb.StringProperty()
    environment_string = ndb.TextProperty()
    platform = ndb.StringProperty()
    templates = ndb.StringProperty(repeated=True)
    project = ndb.StringProperty()
    base_os_version = ndb.StringProperty()
    description = ndb.TextProperty()
    keywords = ndb.StringProperty(repeated=True)


class JobTemplate(ndb.Model):
    """Lines of environment that several job types share."""

    name = ndb.StringProperty()
    environment_string = ndb.TextProperty()


class OssFuzzProject(ndb.Model):
    """A project; its key is its name."""

    name = ndb.StringProperty()
    base_os_version = ndb.StringProperty()
    high_end = ndb.BooleanProperty(default=False)
    cpu_weight = ndb.FloatProperty(default=1.0)
    disk_size_gb = ndb.IntegerProperty()
    service_account = ndb.StringProperty()


class FeatureFlag(ndb.Model):
    """A switch of the farm's operators; its key is its name."""

    enabled = ndb.BooleanProperty(default=False)
    value = ndb.FloatProperty()
    string_value = ndb.StringProperty()
    description = ndb.TextProperty()


def context():
    """A context in which entities of the emulator can be read and written: `with context(): …`."""
    if not os.environ.get("DATASTORE_EMULATOR_HOST"):
        # A farm's own entities have more properties, which writing these would lose.
        sys.exit("DATASTORE_EMULATOR_HOST is not set: these examples write to an emulator only")
    client = ndb.Client(
        project=os.environ["GOOGLE_CLOUD_PROJECT"],
        credentials=google.auth.credentials.AnonymousCredentials(),
    )
    return client.context(cache_policy=False)
