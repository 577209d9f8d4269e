// Keeps a page current: parts are fetched again when an event concerns them. A part says so itself:
// data-live="task:… batch:… kind:… *", data-every="seconds".
(() => {
  const PAUSE = 1000; // milliseconds between two fetches of the same part
  const POLL = 2000; // … between two questions, where workers cannot be shared
  let last = Number(document.body.dataset.last);
  const connection = document.getElementById("connection");
  const words = { live: "live", connecting: "connecting", reconnecting: "reconnecting" };
  const show = state => {
    if (!connection) return;
    connection.textContent = words[state];
    connection.dataset.state = state;
    connection.title = state === "live" ? "Changes appear at once" : "The server does not answer";
  };

  const due = new WeakMap(); // part -> { at: not before, last: the last fetch, timer, late }
  const stateOf = part => {
    if (!due.has(part)) due.set(part, { at: 0, last: Date.now(), timer: 0 });
    return due.get(part);
  };
  const refresh = part => {
    const now = Date.now(), known = stateOf(part);
    if (known.timer) return;
    known.timer = setTimeout(() => {
      known.timer = 0;
      known.last = Date.now();
      known.at = known.last + PAUSE;
      known.late = document.hidden || isBusy(part);
      if (!known.late) htmx.trigger(part, "live");
    }, Math.max(known.at - now, 0));
  };
  // A refusal means that the page is out of date.
  document.addEventListener("htmx:after:swap", () => {
    const message = document.querySelector("#messages .message.bad");
    if (!message || message.dataset.refreshed) return;
    message.dataset.refreshed = "1";
    for (const part of document.querySelectorAll("[data-live]")) refresh(part);
  });
  // Nobody's text is replaced while it is being typed.
  const isBusy = part => {
    const field = document.activeElement;
    return part.contains(field) && field.matches("input:not([type=hidden]), textarea, select")
      || part.querySelector("[popover]:popover-open") !== null;
  };
  // What could not be shown when it happened is shown as soon as it can be.
  const catchUp = () => {
    if (document.hidden) return;
    for (const part of document.querySelectorAll(".part")) {
      if (due.get(part)?.late && !isBusy(part)) refresh(part);
    }
  };
  document.addEventListener("visibilitychange", catchUp);
  document.addEventListener("toggle", catchUp, true);
  document.addEventListener("focusout", () => setTimeout(catchUp));
  // A link that has expired: the page that is loaded instead says so.
  document.addEventListener("htmx:response:error", event => {
    if (event.detail.ctx.response.status === 401) location.reload();
  });
  const concerns = (part, topics) => {
    const wanted = part.dataset.live.split(" ");
    return !topics.length || wanted.includes("*") || topics.some(topic => wanted.includes(topic));
  };
  const apply = message => {
    if (message.state) return show(message.state);
    last = Math.max(last, message.last);
    for (const part of document.querySelectorAll("[data-live]")) {
      if (concerns(part, message.topics)) refresh(part);
    }
    document.dispatchEvent(new CustomEvent("hv:events", { detail: message }));
  };
  setInterval(() => {
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-every]")) {
      if (Date.now() >= stateOf(part).last + 1000 * part.dataset.every) refresh(part);
    }
  }, 1000);

  const poll = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(`/events/after?after=${last}`);
        show(answer.ok ? "live" : "reconnecting");
        const message = answer.ok ? await answer.json() : null;
        if (message) apply(message);
      } catch { show("reconnecting"); }
    }
    setTimeout(poll, POLL);
  };
  let isPolling = false;
  const startPolling = () => {
    if (!isPolling) poll();
    isPolling = true;
  };
  const share = () => {
    // Only this one address may become a script.
    const policy = window.trustedTypes?.createPolicy("worker", {
      createScriptURL: () => "/static/stream.js",
    });
    const worker = new SharedWorker(policy ? policy.createScriptURL("") : "/static/stream.js");
    const report = () => worker.port.postMessage({ visible: !document.hidden, last });
    worker.onerror = startPolling;
    worker.port.onmessage = ({ data }) => data.unavailable ? startPolling() : apply(data);
    worker.port.start();
    document.addEventListener("visibilitychange", report);
    window.addEventListener("pageshow", event => { if (event.persisted) report(); });
    window.addEventListener("pagehide", () => worker.port.postMessage({ bye: true }));
    report();
  };
  if (!document.querySelector("[data-live]") && !document.querySelector("[data-every]")) return show("live");
  if (window.SharedWorker) share(); else startPolling();
})();
