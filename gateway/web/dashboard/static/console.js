// The console's one script: live parts, countdowns, confirmations, and the chat. Pages work without it too.
"use strict";

const span = (seconds) => {
  const left = Math.max(0, Math.ceil(seconds));
  const parts = [[Math.floor(left / 86400), "d"], [Math.floor((left % 86400) / 3600), "h"], [Math.floor((left % 3600) / 60), "min"], [left % 60, "s"]];
  while (parts.length > 1 && !parts[0][0]) parts.shift();
  return parts.slice(0, 2).map(([value, name]) => `${value} ${name}`).join(" ");
};

const tick = () => {
  for (const place of document.querySelectorAll("[data-until]")) {
    const seconds = (Date.parse(place.dataset.until) - Date.now()) / 1000;
    place.textContent = seconds > 0 ? `(in ${span(seconds)})` : "(now)";
  }
};

// What a link or a button is for, so that it is found again where things have moved.
const meaning = (one) => [one.href, one.form?.action, ...(one.form ? new FormData(one.form).values() : []), one.textContent].join("\n");

// What the reader has opened or stands on is kept when a part is put in the place of its older self.
const renew = (part, html) => {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  if (active?.matches("input, textarea, select")) return false;
  const meant = active && meaning(active);
  const open = new Set([...part.querySelectorAll("details[open]")].map((one) => one.id));
  part.innerHTML = html;
  for (const one of part.querySelectorAll("details")) if (open.has(one.id)) one.open = true;
  if (active) {
    const same = [...part.querySelectorAll("a, button, summary")].find((one) => meaning(one) === meant);
    (same ?? document.getElementById("main")).focus({ preventScroll: true });
  }
  return true;
};

const AGAIN_MS = 5000;

const follow = () => {
  const late = new Map();
  const show = (id, html) => {
    const part = document.getElementById(id);
    if (part && !renew(part, html)) late.set(id, html);
    else late.delete(id);
  };
  document.addEventListener("focusout", () => setTimeout(() => late.forEach((html, id) => show(id, html)), 0));
  const pulse = document.querySelector("[data-pulse]");
  pulse?.setAttribute("role", "status");
  const say = (live) => {
    if (!pulse) return;
    pulse.hidden = false;
    pulse.classList.toggle("off", !live);
    pulse.textContent = live ? "live" : "not live: connecting again";
  };
  let source = null, waiting = 0;
  const stop = () => { clearTimeout(waiting); source?.close(); source = null; };
  const start = () => {
    stop();
    source = new EventSource(location.href);
    source.onopen = () => say(true);
    source.onerror = () => {
      say(false);
      // By itself a browser tries again after a broken connection, and never after an answer that says no.
      if (source?.readyState === EventSource.CLOSED) waiting = setTimeout(start, AGAIN_MS);
    };
    source.onmessage = (event) => {
      for (const [id, html] of Object.entries(JSON.parse(event.data))) show(id, html);
      tick();
    };
    source.addEventListener("over", () => { stop(); location.reload(); });
  };
  // A browser has six connections for a server: pages that nobody sees must not keep those of the one that is looked at.
  const seen = () => { if (document.hidden) stop(); else if (!source) start(); };
  document.addEventListener("visibilitychange", seen);
  addEventListener("pagehide", stop);
  addEventListener("pageshow", seen);
  seen();
};

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

document.addEventListener("DOMContentLoaded", () => {
  tick();
  setInterval(tick, 1000);
  if ("live" in document.body.dataset) follow();
});

// --- The chat. What is said is put in as text, never as markup. ---

const events = async function* (response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [kind, data] = block.split("\n");
      yield [kind.slice(7), JSON.parse(data.slice(6))];
    }
  }
};

