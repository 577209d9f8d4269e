// The workers of a batch over time, on a canvas. The server sends what fits into the pixels, and
// cuts out pauses: places are thousandths of the width. The selected time is in the address.
(() => {
  const root = document.querySelector("[data-timeline]");
  if (!root) return;
  const SOON = 10000, LATER = 60000; // milliseconds until the next look, if visible
  const HEIGHT = 46; // of the overview
  const MIN = 20; // milliseconds that can be shown
  const canvas = root.querySelector("[data-drawing]"), strip = root.querySelector("[data-overview]");
  const tip = root.querySelector(".timeline-tip"), names = root.querySelector(".timeline-names");
  let shown = null, all = null, timer = 0, asked = 0, drag = null;

  const color = name => getComputedStyle(root).getPropertyValue(name).trim();
  const looks = { done: "--accent", failed: "--bad", crashed: "--worse", blocked: "--warn", running: "--soft" };
  const took = ms => ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s`
    : ms < 3600000 ? `${Math.floor(ms / 60000)} min ${Math.round(ms % 60000 / 1000)} s`
    : `${Math.floor(ms / 3600000)} h ${Math.round(ms % 3600000 / 60000)} min`;

  // Time and place
  const timeAt = (data, x) => {
    const at = Math.min(Math.max(x, 0), 1000);
    const [start, end, low, high] = data.stretches.find(stretch => at <= stretch[3]) ?? data.stretches.at(-1);
    return Math.round(start + Math.max((at - low) / Math.max(high - low, 1e-6), 0) * (end - start));
  };
  const placeOf = (data, time) => {
    for (const [start, end, low, high] of data.stretches) {
      if (time < start) return low;
      if (time <= end) return low + (time - start) / Math.max(end - start, 1) * (high - low);
    }
    return 1000;
  };
  const xOf = (element, event) => {
    const box = element.getBoundingClientRect();
    return (event.clientX - box.left) / box.width * 1000;
  };

  // Drawing
  const rowHeight = () => shown.lanes.length > 32 ? 9 : shown.lanes.length > 16 ? 13 : 18;
  const prepare = (element, height) => {
    const width = element.parentElement.clientWidth, ratio = devicePixelRatio || 1;
    element.width = Math.max(Math.round(width * ratio), 1);
    element.height = Math.round(height * ratio);
    element.style.height = `${height}px`;
    const pen = element.getContext("2d");
    pen.setTransform(element.width / 1000, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, 1000, height);
    return pen;
  };
  const draw = () => {
    if (!shown) return;
    const high = rowHeight(), step = high + 3, least = 1000 / canvas.parentElement.clientWidth;
    const pen = prepare(canvas, shown.lanes.length * step);
    const wash = color("--wash"), paper = color("--paper"), bad = color("--bad");
    const fills = shown.outcomes.map(name => color(looks[name] ?? "--rest"));
    shown.lanes.forEach(([, bars], row) => {
      const y = row * step;
      pen.fillStyle = wash;
      pen.fillRect(0, y, 1000, high);
      for (const [x, width, , , outcome, attempts, failed, busy] of bars) {
        const wide = Math.max(shown.single && width > 3 * least ? width - least : width, least);
        pen.globalAlpha = shown.single ? 1 : 0.25 + 0.75 * busy;
        pen.fillStyle = fills[outcome];
        pen.fillRect(x, y, wide, high);
        pen.globalAlpha = 1;
        if (failed) {
          const share = Math.max(high * failed / Math.max(attempts, 1), 2);
          pen.fillStyle = bad;
          pen.fillRect(x, y + high - share, wide, share);
        }
      }
    });
    pen.fillStyle = paper;
    for (const [x, width] of shown.cuts) pen.fillRect(x, 0, width, shown.lanes.length * step);
    if (drag?.on === canvas) mark(pen, drag.from, drag.to, shown.lanes.length * step);
    drawOverview();
  };
  const mark = (pen, from, to, height) => {
    pen.globalAlpha = 0.18;
    pen.fillStyle = color("--ink");
    pen.fillRect(Math.min(from, to), 0, Math.abs(to - from), height);
    pen.globalAlpha = 1;
  };
  const drawOverview = () => {
    if (!all) return;
    const pen = prepare(strip, HEIGHT), columns = new Float64Array(250), failed = new Uint8Array(250);
    for (const [, bars] of all.lanes) {
      for (const [x, width, , , outcome, , bad, busy] of bars) {
        const last = Math.min(Math.floor((x + width) / 4), 249);
        for (let at = Math.min(Math.floor(x / 4), 249); at <= last; at++) {
          const inside = Math.min(x + width, at * 4 + 4) - Math.max(x, at * 4);
          columns[at] += Math.max(inside, 0.2) / 4 * (all.single ? 1 : busy);
          if (bad || ["failed", "crashed"].includes(all.outcomes[outcome])) failed[at] = 1;
        }
      }
    }
    const most = Math.max(...columns, 1);
    columns.forEach((value, at) => {
      const high = (HEIGHT - 6) * value / most;
      pen.fillStyle = color("--rest");
      pen.fillRect(at * 4, HEIGHT - high, 4, high);
      pen.fillStyle = color("--bad");
      if (failed[at]) pen.fillRect(at * 4, HEIGHT - 3, 4, 3);
    });
    const moving = drag?.on === strip;
    const low = moving ? Math.min(drag.from, drag.to) : placeOf(all, shown.from);
    const high = moving ? Math.max(drag.from, drag.to) : placeOf(all, shown.to);
    pen.fillStyle = color("--paper");
    pen.globalAlpha = 0.7;
    pen.fillRect(0, 0, low, HEIGHT);
    pen.fillRect(high, 0, 1000 - high, HEIGHT);
    pen.globalAlpha = 1;
    pen.strokeStyle = color("--accent");
    pen.lineWidth = 1;
    pen.strokeRect(low, 0.5, Math.max(high - low, 1), HEIGHT - 1);
  };

  // Words around the drawing
  const clock = (time, span) => {
    const day = shown.whole[1] - shown.whole[0] > 72000000 ? { month: "short", day: "numeric" } : {};
    const fine = span < 5000 ? { fractionalSecondDigits: 3 } : {};
    return new Intl.DateTimeFormat(undefined, {
      ...day, hour12: false, hour: "2-digit", minute: "2-digit", ...(span < 36000000 ? { second: "2-digit", ...fine } : {}),
    }).format(time);
  };
  const element = (tag, text, title = "") => Object.assign(document.createElement(tag), { textContent: text, title });
  const count = (number, noun) => `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;
  const describe = () => {
    const span = shown.to - shown.from, used = new Set();
    for (const [, bars] of shown.lanes) for (const bar of bars) { used.add(shown.outcomes[bar[4]]); if (bar[6]) used.add("failed"); }
    const parts = [`${count(shown.attempts, "attempt")} of ${count(shown.workers, "worker")}`,
      `${clock(shown.from, span)} to ${clock(shown.to, span)}`];
    if (!shown.single) parts.push("paler means less busy, red is the share that did not succeed");
    if (shown.cuts.length) parts.push("pauses are cut out");
    if (shown.hidden) parts.push(`${shown.hidden} workers are not shown`);
    root.querySelector("[data-about]").textContent = parts.join("; ");
    canvas.setAttribute("aria-label", `Workers over time: ${parts.join("; ")}`);
    names.replaceChildren(...shown.lanes.map(([name]) => element("span", name, name)));
    names.style.setProperty("--row", `${rowHeight() + 3}px`);
    root.querySelector(".ticks").replaceChildren(...[0, 250, 500, 750, 1000].map(x => element("span", clock(timeAt(shown, x), span))));
    root.querySelector(".legend").replaceChildren(...[...used].map(name => {
      const item = element("li", name);
      item.prepend(Object.assign(document.createElement("i"), { className: name }));
      return item;
    }));
    const isAll = shown.from <= shown.whole[0] && shown.to >= shown.whole[1];
    for (const button of root.querySelectorAll("[data-zoom]")) button.disabled = isAll && button.dataset.zoom !== "in";
  };
  const barAt = event => {
    const row = Math.floor((event.clientY - canvas.getBoundingClientRect().top) / (rowHeight() + 3));
    const x = xOf(canvas, event), slack = 2500 / canvas.clientWidth;
    return shown.lanes[row]?.[1].findLast(bar => x >= bar[0] - slack && x <= bar[0] + bar[1] + slack);
  };
  const point = event => {
    const bar = shown && !drag ? barAt(event) : null;
    tip.hidden = !bar;
    canvas.style.cursor = bar && bar[8] >= 0 ? "pointer" : "crosshair";
    if (!bar) return;
    const [, , start, length, outcome, attempts, failed, , task] = bar;
    const what = task >= 0 ? `${shown.tasks[task][1]} · ${shown.outcomes[outcome]}`
      : `${attempts.toLocaleString()} attempts ended here${failed ? `, ${failed} did not succeed` : ""}`;
    tip.textContent = `${what} · ${clock(start, 4000)} · ${took(length)}`;
    const box = canvas.parentElement.getBoundingClientRect();
    tip.style.left = `${Math.min(Math.max(event.clientX - box.left, 0), box.width - Math.min(tip.offsetWidth, box.width))}px`;
    tip.style.top = `${event.clientY - box.top + 18}px`;
  };

  // Selecting a time
  const address = (from, to, cells) => `${root.dataset.timeline}?from=${from}&to=${to}&cells=${cells}`;
  const get = async url => {
    const answer = await fetch(url);
    return answer.ok ? answer.json() : null;
  };
  const selected = () => {
    const query = new URLSearchParams(location.search), number = name => Math.max(Number.parseInt(query.get(name) ?? "0", 10) || 0, 0);
    return [number("since"), number("until")];
  };
  const load = async () => {
    clearTimeout(timer);
    timer = setTimeout(load, shown?.running ? SOON : LATER);
    if (document.hidden || drag) return;
    const mine = ++asked, [from, to] = selected();
    try {
      const cells = Math.round((canvas.parentElement.clientWidth || 900) / 3);
      const whole = await get(address(0, 0, cells));
      const part = whole && (from || to) ? await get(address(from, to, cells)) : whole;
      if (mine !== asked || !part) return;
      all = whole;
      shown = part;
      root.hidden = false;
      describe();
      draw();
    } catch { /* the server is away: the next look may find it */ }
  };
  const select = (from, to) => {
    const url = new URL(location);
    for (const [name, value] of [["since", from], ["until", to]]) {
      if (value) url.searchParams.set(name, Math.round(value)); else url.searchParams.delete(name);
    }
    history.replaceState(history.state, "", url);
    load();
  };
  const zoom = how => {
    if (!shown) return;
    if (how === "all") return select(0, 0);
    const [low, high] = [placeOf(all, shown.from), placeOf(all, shown.to)], wide = high - low;
    const moves = { in: [0.25, -0.25], out: [-0.5, 0.5], earlier: [-0.5, -0.5], later: [0.5, 0.5] };
    let [start, end] = [low + moves[how][0] * wide, high + moves[how][1] * wide];
    if (start <= 0 && end >= 1000) return select(0, 0);
    if (start < 0) [start, end] = [0, Math.min(end - start, 1000)];
    if (end > 1000) [start, end] = [Math.max(start - (end - 1000), 0), 1000];
    const [from, to] = [timeAt(all, start), timeAt(all, end)];
    select(from, Math.max(to, from + MIN));
  };
  const began = event => {
    if (!shown || event.button !== 0) return;
    const x = xOf(event.currentTarget, event);
    drag = { on: event.currentTarget, from: x, to: x };
    event.currentTarget.setPointerCapture(event.pointerId);
    tip.hidden = true;
  };
  const moved = event => {
    if (!drag) return event.currentTarget === canvas ? point(event) : undefined;
    drag.to = Math.min(Math.max(xOf(drag.on, event), 0), 1000);
    draw();
  };
  const ended = event => {
    if (!drag) return;
    const { on, from, to } = drag, data = on === canvas ? shown : all;
    drag = null;
    const pixels = Math.abs(to - from) * on.clientWidth / 1000;
    if (pixels > 4) return select(timeAt(data, Math.min(from, to)), timeAt(data, Math.max(from, to)));
    const bar = on === canvas && barAt(event);
    if (bar && bar[8] >= 0) location.assign(`/tasks/${encodeURIComponent(shown.tasks[bar[8]][0])}`);
    else if (on === strip) {
      const half = (placeOf(all, shown.to) - placeOf(all, shown.from)) / 2;
      if (half < 499) select(timeAt(all, Math.max(from - half, 0)), timeAt(all, Math.min(from + half, 1000)));
    } else draw();
  };
  for (const each of [canvas, strip]) {
    each.addEventListener("pointerdown", began);
    each.addEventListener("pointermove", moved);
    each.addEventListener("pointerup", ended);
    each.addEventListener("pointercancel", () => { drag = null; draw(); });
    each.addEventListener("dblclick", () => select(0, 0));
  }
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  root.addEventListener("click", event => {
    const button = event.target.closest("[data-zoom]");
    if (button) zoom(button.dataset.zoom);
  });
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "earlier", ArrowRight: "later", 0: "all" };
  canvas.addEventListener("keydown", event => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    zoom(keys[event.key]);
  });
  document.addEventListener("visibilitychange", load);
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  load();
})();
