"""A real local HTTP server in the place of an OpenAI-compatible endpoint."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast


class Script(ThreadingHTTPServer):
    """Answers one scripted (status, content, delay) per request; keeps what it was sent."""

    daemon_threads = True
    answers: list[tuple[int, str, float]]
    bodies: list[dict[str, object]]
    keys: list[str | None]
    thread: threading.Thread

    @classmethod
    def start(cls) -> Script:
        script = cls(("127.0.0.1", 0), Handler)
        script.answers, script.bodies, script.keys = [], [], []
        script.thread = threading.Thread(
            target=script.serve_forever, kwargs={"poll_interval": 0.01}
        )
        script.thread.start()
        return script

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def stop(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast(Script, self.server)
        length = int(self.headers["Content-Length"])
        server.bodies.append(json.loads(self.rfile.read(length)))
        server.keys.append(self.headers.get("Authorization"))
        status, content, delay = server.answers.pop(0)
        message = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(message)))
            self.end_headers()
            for byte in message:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(delay)
        except (BrokenPipeError, ConnectionResetError):
            return  # the client gave up, which is what some tests ask for

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
