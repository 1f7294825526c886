"""A server that gives prepared answers and notes what it is asked."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


class Server(HTTPServer):
    """Answers in order, and notes method, path and body of every request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[dict] = []
        self.asked: list[tuple[str, str, dict | None]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self._answer(None)

    def do_POST(self):
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body):
        self.server.asked.append((self.command, self.path, body))
        answer = json.dumps(self.server.answers.pop(0)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Stay silent."""


@pytest.fixture
def server(monkeypatch):
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("POP_API_URL", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
