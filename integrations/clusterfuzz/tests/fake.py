"""A katabatch of a few lines, in this process, that answers as it is told."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any
from typing import Callable
from typing import Dict
from typing import List
from typing import Tuple

Answer = Tuple[int, Dict[str, str], Any]


class Fake:
  """Serves on a free port. `answer` gets the tasks and how many requests came before."""

  def __init__(self, answer: Callable[[List[Dict[str, Any]], int], Answer]):
    fake = self
    self.requests: List[List[Dict[str, Any]]] = []
    self.tokens: List[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
      """One request."""

      def do_POST(self) -> None:  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        tasks = json.loads(body)["tasks"]
        number = len(fake.requests)
        fake.requests.append(tasks)
        fake.tokens.append(self.headers.get("Authorization", ""))
        status, headers, text = answer(tasks, number)
        if status == 0:
          self.close_connection = True
          return
        data = text if isinstance(text, bytes) else json.dumps(text).encode()
        self.send_response(status)
        for key, value in headers.items():
          self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

      def log_message(self, *_: Any) -> None:  # pylint: disable=arguments-differ
        pass

    self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    self.url = f"http://127.0.0.1:{self._server.server_port}"
    self._thread = threading.Thread(
        target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
    self._thread.start()

  def __enter__(self) -> Fake:
    return self

  def __exit__(self, *_: Any) -> None:
    self._server.shutdown()
    self._server.server_close()
    self._thread.join()


def outcome(task: Dict[str, Any],
            what: str = "scheduled",
            reason: Any = None,
            maybe: bool = False) -> Dict[str, Any]:
  """One outcome."""
  return {
      "id": task["id"],
      "outcome": what,
      "reason": reason,
      "detail": None,
      "job": None,
      "retry_after_seconds": None,
      "maybe_created": maybe,
  }


def ok(outcomes: List[Any]) -> Answer:
  """A good answer."""
  return 200, {}, {"tasks": outcomes}


def problem(status: int, **headers: str) -> Answer:
  """A refusal."""
  named = {key.replace("_", "-"): value for key, value in headers.items()}
  return status, named, {"type": "about:blank", "status": status}
