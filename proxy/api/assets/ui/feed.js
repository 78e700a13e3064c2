// Client of the server's feed. It uses fetch because EventSource cannot send the key as a header.

const API = new URL("../api/", import.meta.url);
const KEY = "temper.key";
const FIRST_WAIT = 500; // milliseconds
const LONGEST_WAIT = 10_000;

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function rememberKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function knownKey() {
  return sessionStorage.getItem(KEY) ?? "";
}

export async function ask(path, options = {}) {
  const key = knownKey();
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(new URL(path, API), { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  const error = await response.json().then((body) => body.error, () => ({}));
  throw new Refused(response.status, error.code ?? "", error.message ?? response.statusText);
}

export async function get(path) {
  return (await ask(path)).json();
}

export async function post(path, value) {
  const headers = { "content-type": "application/json" };
  await ask(path, { method: "POST", headers, body: JSON.stringify(value) });
}

/** Follow the feed for ever. `heard(event, data)`, `told(status, error)` with live, lost or refused. */
export async function follow(heard, told) {
  let wait = FIRST_WAIT;
  for (;;) {
    try {
      const response = await ask("events");
      told("live");
      wait = FIRST_WAIT;
      await read(response.body, heard);
      told("lost");
    } catch (error) {
      const wantsKey = error instanceof Refused && (error.status === 401 || error.status === 403);
      told(wantsKey ? "refused" : "lost", error);
      if (wantsKey) return;
    }
    await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)));
    wait = Math.min(LONGEST_WAIT, wait * 2);
  }
}

async function read(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) dispatch(event, heard);
  }
}

function dispatch(text, heard) {
  let name = "message";
  const data = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  if (data.length) heard(name, JSON.parse(data.join("\n")));
}
