"""The HTTP half of the fake cluster: what kubectl asks of an API server to make, list, watch and delete a few kinds."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fake_cluster import Cluster, RefusedError

KINDS = {"jobs": "Job", "pods": "Pod", "services": "Service", "jobsets": "JobSet"}
GROUPS = {
    "/api/v1": ("v1", ("pods", "services")),
    "/apis/batch/v1": ("batch/v1", ("jobs",)),
    "/apis/jobset.x-k8s.io/v1alpha2": ("jobset.x-k8s.io/v1alpha2", ("jobsets",)),
}
VERBS = ["create", "delete", "get", "list", "watch"]
WATCH_S = 60.0


def serve(cluster: Cluster) -> ThreadingHTTPServer:
    """Start to serve a cluster on a free port of the loopback."""

    class Handler(_Handler):
        pass

    Handler.cluster = cluster
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        try:
            found = self._discovery(url.path) or self._objects(method, url.path, query, body)
        except RefusedError as error:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": error.reason}
            self._send(error.code, {**status, "message": str(error), "code": error.code})
            return
        if found is not None:
            self._send(201 if method == "POST" else 200, found)

    def _send(self, code: int, data: dict[str, Any]) -> None:
        text = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _discovery(self, path: str) -> dict[str, Any] | None:
        groups = {p: g for p, g in GROUPS.items() if self.cluster.has_jobsets or "jobset" not in p}
        if path == "/version":
            return {"major": "1", "minor": "33", "gitVersion": "v1.33.0-fake"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        if path == "/apis":
            named = [version for version, _ in groups.values() if "/" in version]
            both = [{"groupVersion": v, "version": v.partition("/")[2]} for v in named]
            listed = [
                {"name": b["groupVersion"].partition("/")[0], "versions": [b], "preferredVersion": b}
                for b in both
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        if path not in groups:
            return None
        version, names = groups[path]
        resources = [
            {"name": n, "singularName": "", "namespaced": True, "kind": KINDS[n], "verbs": VERBS}
            for n in names
        ]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": version,
            "resources": resources,
        }

    def _objects(
        self, method: str, path: str, query: dict[str, str], body: dict[str, Any]
    ) -> dict[str, Any] | None:
        head, marker, rest = path.partition("/namespaces/")
        parts = rest.split("/")
        if head not in GROUPS or not marker or len(parts) < 2 or parts[1] not in KINDS:
            raise RefusedError(404, "NotFound", f"the server could not find the requested resource {path}")
        namespace, kind, name = parts[0], KINDS[parts[1]], parts[2] if len(parts) > 2 else None
        if method == "POST":
            return _shown(self.cluster.create(kind, namespace, body))
        if method == "DELETE":
            return _shown(self.cluster.delete(kind, namespace, str(name)))
        wanted = name or query.get("fieldSelector", "").removeprefix("metadata.name=") or None
        if query.get("watch"):
            return self._watch(kind, namespace, str(wanted))
        labels = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
        found = [_shown(item) for item in self.cluster.list(kind, namespace, labels, wanted)]
        if name is None:
            version = {"kind": f"{kind}List", "apiVersion": GROUPS[head][0]}
            return {**version, "metadata": {"resourceVersion": "1"}, "items": found}
        if not found:
            raise RefusedError(404, "NotFound", f'{parts[1]} "{name}" not found')
        return found[0]

    def _watch(self, kind: str, namespace: str, name: str) -> None:
        """Tell of an object's end, which is all that kubectl waits for here."""
        found = self.cluster.list(kind, namespace, {}, name)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        if self.cluster.gone(kind, namespace, name, WATCH_S) and found:
            event = {"type": "DELETED", "object": _shown(found[0])}
            self.wfile.write(json.dumps(event).encode() + b"\n")
        self.close_connection = True


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the fake's own notes."""
    return {key: value for key, value in found.items() if key not in ("owner", "held")}
