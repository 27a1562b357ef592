"""Says how many messages the subscription still has: pulls for some seconds, and gives them back.

A message that another process holds a lease of is not seen: stop the scheduler first, and wait for
longer than the subscription's ack deadline (10 s), as this does by default.

usage: waiting.py [SECONDS]
"""

import os
import sys
import time

from google.api_core import exceptions, retry
from google.cloud import pubsub_v1

SUBSCRIPTION = "utask_main"


def main():
    end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 12)
    client = pubsub_v1.SubscriberClient()
    path = client.subscription_path(os.environ["GOOGLE_CLOUD_PROJECT"], SUBSCRIPTION)
    held = []
    while time.monotonic() < end:
        try:
            answer = client.pull(
                subscription=path, max_messages=1000, timeout=3, retry=retry.Retry(deadline=1)
            )
        except (exceptions.DeadlineExceeded, exceptions.RetryError):
            continue
        held += [message.ack_id for message in answer.received_messages]
    for at in range(0, len(held), 500):
        ids = held[at : at + 500]
        client.modify_ack_deadline(subscription=path, ack_ids=ids, ack_deadline_seconds=0)
    print(f"{len(held)} messages are left")


if __name__ == "__main__":
    main()
