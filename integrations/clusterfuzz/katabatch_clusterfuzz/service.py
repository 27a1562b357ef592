"""What ClusterFuzz calls: a class with the methods of its `RemoteTaskInterface`.

Nothing raises and nothing is lost: what is not known to be scheduled comes back, the very objects
that came in. Sending a task again is harmless, since the same command, job type and input are the
same Job.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from typing import Any
from typing import Callable
from typing import Dict
from typing import List
from typing import Optional
from typing import Sequence
from typing import Tuple

from katabatch_clusterfuzz.client import Client
from katabatch_clusterfuzz.client import Refused
from katabatch_clusterfuzz.client import Unavailable

_LOG = logging.getLogger(__name__)

# katabatch's defaults (http.tasks.limits); a smaller one there makes it refuse, and this halve.
_MOST_TASKS = 1000
_MOST_BYTES = 3 << 20
# How often a request is sent, and a task of which an answer may have been lost.
_TRIES = 3
# The pause before the second try; doubled each time. Retry-After counts up to the longest.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
# All of one call, however many tasks it has: ClusterFuzz leases its messages for ten minutes.
_WITHIN = 240.0


class RemoteTask:
  """A task, for `create_utask_main_job`, which is called without one."""

  def __init__(self, command: str, job_type: str, input_download_url: str):
    self.command = command
    self.job_type = job_type
    self.input_download_url = input_download_url

  def __repr__(self) -> str:
    return f"RemoteTask({self.command!r}, {self.job_type!r})"


class KatabatchService:
  """Schedules ClusterFuzz's remote tasks through katabatch.

  Args:
    client: Where katabatch is. Default: as KATABATCH_URL and KATABATCH_TOKEN_FILE say.
    enabled: Asked at each call; while it answers false, every task comes back. For ClusterFuzz's
      own feature flag: it deals what is left over by rounding to adapters of weight zero too.
    sleep, clock: For tests.
  """

  def __init__(self,
               client: Optional[Client] = None,
               enabled: Optional[Callable[[], bool]] = None,
               sleep: Callable[[float], None] = time.sleep,
               clock: Callable[[], float] = time.monotonic):
    self._client = client
    self._enabled = enabled
    self._sleep = sleep
    self._clock = clock

  def create_utask_main_job(self, module: str, job_type: str,
                            input_download_url: str) -> Optional[RemoteTask]:
    """Schedules one task; returns it if it was not scheduled."""
    command = command_of(module)
    left = self.create_utask_main_jobs(
        [RemoteTask(command, job_type, input_download_url)])
    return left[0] if left else None

  def create_utask_main_jobs(self, remote_tasks: Sequence[Any]) -> List[Any]:
    """Schedules tasks; returns those that were not, the very objects that came in."""
    tasks = list(remote_tasks)
    scheduled: set[int] = set()
    try:
      if tasks and (self._enabled is None or self._enabled()):
        self._send(tasks, scheduled)
    except Exception as error:  # pylint: disable=broad-except
      # Its text could quote a task.
      _LOG.error("katabatch: sending tasks failed: %s", type(error).__name__)
    left = [task for at, task in enumerate(tasks) if at not in scheduled]
    if left:
      _LOG.warning("katabatch: %d of %d tasks were not scheduled.", len(left),
                   len(tasks))
    return left

  def _send(self, tasks: List[Any], scheduled: set[int]) -> None:
    client = self._client or Client.from_environment()
    if client is None:
      _LOG.error("katabatch: KATABATCH_URL is not set.")
      return
    until = self._clock() + _WITHIN
    bodies = [(at, _body(task)) for at, task in enumerate(tasks)]
    waiting = _chunks([item for item in bodies if item[1] is not None])
    while waiting:
      chunk = waiting.pop(0)
      try:
        self._send_chunk(client, chunk, scheduled, until)
      except Unavailable as error:
        # The others would only wait for the same.
        _LOG.error("katabatch: %s", error)
        return
      except Refused as error:
        # It takes less at once than this thought; or it refuses this one alone.
        if error.status in (413, 422) and len(chunk) > 1:
          half = len(chunk) // 2
          waiting[:0] = [chunk[:half], chunk[half:]]
        elif error.status in (413, 422):
          _LOG.error("katabatch: a task was refused: %s", error)
        else:
          _LOG.error("katabatch: %s", error)
          return

  def _send_chunk(self, client: Client, chunk: List[_Item], scheduled: set[int],
                  until: float) -> None:
    for attempt in range(_TRIES):
      try:
        outcomes = client.post([body for _, body in chunk],
                               timeout=self._left(until))
      except Unavailable as error:
        if attempt + 1 == _TRIES or not self._pause(attempt, error.retry_after,
                                                    until):
          raise
        continue
      again = _settle(chunk, outcomes, scheduled)
      # An answer that was lost on katabatch's way is settled by asking again.
      if not again or attempt + 1 == _TRIES or not self._pause(
          attempt, None, until):
        return
      chunk = again

  def _left(self, until: float) -> float:
    left = until - self._clock()
    if left <= 0:
      raise Unavailable("no time is left")
    return left

  def _pause(self, attempt: int, wanted: Optional[float], until: float) -> bool:
    """Waits before the next try, unless that would be too late."""
    pause = max(_FIRST_PAUSE * 2**attempt, min(wanted or 0.0, _LONGEST_PAUSE))
    if self._clock() + pause >= until:
      return False
    self._sleep(pause)
    return True


_Item = Tuple[int, Dict[str, Any]]


def command_of(module: str) -> str:
  """The command of a module: its last dotted part without `_task`."""
  name = module.rsplit(".", 1)[-1]
  return name[:-len("_task")] if name.endswith("_task") else name


def _body(task: Any) -> Optional[Dict[str, Any]]:
  """A task as it is sent; `None` if it lacks what a task has."""
  parts = (task.command, task.job_type, task.input_download_url)
  if not all(isinstance(part, str) and part for part in parts):
    _LOG.error("katabatch: a task without command, job type or input.")
    return None
  command, job_type, url = parts
  return {
      "command": command,
      "job_type": job_type,
      "input_url": url,
      "id": _id(command, job_type, url),
  }


def _id(command: str, job_type: str, url: str) -> str:
  """The same for the same input, however often it is signed or sent."""
  plain = url.split("?", 1)[0].split("#", 1)[0]
  text = json.dumps([command, job_type, plain])
  return "cf-" + hashlib.sha256(text.encode()).hexdigest()[:40]


def _chunks(items: List[_Item]) -> List[List[_Item]]:
  chunks: List[List[_Item]] = []
  size = 0
  for item in items:
    length = len(json.dumps(item[1])) + 2
    full = chunks and (len(chunks[-1]) >= _MOST_TASKS or
                       size + length > _MOST_BYTES)
    if not chunks or full:
      chunks.append([])
      size = 0
    chunks[-1].append(item)
    size += length
  return chunks


def _settle(chunk: List[_Item], outcomes: List[Any],
            scheduled: set[int]) -> List[_Item]:
  """Notes what is scheduled; returns the items to ask about again."""
  again = []
  reasons: Dict[str, int] = {}
  for number, (at, body) in enumerate(chunk):
    outcome = outcomes[number] if number < len(outcomes) else None
    if not isinstance(outcome, dict) or outcome.get("id") != body["id"]:
      again.append((at, body))
    elif outcome.get("outcome") == "scheduled":
      scheduled.add(at)
    else:
      if outcome.get("maybe_created"):
        again.append((at, body))
      reason = f"{outcome.get('outcome')} ({outcome.get('reason')})"
      reasons[reason] = reasons.get(reason, 0) + 1
  for reason, count in sorted(reasons.items()):
    _LOG.info("katabatch: %d tasks %s.", count, reason)
  return again
