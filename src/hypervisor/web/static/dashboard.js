// Times, copying, keys and messages. No state: everything is in the page.
(() => {
  // htmx parses what our server has rendered; it evaluates nothing.
  const policy = window.trustedTypes?.createPolicy("htmx", { createHTML: text => text });
  const refuse = () => { throw new Error("the dashboard evaluates no scripts"); };
  htmx.registerExtension("trusted", {
    init: api => api.initSecurity(policy, refuse, refuse),
    // What a person has opened or chosen stays so when a part is refreshed.
    htmx_before_morph_attr: (element, { attrName }) =>
      !(attrName === "open" && element.matches("details"))
      && !(attrName === "class" && element.matches("[data-row].current"))
      && !(attrName === "tabindex" && element.matches(".scroll")),
  });

  // Times
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const span = seconds => {
    const at = units.findIndex(([, size]) => seconds >= size);
    if (at < 0) return "0 s";
    const [name, size] = units[at], whole = Math.floor(seconds / size);
    const next = units[at + 1], rest = next ? Math.floor((seconds % size) / next[1]) : 0;
    return rest && whole < 10 ? `${whole} ${name} ${rest} ${next[0]}` : `${whole} ${name}`;
  };
  const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const showTimes = root => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime), seconds = (Date.now() - at) / 1000;
      const text = time.classList.contains("age") ? span(Math.max(seconds, 0))
        : seconds < 0 ? `in ${span(-seconds)}` : seconds < 1 ? "now" : `${span(seconds)} ago`;
      if (time.textContent !== text) time.textContent = text;
      if (!time.title) time.title = absolute.format(at);
    }
  };
  const tick = () => { if (!document.hidden) showTimes(document); };
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", tick);
  // Before a part is compared with what it shows: rows that stay the same are left alone.
  const beforeSwap = prepare => document.addEventListener("htmx:before:swap", event => {
    for (const { fragment } of event.detail.tasks) prepare(fragment);
  });
  beforeSwap(showTimes);
  tick();

  // On a narrow screen, the menu is scrolled to the page that is open.
  const entry = document.querySelector(".top nav [aria-current]"), menu = entry?.parentElement;
  if (menu) menu.scrollLeft = entry.offsetLeft - menu.offsetLeft - (menu.clientWidth - entry.offsetWidth) / 2;

  // A table that is wider than the screen can be scrolled by keyboard.
  const reach = () => {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; else box.removeAttribute("tabindex");
    }
  };
  reach();
  addEventListener("resize", reach);
  let reaching = 0; // after the next frame: it knows the widths
  document.addEventListener("htmx:after:swap", () => {
    clearTimeout(reaching);
    reaching = setTimeout(reach, 100);
  });

  // What has finished since this browser last showed the page: it was left, or hidden for a while.
  const AWAY = 60000; // milliseconds
  const since = document.getElementById("part-since");
  let visited = Number(localStorage.getItem("hv-visited") ?? Date.now());
  const markNew = root => {
    for (const row of root.querySelectorAll("[data-at]")) {
      row.classList.toggle("new", Number(row.dataset.at) > visited);
    }
  };
  const askSince = () => {
    since.setAttribute("hx-get", `/?part=since&since=${visited}`);
    htmx.trigger(since, "live");
  };
  if (since) {
    beforeSwap(markNew);
    addEventListener("pagehide", () => localStorage.setItem("hv-visited", Date.now()));
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return localStorage.setItem("hv-visited", Date.now());
      const left = Number(localStorage.getItem("hv-visited"));
      if (Date.now() - left > AWAY) { visited = left; markNew(document); askSince(); }
    });
    since.addEventListener("htmx:after:init", event => {
      if (event.target === since && localStorage.getItem("hv-visited")) askSince();
    });
    markNew(document);
  }

  // Copying a command
  document.addEventListener("click", async event => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "press Ctrl-C";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  });

  // Messages: the dialog that led to one is closed, and good ones leave by themselves.
  document.addEventListener("htmx:after:swap", () => {
    const message = document.querySelector("#messages .message");
    if (!message || message.dataset.seen) return;
    message.dataset.seen = "1";
    document.querySelector("[popover]:popover-open")?.hidePopover();
    if (!message.classList.contains("bad")) setTimeout(() => message.remove(), 8000);
  });
  document.getElementById("messages")?.addEventListener("click", event => {
    event.target.closest(".message")?.remove();
  });

  // Keys
  const rows = () => [...document.querySelectorAll("[data-row]")].filter(row => row.offsetParent);
  const current = () => document.querySelector("[data-row].current");
  const move = step => {
    const all = rows(), at = all.indexOf(current());
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    if (!next) return;
    current()?.classList.remove("current");
    next.classList.add("current");
    next.scrollIntoView({ block: "nearest" });
    (next.matches("a, button") ? next : next.querySelector("a, button, summary"))?.focus({ preventScroll: true });
  };
  const places = { h: "/", b: "/batches", t: "/tasks", r: "/review", m: "/merge-queue", e: "/events" };
  let going = false;
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const key = event.key;
    if (going) { going = false; if (places[key]) location.assign(places[key]); return; }
    if (key === "j" || key === "k") move(key === "j" ? 1 : -1);
    else if (key === "g") { going = true; setTimeout(() => { going = false; }, 1200); }
    else if (key === "?") document.getElementById("help")?.togglePopover();
    else if (key === "/") document.querySelector("input[type=search]")?.focus();
    else {
      const open = document.querySelector("[popover]:popover-open");
      if (open) return;
      const own = (current() ?? document).querySelector(`[data-key="${CSS.escape(key)}"]`);
      const button = own ?? document.querySelector(`[data-key="${CSS.escape(key)}"]`);
      if (!button) return;
      button.click();
    }
    event.preventDefault();
  });
})();
