"""The class that ClusterFuzz calls, against a fake katabatch."""

from __future__ import annotations

import os
import socket
import tempfile
import unittest
import unittest.mock
from typing import Any
from typing import List

from katabatch_clusterfuzz import Client
from katabatch_clusterfuzz import KatabatchService
from katabatch_clusterfuzz import RemoteTask
from katabatch_clusterfuzz import service as service_module
from tests.fake import Fake
from tests.fake import ok
from tests.fake import outcome
from tests.fake import problem

SIGNATURE = "5ec2e7"


def task(number: int) -> RemoteTask:
  """A fuzzing task."""
  url = f"https://storage.googleapis.com/in/{number}?X-Goog-Signature={SIGNATURE}"
  return RemoteTask("fuzz", "libfuzzer_asan", url)


def tasks(count: int) -> List[RemoteTask]:
  """So many."""
  return [task(number) for number in range(count)]


class ServiceTest(unittest.TestCase):
  """Every test looks at all that was logged: no signature is in it."""

  def setUp(self) -> None:
    self.pauses: List[float] = []
    self.logs = self.enterContext(self.assertLogs()) if hasattr(
        self, "enterContext") else None

  def tearDown(self) -> None:
    if self.logs:
      service_module._LOG.info("the end")  # assertLogs wants one.
      for line in self.logs.output:
        self.assertNotIn(SIGNATURE, line)
        self.assertNotIn("storage.googleapis.com", line)

  def service(self, url: str, **more: Any) -> KatabatchService:
    return KatabatchService(Client(url), sleep=self.pauses.append, **more)

  def same(self, found: List[Any], expect: List[Any]) -> None:
    """The very objects."""
    self.assertEqual([id(one) for one in found], [id(one) for one in expect])

  def test_what_is_scheduled_does_not_come_back_and_the_rest_does(self) -> None:
    sent = tasks(4)

    def answer(got: Any, _: int) -> Any:
      kinds = ["scheduled", "deferred", "rejected", "scheduled"]
      return ok([outcome(t, kind, "why") for t, kind in zip(got, kinds)])

    with Fake(answer) as fake:
      self.same(self.service(fake.url).create_utask_main_jobs(sent), sent[1:3])
    (request,) = fake.requests
    self.assertEqual(request[0]["input_url"], sent[0].input_download_url)
    self.assertEqual(set(request[0]), {"command", "job_type", "input_url", "id"})
    self.assertNotIn(SIGNATURE, request[0]["id"])

  def test_one_task_is_named_by_its_module(self) -> None:
    with Fake(lambda got, _: ok([outcome(t) for t in got])) as fake:
      left = self.service(fake.url).create_utask_main_job(
          "clusterfuzz._internal.bot.tasks.utasks.corpus_pruning_task", "j",
          "gs://b/o")
    self.assertIsNone(left)
    self.assertEqual(fake.requests[0][0]["command"], "corpus_pruning")

  def test_a_lost_answer_is_asked_for_again_with_the_same_ids(self) -> None:
    sent = tasks(3)

    def answer(got: Any, number: int) -> Any:
      return (0, {}, b"") if number == 0 else ok([outcome(t) for t in got])

    with Fake(answer) as fake:
      self.same(self.service(fake.url).create_utask_main_jobs(sent), [])
    self.assertEqual(fake.requests[0], fake.requests[1])

  def test_a_task_that_may_have_been_created_is_asked_about_again(self) -> None:
    sent = tasks(2)

    def answer(got: Any, number: int) -> Any:
      lost = outcome(got[-1], "deferred", "backend_failed", maybe=True)
      return ok([outcome(got[0]), lost] if number == 0 else [outcome(got[0])])

    with Fake(answer) as fake:
      self.same(self.service(fake.url).create_utask_main_jobs(sent), [])
    self.assertEqual([len(request) for request in fake.requests], [2, 1])

  def test_a_deferred_task_is_not_sent_again(self) -> None:
    sent = tasks(1)
    full = lambda got, _: ok([outcome(t, "deferred", "pending_limit") for t in got])
    with Fake(full) as fake:
      self.same(self.service(fake.url).create_utask_main_jobs(sent), sent)
    self.assertEqual(len(fake.requests), 1)

  def test_when_katabatch_is_away_all_come_back_and_nothing_raises(self) -> None:
    with socket.socket() as taken:
      taken.bind(("127.0.0.1", 0))
      url = f"http://127.0.0.1:{taken.getsockname()[1]}"
      sent = tasks(2500)
      self.same(self.service(url).create_utask_main_jobs(sent), sent)
    self.assertEqual(self.pauses, [0.5, 1.0], "the other chunks waited too")

  def test_a_standby_is_asked_again_when_it_said(self) -> None:
    sent = tasks(1)
    with Fake(lambda *_: problem(503, Retry_After="5")) as fake:
      self.same(self.service(fake.url).create_utask_main_jobs(sent), sent)
    self.assertEqual((len(fake.requests), self.pauses), (3, [5.0, 5.0]))

  def test_many_tasks_go_in_chunks_and_too_large_ones_are_halved(self) -> None:
    sent = tasks(2001)

    def answer(got: Any, _: int) -> Any:
      return problem(413) if len(got) > 500 else ok([outcome(t) for t in got])

    with Fake(answer) as fake:
      self.same(self.service(fake.url).create_utask_main_jobs(sent), [])
    self.assertEqual([len(request) for request in fake.requests],
                     [1000, 500, 500, 1000, 500, 500, 1])

  def test_long_urls_make_small_chunks(self) -> None:
    start = "https://h/" + "x" * 100_000
    long = [RemoteTask("fuzz", "j", f"{start}{n}") for n in range(60)]
    with Fake(lambda got, _: ok([outcome(t) for t in got])) as fake:
      self.same(self.service(fake.url).create_utask_main_jobs(long), [])
    self.assertEqual([len(request) for request in fake.requests], [31, 29])

  def test_answers_that_are_none_leave_every_task_unscheduled(self) -> None:
    sent = tasks(2)
    for body in (b"", b"<html>", b"[]", b"{}", b'{"tasks": 7}',
                 b'{"tasks": [{"outcome": "scheduled"}, null]}',
                 b'{"tasks": [{"id": "x", "outcome": "scheduled"}]}'):
      with self.subTest(body), Fake(lambda *_, b=body: (200, {}, b)) as fake:
        self.same(self.service(fake.url).create_utask_main_jobs(sent), sent)

  def test_a_cut_answer_counts_for_the_tasks_that_it_names(self) -> None:
    sent = tasks(3)
    with Fake(lambda got, _: ok([outcome(got[0])])) as fake:
      self.same(self.service(fake.url).create_utask_main_jobs(sent), [])
    self.assertEqual([len(request) for request in fake.requests], [3, 2, 1])

  def test_a_refusal_is_not_repeated(self) -> None:
    sent = tasks(2)
    for status in (401, 403, 404):
      with self.subTest(status), Fake(lambda *_, s=status: problem(s)) as fake:
        self.same(self.service(fake.url).create_utask_main_jobs(sent), sent)
        self.assertEqual(len(fake.requests), 1)

  def test_a_redirect_is_not_followed(self) -> None:
    sent = tasks(1)
    with Fake(lambda got, _: ok([outcome(t) for t in got])) as other:
      away = (302, {"Location": other.url + "/v1/tasks"}, b"")
      with Fake(lambda *_: away) as fake:
        self.same(self.service(fake.url).create_utask_main_jobs(sent), sent)
    self.assertEqual(other.requests, [])

  def test_all_ends_in_bounded_time(self) -> None:
    sent, now = tasks(1), [0.0]

    def clock() -> float:
      now[0] += 100.0
      return now[0]

    with Fake(lambda *_: problem(503)) as fake:
      service = self.service(fake.url, clock=clock)
      self.same(service.create_utask_main_jobs(sent), sent)
    self.assertLess(len(fake.requests), 3)

  def test_a_flag_that_is_off_sends_everything_back(self) -> None:
    sent = tasks(2)
    with Fake(lambda got, _: ok([outcome(t) for t in got])) as fake:
      service = self.service(fake.url, enabled=lambda: False)
      self.same(service.create_utask_main_jobs(sent), sent)
    self.assertEqual(fake.requests, [])

  def test_what_is_no_task_comes_back_alone(self) -> None:
    sent = [task(0), RemoteTask("fuzz", "j", None), task(1)]  # type: ignore
    with Fake(lambda got, _: ok([outcome(t) for t in got])) as fake:
      left = self.service(fake.url).create_utask_main_jobs(sent)
    self.same(left, sent[1:2])

  def test_the_token_is_read_anew_for_each_request(self) -> None:
    with tempfile.TemporaryDirectory() as folder:
      path = os.path.join(folder, "token")
      with Fake(lambda got, _: ok([outcome(t) for t in got])) as fake:
        service = KatabatchService(Client(fake.url, token_file=path))
        self.same(service.create_utask_main_jobs([one := task(0)]), [one])
        for token in ("first", "second"):
          with open(path, "w", encoding="utf-8") as file:
            file.write(token + "\n")
          self.same(service.create_utask_main_jobs(tasks(1)), [])
    self.assertEqual(fake.tokens, ["Bearer first", "Bearer second"])

  def test_without_a_url_all_come_back(self) -> None:
    sent = tasks(1)
    self.assertIsNone(Client.from_environment({}))
    with unittest.mock.patch.dict(os.environ, clear=True):
      self.same(KatabatchService().create_utask_main_jobs(sent), sent)


if __name__ == "__main__":
  unittest.main()
