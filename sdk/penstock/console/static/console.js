// Nothing here is needed to use a page: it saves clicks. Text goes into the page as text only.

// A destructive form's button waits for the name.
for (const form of document.querySelectorAll("form[data-confirm]")) {
  const typed = form.elements.namedItem("confirm");
  const button = form.querySelector("button[type=submit]");
  const look = () => { button.disabled = typed.value.trim() !== form.dataset.confirm; };
  typed.addEventListener("input", look);
  look();
}

// "/" goes to the search field, as in many tools.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("input[type=search]");
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (event.key === "/" && field && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    field.focus();
  }
});

// New records of a topic, the newest on top.
const ROWS_MAX = 200;
for (const view of document.querySelectorAll("[data-live]")) {
  const state = document.querySelector("[data-live-state]");
  const count = document.querySelector("[data-live-count]");
  const pause = document.querySelector("[data-live-pause]");
  const rows = view.querySelector("tbody");
  let source = null;
  let seen = 0;
  let leftOut = 0;

  const say = (text, kind) => { state.textContent = text; state.className = `badge ${kind}`; };

  const cell = (kind, text, name, label) => {
    const made = document.createElement(kind);
    made.className = name;
    if (label) made.dataset.label = label; // a phone shows it: there the row is a block
    made.textContent = text;
    return made;
  };

  const row = (record) => {
    const made = document.createElement("tr");
    const offset = cell("th", "", "number", "Offset");
    const link = cell("a", record.offset.toLocaleString("en"), "");
    link.href = record.path;
    offset.scope = "row";
    offset.append(link);
    made.append(cell("td", record.partition, "number", "Partition"), offset, cell("td", record.time, "time"));
    for (const part of ["key", "value"]) {
      const isWord = record[`${part}_kind`] === "null" || record[`${part}_kind`] === "empty";
      made.append(cell("td", record[part], isWord ? "data quiet" : "data", part === "key" ? "Key" : "Value"));
    }
    made.append(cell("td", record.headers || "–", "data", "Headers"));
    return made;
  };

  const open = () => {
    say("connecting", "plain");
    source = new EventSource(view.dataset.live);
    source.addEventListener("message", (event) => {
      const { records, left_out } = JSON.parse(event.data);
      say("live", "good");
      for (const record of records) rows.prepend(row(record));
      while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
      seen += records.length;
      leftOut += left_out;
      count.textContent = `${seen.toLocaleString("en")} shown${leftOut ? `, ${leftOut.toLocaleString("en")} left out` : ""}`;
    });
    source.addEventListener("failed", (event) => { say(JSON.parse(event.data).error, "bad"); shut(); });
    source.addEventListener("error", () => {
      const isOver = source?.readyState === EventSource.CLOSED;
      if (source) say(isOver ? "no connection: load the page again" : "connection lost: trying again", "warn");
    });
  };

  const shut = () => { source?.close(); source = null; };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (source) { shut(); say("paused", "plain"); pause.textContent = "Go on"; } else { open(); pause.textContent = "Pause"; }
  });
  addEventListener("pagehide", shut);
  addEventListener("pageshow", (event) => { if (event.persisted && pause.textContent === "Pause") open(); });
  open();
}

// A page of figures comes again by itself, while nobody is at work in it.
for (const each of document.querySelectorAll("[data-reload]")) {
  setInterval(() => {
    const isIdle = document.activeElement === document.body || document.activeElement?.id === "content";
    if (document.visibilityState === "visible" && isIdle && !getSelection()?.toString()) location.reload();
  }, Number(each.dataset.reload) * 1000);
}
