"""The class against a running katabatch: KATABATCH_URL says where it is, KATABATCH_JOB_TYPE names a
job type that it knows, and KATABATCH_PREFIX what its inputs begin with. Skipped without them."""

from __future__ import annotations

import os
import unittest
from typing import List

from katabatch_clusterfuzz import KatabatchService
from katabatch_clusterfuzz import RemoteTask

URL = os.environ.get("KATABATCH_URL")
JOB_TYPE = os.environ.get("KATABATCH_JOB_TYPE", "")
PREFIX = os.environ.get("KATABATCH_PREFIX", "")


@unittest.skipUnless(URL and JOB_TYPE and PREFIX,
                     "KATABATCH_URL, KATABATCH_JOB_TYPE or KATABATCH_PREFIX is not set")
class LiveTest(unittest.TestCase):
  """A farm's bot, as far as katabatch sees it."""

  def tasks(self, count: int) -> List[RemoteTask]:
    return [
        RemoteTask("fuzz", JOB_TYPE, f"{PREFIX}/{number}?X-Goog-Signature=1")
        for number in range(count)
    ]

  def test_tasks_are_scheduled_and_again_without_harm(self) -> None:
    service = KatabatchService()
    self.assertEqual(service.create_utask_main_jobs(self.tasks(20)), [])
    self.assertEqual(service.create_utask_main_jobs(self.tasks(20)), [])

  def test_what_cant_be_scheduled_comes_back_and_the_others_dont(self) -> None:
    sent = self.tasks(3)
    sent[1] = RemoteTask("fuzz", "there_is_no_such_job_type", f"{PREFIX}/odd")
    left = KatabatchService().create_utask_main_jobs(sent)
    self.assertEqual([id(one) for one in left], [id(sent[1])])

  def test_one_task_by_its_module(self) -> None:
    url = f"{PREFIX}/one"
    service = KatabatchService()
    self.assertIsNone(
        service.create_utask_main_job("a.b.fuzz_task", JOB_TYPE, url))
    left = service.create_utask_main_job("a.b.fuzz_task", JOB_TYPE, "no url")
    self.assertIsInstance(left, RemoteTask)
    self.assertEqual(left.command, "fuzz")


if __name__ == "__main__":
  unittest.main()
