"""A web server of another user on the same machine, and the page it attacks a dashboard with.

Its page is reached as 127.0.0.1 (another port: the same site, so browsers send our cookie) and as
evil.example (another site).
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.web.browser.wiretap import Wiretap

HOSTS = ("127.0.0.1", "evil.example")
CHANGE = "/batches/victim/cancel"

# Each attempt ends with what it got; "refused" if that is nothing.
PAGE = """<!doctype html><title>attack</title>
<iframe src="TARGET/"></iframe><object data="TARGET/"></object><embed src="TARGET/">
<iframe name="inside"></iframe>
<script>
const target = "TARGET", change = target + "CHANGE";
const refused = () => "refused";
const loaded = (element, from) => new Promise(resolve => {
  element.onload = () => resolve(`${element.tagName} loaded`);
  element.onerror = () => resolve("refused");
  if (from === "href") { element.rel = "stylesheet"; element.href = target + "/static/base.css"; }
  else element.src = target + from;
  document.body.append(element);
});
const post = (mode, type) => fetch(change, {
  method: "POST", mode, credentials: "include", headers: type ? { "content-type": type } : {},
  body: type ? '{"reason": "x"}' : new URLSearchParams({ reason: "x" }),
}).then(answer => answer.ok ? "changed" : `answered ${answer.status}`, refused);
const attempts = {
  read: () => fetch(target + "/", { credentials: "include" })
    .then(answer => answer.text(), refused),
  peek: () => fetch(target + "/metrics.json", { mode: "no-cors", credentials: "include" })
    .then(answer => answer.text()).then(text => text || "refused", refused),
  post: () => post("no-cors"), cors: () => post("cors"),
  json: () => post("cors", "application/json"),
  script: () => loaded(document.createElement("script"), "/static/live.js"),
  data: () => loaded(document.createElement("script"), "/metrics.json"),
  image: () => loaded(new Image(), "/static/icon.svg"),
  style: () => loaded(document.createElement("link"), "href"),
  module: () => import(target + "/static/dashboard.js").then(() => "imported", refused),
  stream: () => new Promise(resolve => {
    const source = new EventSource(target + "/events/stream?after=0", { withCredentials: true });
    source.onopen = source.onmessage = () => resolve("listens");
    source.onerror = () => { source.close(); resolve("refused"); };
  }),
  socket: () => new Promise(resolve => {
    const socket = new WebSocket(target.replace("http", "ws") + "/events/stream");
    socket.onopen = () => resolve("connected");
    socket.onerror = () => resolve("refused");
  }),
  worker: async () => {
    try { return `${new SharedWorker(target + "/static/stream.js")}`; } catch { return "refused"; }
  },
  beacon: async () => {
    navigator.sendBeacon(change, new URLSearchParams({ reason: "x" }));
    return "refused"; // the answer is never seen
  },
  forms: async () => {
    for (const type of ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"]) {
      const form = Object.assign(document.createElement("form"),
        { method: "post", action: change, enctype: type, target: "inside" });
      form.append(Object.assign(document.createElement("input"), { name: "reason", value: "x" }));
      document.body.append(form);
      const answered = new Promise(done => {
        document.querySelector("[name=inside]").addEventListener("load", done, { once: true });
      });
      form.submit();
      await answered;
    }
    return "refused";
  },
  frames: async () => {
    for (let at = 0; at < frames.length; at += 1) {
      try {
        if (frames[at].document.body.innerText.includes("Running")) return "framed";
      } catch { /* no access */ }
    }
    return "refused";
  },
};
addEventListener("load", async () => {
  const got = {};
  for (const [name, attempt] of Object.entries(attempts)) {
    got[name] = await attempt().catch(error => `${error}`);
  }
  window.got = got;
});
</script>"""


class Attacker:
    def __init__(self, tap: Wiretap) -> None:
        self.tap = tap
        text = PAGE.replace("TARGET", tap.address).replace("CHANGE", CHANGE).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def address(self, host: str) -> str:
        return f"http://{host}:{self.port}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
