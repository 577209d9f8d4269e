// Keeps a page current: parts are fetched again when an event concerns them. A part says so itself:
// data-live="task:… batch:… kind:… *", data-every="seconds".
(() => {
  const PAUSE = 500; // milliseconds between two fetches
  const POLL = 2000; // … between two questions, where workers cannot be shared
  const PATIENCE = 30000; // … until an answer is given up
  let last = Number(document.body.dataset.last);
  const connection = document.getElementById("connection");
  const words = { live: "live", connecting: "connecting", reconnecting: "reconnecting" };
  const show = state => {
    if (!connection) return;
    connection.textContent = words[state];
    connection.dataset.state = state;
    connection.title = state === "live" ? "Changes appear at once" : "The server does not answer";
  };

  const due = new WeakMap(); // part -> { last: the last fetch, late: it could not be shown then }
  const stateOf = part => {
    if (!due.has(part)) due.set(part, { last: Date.now(), late: false });
    return due.get(part);
  };
  // Tabs that show the same page are answered by one request of their shared worker.
  let worker = null, number = 0;
  const waiting = new Map(); // number of a request -> where its answer goes
  const answered = ({ number, status, text }) => {
    waiting.get(number)?.({ status, text });
    waiting.delete(number);
  };
  const ask = async path => {
    try {
      const answer = await fetch(path, { headers: { "HX-Request": "true" } });
      return { status: answer.status, text: await answer.text() };
    } catch { return { status: 0, text: "" }; } // the server is away: the next event may find it
  };
  const get = path => worker === null ? ask(path) : new Promise(resolve => {
    waiting.set(++number, resolve);
    worker.port.postMessage({ get: path, number });
    setTimeout(answered, PATIENCE, { number, status: 0, text: "" });
  });
  window.hvGet = get; // for other scripts of this page

  // What is wanted at the same time is fetched by one request.
  const grouped = parts => {
    const groups = new Map();
    for (const part of parts) {
      const url = new URL(part.getAttribute("hx-get"), location.href);
      const name = url.searchParams.get("part");
      url.searchParams.delete("part");
      const group = groups.get(url.href) ?? { parts: [], names: [], url };
      group.parts.push(part);
      group.names.push(name);
      groups.set(url.href, group);
    }
    return [...groups.values()];
  };
  let shown = {}; // the last answer, unless something else was swapped in since
  const fetchGroup = async ({ parts: [part], names, url }) => {
    const rest = url.search ? `&${url.search.slice(1)}` : "";
    const path = `${url.pathname}?part=${names.join(",")}${rest}`;
    const { status, text } = await get(path);
    if (status === 401) return location.reload(); // a link that has expired: the page says so
    const isSame = shown.path === path && shown.text === text;
    if (!status || status >= 500 || isSame || !part.isConnected) return;
    await htmx.swap({ text, sourceElement: part, target: part, swap: "innerMorph" });
    shown = { path, text };
  };
  const wanted = new Set();
  let timer = 0, next = 0, isFetching = false; // next: not before
  const refresh = part => {
    wanted.add(part);
    if (!isFetching) timer ||= setTimeout(fetchWanted, Math.max(next - Date.now(), 0));
  };
  const fetchWanted = async () => {
    timer = 0;
    next = Date.now() + PAUSE;
    const parts = [...wanted].filter(part => part.isConnected);
    wanted.clear();
    for (const part of parts) {
      const known = stateOf(part);
      known.last = Date.now();
      known.late = document.hidden || isBusy(part);
    }
    isFetching = true;
    try {
      await Promise.all(grouped(parts.filter(part => !due.get(part).late)).map(fetchGroup));
    } finally { isFetching = false; }
    for (const part of [...wanted]) refresh(part);
  };
  document.addEventListener("htmx:after:swap", () => {
    shown = {};
    // A refusal means that the page is out of date.
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
  // All tabs at the same moment, so that they share the answer.
  const refreshOld = () => {
    setTimeout(refreshOld, 1000 - Date.now() % 1000);
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-every]")) {
      if (Date.now() >= stateOf(part).last + 1000 * part.dataset.every) refresh(part);
    }
  };
  refreshOld();

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
    worker = null;
    for (const number of [...waiting.keys()]) answered({ number, status: 0, text: "" });
    if (!isPolling) poll();
    isPolling = true;
  };
  const share = () => {
    // Only this one address may become a script.
    const policy = window.trustedTypes?.createPolicy("worker", {
      createScriptURL: () => "/static/stream.js",
    });
    const shared = worker = new SharedWorker(policy ? policy.createScriptURL("") : "/static/stream.js");
    const report = () => shared.port.postMessage({ visible: !document.hidden, last });
    shared.onerror = startPolling;
    shared.port.onmessage = ({ data }) => {
      if (data.unavailable) startPolling();
      else if (data.number) answered(data);
      else apply(data);
    };
    shared.port.start();
    document.addEventListener("visibilitychange", report);
    window.addEventListener("pageshow", event => { if (event.persisted) report(); });
    window.addEventListener("pagehide", () => shared.port.postMessage({ bye: true }));
    report();
  };
  if (!document.querySelector("[data-live]") && !document.querySelector("[data-every]")) return show("live");
  if (window.SharedWorker) share(); else startPolling();
})();
