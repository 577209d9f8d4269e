// Four clients of the JavaScript SDK claim and complete until nothing is left, then one asks for
// the summary. Arguments: the folder of the packages, the era, and how to reach the server.
const { createRequire } = require("module");
const [folder, era, ...server] = process.argv.slice(2);
const load = createRequire(folder + "/package.json");

async function connected(name) {
  if (era === "old") {
    const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
    const client = new Client({ name, version: "1" });
    const [command, ...args] = server;
    await client.connect(new StdioClientTransport({ command, args, env: process.env }));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
  const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
  const client = new Client({ name, version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(server[0]), { requestInit: { headers } }));
  return client;
}

async function call(client, name, args) {
  const answer = await client.callTool({ name, arguments: args });
  if (answer.isError) throw new Error(answer.content[0].text);
  return answer.structuredContent; // the SDK has checked it against the outputSchema
}

async function workOff(name) {
  const client = await connected(name);
  await client.listTools();
  const done = [];
  let found = await call(client, "claim_next_task", { caller: name });
  while (found.tasks.length) {
    const task = found.tasks[0];
    done.push(task.id);
    await call(client, "append_receipt", { text: `${name} was here`, token: task.token });
    found = await call(client, "complete_task", { summary: "done", token: task.token, claim_next: true });
  }
  await client.close();
  return done;
}

async function main() {
  const boss = await connected("boss");
  await boss.listTools();
  const tasks = Array.from({ length: 20 }, (_, n) => ({ title: `task ${n}` }));
  const made = await call(boss, "create_task", { tasks, batch: "crowd" });
  const done = await Promise.all([1, 2, 3, 4].map((n) => workOff(`js-${n}`)));
  const summary = await call(boss, "get_summary", { batch: "crowd" });
  await boss.close();
  console.log(JSON.stringify({ ids: made.ids, done: done.flat(), summary }));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
