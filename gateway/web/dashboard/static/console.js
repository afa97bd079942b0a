// The console's one script: live parts, countdowns, confirmations, and the chat. Pages work without it, but for the chat.
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

// What the reader has opened or stands on is kept when a part is put in the place of its older self.
const renew = (part, html) => {
  const active = document.activeElement;
  if (part.contains(active) && active.matches("input, textarea, select")) return false;
  const place = part.contains(active) ? [...part.querySelectorAll("a, button, summary")].indexOf(active) : -1;
  const open = new Set([...part.querySelectorAll("details[open]")].map((one) => one.id));
  part.innerHTML = html;
  for (const one of part.querySelectorAll("details")) if (open.has(one.id)) one.open = true;
  if (place >= 0) part.querySelectorAll("a, button, summary")[place]?.focus({ preventScroll: true });
  return true;
};

const follow = () => {
  const late = new Map();
  const show = (id, html) => {
    const part = document.getElementById(id);
    if (part && !renew(part, html)) late.set(id, html);
    else late.delete(id);
  };
  document.addEventListener("focusout", () => setTimeout(() => late.forEach((html, id) => show(id, html)), 0));
  const pulse = document.querySelector("[data-pulse]");
  const source = new EventSource(location.href);
  source.onopen = () => { if (pulse) pulse.hidden = false; };
  source.onerror = () => { if (pulse) pulse.hidden = true; };
  source.onmessage = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) show(id, html);
    tick();
  };
  source.addEventListener("over", () => { source.close(); location.reload(); });
  addEventListener("pagehide", () => source.close());
};

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

document.addEventListener("DOMContentLoaded", () => {
  tick();
  setInterval(tick, 1000);
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  if ("live" in document.body.dataset) follow();
});
