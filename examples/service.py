"""Serves a saved network over HTTP from many threads. All threads call one model: it needs no lock, and its weights are
in memory once.

    python examples/service.py                                  # http://localhost:8000, Ctrl-C ends it
    python examples/service.py --check 400 --clients 8          # asks itself, and prints how long answers took
    gunicorn --chdir examples --workers 2 --threads 8 service:app

NumPy alone. POST /classify takes 64 numbers, the pixels (0 to 16) of a digit of 8 x 8, as JSON. GET /ready answers once
the model has run. Each request computes on its own thread: requests are the parallel part, not the layers.
"""

import argparse
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np

import fusedops as fo

FOLDER = Path(__file__).parent
fo.set_num_threads(1)
model = fo.load(FOLDER / "digits.fo")
model(np.zeros((1, 1, 8, 8), np.float32))  # plans: the first request finds a model that is warm


def answer(method, path, body):
    """(status, what becomes JSON) of a request."""
    if (method, path) == ("GET", "/ready"):
        return "200 OK", {"ready": True}
    if (method, path) != ("POST", "/classify"):
        return "404 Not Found", {"error": "there are GET /ready and POST /classify"}
    try:
        pixels = np.array(json.loads(body), np.float32).reshape(1, 1, 8, 8) / 16
    except (ValueError, TypeError) as error:
        return "400 Bad Request", {"error": f"64 numbers are expected: {error}"}
    scores = model(pixels)[0]
    return "200 OK", {"digit": int(scores.argmax()), "scores": scores.tolist()}


def app(environ, start_response):
    """The service as a WSGI application."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    status, content = answer(environ["REQUEST_METHOD"], environ["PATH_INFO"], body)
    data = json.dumps(content).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
    return [data]


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection."""

    daemon_threads, request_queue_size = True, 128


class Handler(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def check(port, requests, clients):
    """Asks for digits from several threads, and compares the answers with the labels."""
    digits = np.load(FOLDER / "digits.npz")
    images, labels = digits["images"], digits["labels"]

    def ask(i):
        start = time.perf_counter()
        connection = HTTPConnection("localhost", port)
        connection.request("POST", "/classify", json.dumps(images[i % len(images)].ravel().tolist()))
        found = json.loads(connection.getresponse().read())["digit"]
        return found == labels[i % len(images)], 1e3 * (time.perf_counter() - start)

    with ThreadPoolExecutor(clients) as pool:
        right, ms = map(np.array, zip(*pool.map(ask, range(requests)), strict=True))
    print(
        f"{right.mean():.1%} of {requests} answers right, asked by {clients} threads; an answer takes "
        f"{np.percentile(ms, 50):.1f} ms (p50), {np.percentile(ms, 99):.1f} ms (p99), {ms.max():.1f} ms (longest)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000, help="0: one that is free")
    parser.add_argument("--check", type=int, metavar="REQUESTS", help="ask so many times, then end")
    parser.add_argument("--clients", type=int, default=8, help="threads that ask")
    options = parser.parse_args()
    with make_server("localhost", options.port, app, Server, Handler) as server:
        if not options.check:
            print(f"http://localhost:{server.server_port}")
            server.serve_forever()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        check(server.server_port, options.check, options.clients)
        server.shutdown()


if __name__ == "__main__":
    main()
