// A shared worker: one connection to the server for all tabs of a browser. Hidden tabs hear
// nothing; when one is shown again it learns once that it has missed something. Tabs that want
// the same after an event are answered by one request.
const SHARED = 400; // milliseconds that an answer is handed out, unless an event comes first
const QUIET = 30000; // milliseconds without a visible tab until the connection is closed
const tabs = new Map(); // port -> { visible, missed, last: the event that it shows }
let source = null, last = null, closing = null, state = "connecting";

const tell = (port, message) => port.postMessage(message);
const setState = now => {
  state = now;
  for (const port of tabs.keys()) tell(port, { state });
};
const answers = new Map(); // path -> a promise of its answer
const fetched = async path => {
  try {
    const answer = await fetch(path, { headers: { "HX-Request": "true" } });
    return { status: answer.status, text: await answer.text() };
  } catch { return { status: 0, text: "" }; }
};
const get = path => {
  if (!answers.has(path)) {
    const answer = fetched(path);
    answers.set(path, answer);
    setTimeout(() => { if (answers.get(path) === answer) answers.delete(path); }, SHARED);
  }
  return answers.get(path);
};
const open = () => {
  clearTimeout(closing);
  if (source && source.readyState !== EventSource.CLOSED) return;
  source = new EventSource(`/events/stream${last === null ? "" : `?after=${last}`}`);
  source.onopen = () => setState("live");
  source.onerror = () => {
    setState("reconnecting");
    if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
  };
  source.onmessage = event => {
    const message = JSON.parse(event.data);
    last = message.last;
    answers.clear();
    for (const [port, tab] of tabs) {
      if (tab.last >= last) continue;
      if (tab.visible) tell(port, message); else tab.missed = true;
    }
  };
};
const rest = () => {
  if ([...tabs.values()].some(tab => tab.visible)) return;
  clearTimeout(closing);
  closing = setTimeout(() => { source?.close(); source = null; }, QUIET);
};
const forget = port => {
  tabs.delete(port);
  rest();
};
onconnect = ({ ports: [port] }) => {
  port.onclose = () => forget(port); // of a tab that crashed
  port.onmessage = async ({ data }) => {
    if (data.get) return tell(port, { number: data.number, ...await get(data.get) });
    if (typeof EventSource === "undefined") return tell(port, { unavailable: true });
    if (data.bye) return forget(port);
    const before = tabs.get(port) ?? { visible: true, missed: false };
    // The page was made while this worker already knew of later events.
    const late = last !== null && data.last < last;
    tabs.set(port, { visible: data.visible, missed: before.missed || late, last: data.last });
    if (last === null) last = data.last;
    if (!data.visible) return rest();
    open();
    tell(port, { state });
    if (before.missed || late) {
      tabs.get(port).missed = false;
      tell(port, { last, topics: [] });
    }
  };
};
