"""Publishes fuzzing tasks as ClusterFuzz does: everything in the attributes, the input a signed URL.

usage: publish.py COUNT [FIRST]

Tasks are numbered from FIRST (default 0). A task is its input object: the same number again is the
same task, and makes no second Job.
"""

import os
import sys
import time
import uuid

from google.cloud import pubsub_v1

from put_entities import PROJECTS, SANITIZERS

TOPIC = "utask_main"


def signed_url(number):
    """What a URL signed now for a day looks like. Nobody could fetch it."""
    name = uuid.uuid5(uuid.NAMESPACE_URL, str(number))
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return (
        f"https://storage.googleapis.com/uworker-input/{name}"
        "?X-Goog-Algorithm=GOOG4-RSA-SHA256"
        f"&X-Goog-Credential=worker%40farm.iam.gserviceaccount.com%2F{now[:8]}%2Fauto%2Fstorage%2Fgoog4_request"
        f"&X-Goog-Date={now}&X-Goog-Expires=86400&X-Goog-SignedHeaders=host"
        f"&X-Goog-Signature={uuid.uuid4().hex * 16}"
    )


def main():
    count = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    client = pubsub_v1.PublisherClient()
    topic = client.topic_path(os.environ["GOOGLE_CLOUD_PROJECT"], TOPIC)
    job_types = [f"libfuzzer_{s}_{p}" for p in PROJECTS for s in SANITIZERS]
    sent = [
        client.publish(
            topic,
            b"",
            command="fuzz",
            job=job_types[number % len(job_types)],
            argument=signed_url(number),
            eta=str(time.time()),
        )
        for number in range(first, first + count)
    ]
    for message in sent:
        message.result()
    print(f"{len(sent)} messages")


if __name__ == "__main__":
    main()
