"""katabatch's `POST /v1/tasks`, one request at a time.

A task's input URL is a credential: it goes into the request's body and nowhere else. No error of this
module holds a part of a request or of an answer's text.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any
from typing import Dict
from typing import List
from typing import Mapping
from typing import Optional

# The longest answer that is read: a thousand outcomes with long reasons.
_MOST_ANSWER_BYTES = 16 << 20


class Unavailable(Exception):
  """katabatch can't be reached, does not lead, or is busy: ask again, or later."""

  def __init__(self, why: str, retry_after: Optional[float] = None):
    super().__init__(why)
    self.retry_after = retry_after


class Refused(Exception):
  """katabatch refuses the request: asking again as it is would change nothing."""

  def __init__(self, status: int):
    super().__init__(f"katabatch answers {status}")
    self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
  """A redirect would carry the token to wherever it points."""

  def redirect_request(self, *_: Any) -> None:
    return None


class Client:
  """A katabatch, by its URL.

  Attributes:
    url: Such as `http://katabatch.fuzzing.svc:8090`.
    token_file: A file with a bearer token, read anew for each request, since mounted tokens of
      Kubernetes change; `None`: no token is sent.
    timeout: The seconds that one request may take. katabatch answers within 55.
  """

  def __init__(self,
               url: str,
               token_file: Optional[str] = None,
               timeout: float = 70.0):
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in ("http", "https"):
      raise ValueError("katabatch's URL must begin with http:// or https://")
    self.url = url.rstrip("/")
    self.token_file = token_file
    self.timeout = timeout
    self._opener = urllib.request.build_opener(_NoRedirect)

  @classmethod
  def from_environment(
      cls, environment: Optional[Mapping[str, str]] = None) -> Optional[Client]:
    """The client that KATABATCH_URL and KATABATCH_TOKEN_FILE describe, or none without a URL."""
    environment = os.environ if environment is None else environment
    url = environment.get("KATABATCH_URL")
    if not url:
      return None
    return cls(url, environment.get("KATABATCH_TOKEN_FILE") or None)

  def post(self, tasks: List[Dict[str, Any]],
           timeout: Optional[float] = None) -> List[Any]:
    """Posts tasks; one outcome for each comes back, in order, unless the answer is cut short.

    Raises:
      Unavailable: Nothing is known of what became of them.
      Refused: None of them was looked at.
    """
    request = urllib.request.Request(
        self.url + "/v1/tasks",
        data=json.dumps({
            "tasks": tasks
        }).encode(),
        headers=self._headers(),
        method="POST")
    try:
      within = self.timeout if timeout is None else min(timeout, self.timeout)
      with self._opener.open(request, timeout=within) as answer:
        body = json.loads(answer.read(_MOST_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
      with error:
        raise _refusal(error.code, error.headers.get("Retry-After")) from None
    except Exception as error:  # pylint: disable=broad-except
      # From None: the text of some of these quotes what was sent or read.
      raise Unavailable(f"no answer: {type(error).__name__}") from None
    outcomes = body.get("tasks") if isinstance(body, dict) else None
    if not isinstance(outcomes, list):
      raise Unavailable("no answer: it is not katabatch's")
    return outcomes

  def _headers(self) -> Dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if self.token_file:
      try:
        with open(self.token_file, encoding="utf-8") as file:
          headers["Authorization"] = "Bearer " + file.read().strip()
      except (OSError, UnicodeDecodeError) as error:
        why = f"the token can't be read: {type(error).__name__}"
        raise Unavailable(why) from None
    return headers


def _refusal(status: int, retry_after: Optional[str]) -> Exception:
  if status >= 500 or status in (408, 429):
    try:
      wait = float(retry_after) if retry_after else None
    except ValueError:
      wait = None
    return Unavailable(f"katabatch answers {status}", wait)
  return Refused(status)