const talk = (ask) => {
  const place = document.getElementById("talk"), question = document.getElementById("question");
  const send = document.getElementById("send"), stop = document.getElementById("stop"), target = document.getElementById("target");
  const empty = document.getElementById("chat-empty");
  let messages = [], running = null;

  const bubble = (who, words) => {
    const box = document.createElement("div"), body = document.createElement("div"), note = document.createElement("p");
    box.className = who;
    body.className = "words";
    body.textContent = words;
    note.className = "note";
    box.append(body, note);
    place.append(box);
    return { box, body, note };
  };
  const down = () => { place.scrollTop = place.scrollHeight; };
  const why = (note, id) => {
    const link = document.createElement("a");
    link.href = `/why/${encodeURIComponent(id)}`;
    link.textContent = "Why";
    note.append(note.hasChildNodes() ? " · " : "", link);
  };

  const read = async (response, shown) => {
    let words = "", who = "", whole = false;
    for await (const [kind, fields] of events(response)) {
      whole ||= kind === "done" || kind === "notice";
      const near = place.scrollHeight - place.scrollTop - place.clientHeight < 80;
      if (kind === "begun") {
        who = `${fields.provider} ${fields.model}`;
        shown.note.textContent = who + (fields.skipped.length ? ` · instead of ${fields.skipped.map((one) => one.slot).join(", ")}` : "");
      } else if (kind === "text") {
        words += fields.text;
        shown.body.textContent = words;
      } else if (kind === "done") {
        const cost = fields.cost_micro_usd ? `$${(fields.cost_micro_usd / 1e6).toFixed(6).replace(/0{1,4}$/, "")}` : "no cost";
        shown.note.textContent += ` · ${fields.tokens.toLocaleString("en")} tokens · ${cost}${fields.clamped ? " · shortened to what the budget had left" : ""}${fields.estimated ? " · estimated" : ""}`;
        why(shown.note, fields.request_id);
      } else if (kind === "notice") {
        const box = words ? bubble("theirs notice", fields.text) : shown;
        box.box.className = "theirs notice";
        box.body.textContent = fields.text;
        why(box.note, fields.request_id);
      }
      if (near) down();
    }
    if (!whole) throw new Error("The answer broke off.");
    return words;
  };

  const submit = async () => {
    const text = question.value.trim();
    if (!text || running) return;
    empty?.remove();
    bubble("mine", text);
    const shown = bubble("theirs busy", "");
    down();
    question.value = "";
    running = new AbortController();
    send.hidden = true; stop.hidden = false; place.setAttribute("aria-busy", "true");
    const asked = [...messages, { role: "user", content: text }];
    let words = "";
    try {
      const response = await fetch("/chat", {
        method: "POST", signal: running.signal, body: JSON.stringify({ model: target.value, messages: asked, stream: true }),
        headers: { "Content-Type": "application/json", "X-CSRF-Token": document.body.dataset.csrf },
      });
      if (response.status === 401) {
        // What was said stays here to be read, and the question to be sent again.
        question.value = text;
        const link = document.createElement("a");
        link.href = "/login?next=/chat";
        link.textContent = "Log in again";
        shown.note.append(link);
        throw new Error("Your session has ended.");
      }
      if (!response.ok) {
        const body = await response.json().catch(() => ({}));
        throw new Error(body.error?.message ?? `The server answered ${response.status}.`);
      }
      words = await read(response, shown);
    } catch (error) {
      words = shown.body.textContent;
      const stopped = error.name === "AbortError";
      if (words || stopped) shown.note.textContent += `${shown.note.textContent ? " · " : ""}${stopped ? "stopped" : "broke off"}`;
      else { shown.box.className = "theirs notice"; shown.body.textContent = error.message; }
    } finally {
      shown.box.classList.remove("busy");
      if (words && shown.box.isConnected && !shown.box.classList.contains("notice")) messages = [...asked, { role: "assistant", content: words }];
      running = null;
      send.hidden = false; stop.hidden = true; place.removeAttribute("aria-busy");
      question.focus();
    }
  };

  ask.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  question.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  });
  stop.addEventListener("click", () => running?.abort());
  // A phone's keyboard takes half of the window: what was said last stays to be seen.
  addEventListener("resize", down);
  const anew = document.getElementById("chat-new");
  anew.hidden = false;
  anew.addEventListener("click", () => {
    running?.abort();
    messages = [];
    place.replaceChildren();
    question.focus();
  });
};

document.addEventListener("DOMContentLoaded", () => {
  const ask = document.getElementById("ask");
  if (ask) talk(ask);
  for (const button of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  }
});
