"use strict";
// Shows the lab as the server sends it: the whole at first, then what changed. Text is set as text.
// Rows are written in small pieces, so that a thousand phones never block the page.
(() => {
  const get = (id) => document.getElementById(id);
  const PIECE = 20; // rows per frame
  const rows = new Map(); // serial: {values, element}
  let state = {};
  let received = 0;
  let age = 0;
  let outage = "";
  const [, view, id] = location.pathname.split("/").map(decodeURIComponent);
  for (const part of document.querySelectorAll("[data-view]")) part.hidden = part.dataset.view !== view;
  get("event-section").hidden = view === "trials" || view === "sweeps";
  let pending = new Set();
  let scheduled = false;

  // As app/lab_changes.py writes them: [the new value], or by key what changed; null is removed.
  const applied = (old, change) => {
    if (Array.isArray(change)) return change[0];
    const next = Array.isArray(old) ? [...old] : { ...old };
    for (const [key, each] of Object.entries(change)) {
      if (each === null) delete next[key];
      else next[key] = applied(next[key], each);
    }
    return next;
  };
  const make = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const duration = (seconds) => {
    const s = Math.max(0, Math.round(seconds));
    if (s < 3600) return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
    return s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min` : `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  };
  const clock = (seconds) => new Date(Date.now() + seconds * 1000).toLocaleString([], { weekday: seconds > 64800 ? "short" : undefined, hour: "2-digit", minute: "2-digit" });
  const runs = (count) => (count === 1 ? "1 run" : `${count} runs`);

  const showAge = () => {
    const box = get("age");
    const seconds = age + (performance.now() - received) / 1000;
    const old = !received || seconds > 5;
    const text = !received ? "connecting" : old ? `data are ${duration(seconds)} old` : `live, ${seconds.toFixed(0)} s old`;
    box.textContent = outage && old ? `${text}: ${outage}` : text;
    box.classList.toggle("old", old);
  };

  const link = (text, ...parts) => {
    const element = make("a", text);
    element.href = `/${parts.map(encodeURIComponent).join("/")}`;
    return element;
  };
  const showTable = (name, headings, lines) => {
    const head = make("tr");
    head.append(...headings.map((text) => make("th", text)));
    const body = lines.map((cells) => {
      const row = make("tr");
      row.append(...cells.map((cell, index) => {
        const data = make("td");
        data.append(cell ?? "");
        if (headings.length) data.dataset.label = headings[index];
        return data;
      }));
      return row;
    });
    get(name).replaceChildren(...(lines.length && headings.length ? [head] : []), ...body);
  };

  const showSweep = (sweep) => {
    const card = make("article", undefined, "card");
    const title = make("b");
    title.append(link(sweep.name, "sweeps", sweep.id), " ");
    title.append(make("span", `${sweep.id} · ${sweep.state}${sweep.why ? `: ${sweep.why}` : ""}`, "soft"));
    const bar = make("progress");
    bar.max = Math.max(1, sweep.total);
    bar.value = sweep.ended;
    const counts = make("p", `${sweep.ended} of ${runs(sweep.total)} ended, ${sweep.done} done`, "small");
    for (const word of ["failed", "blocked", "suspect", "void"]) {
      if (sweep[word]) counts.append(make("span", ` · ${sweep[word]} ${word}`, word === "failed" || word === "blocked" ? "bad" : "warn"));
    }
    if (sweep.reason) counts.append(make("span", ` · most often: ${sweep.reason}`, "warn"));
    card.append(title, bar, counts);
    if (sweep.end) {
      const [likely, early, late] = sweep.end.seconds;
      const text = sweep.end.unknown ? `End unknown: ${sweep.end.unknown}` : `End about ${clock(likely)} (${clock(early)} to ${clock(late)}), ${duration(likely)} left`;
      card.append(make("p", text, "small"));
    }
    if (sweep.done || sweep.failed) card.append(link("Report", "page", "reports", sweep.id));
    return card;
  };

  const showProblem = ([title, text, phones]) => {
    const item = make("li", undefined, "card");
    item.append(make("b", title, "bad"), make("span", text));
    if (phones) item.append(make("span", ` (${phones})`, "soft"));
    return item;
  };

  const showEvent = ([at, kind, phone, text]) => {
    const item = make("li");
    const problem = ["fault", "void", "expired"].includes(kind);
    item.append(make("span", `${new Date(at).toLocaleTimeString()} `, "soft"), make("span", `${kind} `, problem ? "bad" : ""), make("span", `${phone} ${text}`));
    return item;
  };

  const cells = (v) => [v[0], v[1], v[11], `${v[2]} ${v[3]}`, v[5] === null ? "–" : `${v[5].toFixed(1)} °C`, v[6] === null ? "–" : `${v[6]} %`, v[10], v[9] !== null ? duration(v[9]) : v[8] !== null ? `${v[8]} %` : ""];
  const matches = (v) => {
    const words = get("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${v[0]} ${v[1]} ${v[3]} ${v[11]}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const writeRow = (serial) => {
    const row = rows.get(serial);
    if (!row) return;
    if (!row.element) {
      row.element = link("", "phones", serial);
      row.element.className = "row";
      row.element.setAttribute("role", "row");
      for (let index = 0; index < 8; index += 1) {
        const cell = make("span");
        cell.setAttribute("role", "cell");
        row.element.append(cell);
      }
    }
    const texts = cells(row.values);
    texts.forEach((text, index) => {
      const cell = row.element.children[index];
      if (cell.textContent !== text) cell.textContent = text;
    });
    row.element.children[3].className = `o${row.values[4]}`;
    row.element.hidden = !matches(row.values);
    if (!row.element.isConnected) get("phones").append(row.element);
    if (row.order !== row.values[4]) {
      row.order = row.values[4];
      row.element.style.order = row.order; // problems first
    }
  };
  const writeSome = () => {
    scheduled = false;
    let left = PIECE;
    for (const serial of pending) {
      if (left === 0) break;
      pending.delete(serial);
      writeRow(serial);
      left -= 1;
    }
    if (pending.size) schedule();
    else get("phone-count").textContent = String(rows.size);
  };
  const schedule = () => {
    if (!scheduled) {
      scheduled = true;
      setTimeout(writeSome, 8);
    }
  };

  const showCurves = (curves) => {
    const box = get("curves");
    const figures = Object.entries(curves).map(([name, values]) => {
      const part = make("div");
      if (!values.length) {
        part.append(make("p", `${name}: no data yet`, "soft small"));
        return part;
      }
      const low = Math.min(...values);
      const high = Math.max(...values);
      const span = Math.max(high - low, 0.05 * Math.abs(high)) || 1;
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", "0 0 240 100");
      svg.setAttribute("preserveAspectRatio", "none");
      const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
      line.setAttribute("points", values.map((value, index) => `${(240 - values.length + index).toFixed(0)},${(95 - (90 * (value - low)) / span).toFixed(1)}`).join(" "));
      svg.append(line);
      part.append(make("p", `${name}: ${values[values.length - 1].toFixed(2)} now, ${low.toFixed(2)} to ${high.toFixed(2)} in the last ${values.length} heartbeats`, "small"), svg);
      return part;
    });
    box.replaceChildren(...figures);
  };
  const showPhone = () => {
    const values = state.phones?.[id];
    get("detail-name").textContent = values ? values[0] : id;
    document.title = `${get("detail-name").textContent} – Farmhand`;
    get("detail-text").textContent = values
      ? `${values[3]}: ${values[10]}. Host ${values[1] || "none"}, clocks ${values[7] || "not pinned"}.`
      : "This lab has no such phone.";
  };
  const showTrials = (trials) => {
    get("trial-count").textContent = String(trials.length);
    showTable("trials", ["trial", "phone", "case and condition", "median of valid runs", "source", "runs"],
      trials.map(([trial, phone, ...rest]) => [link(trial.slice(0, 11), "trials", trial), phone, ...rest]));
  };
  const shows = {
    phones: (content) => {
      showCurves(content.curves);
      showTable("facts", [], content.facts);
    },
    sweeps: (content) => {
      document.title = `${content.sweep.name} – Farmhand`;
      get("sweep").replaceChildren(showSweep(content.sweep));
      get("notes").replaceChildren(...content.notes.map(([at, person, text]) => {
        const item = make("li", undefined, "card");
        item.append(make("span", `${new Date(at).toLocaleString()}, ${person}: `, "soft"), text);
        return item;
      }));
      showTrials(content.trials);
    },
    trials: (content) => {
      document.title = `${content.id} – Farmhand`;
      get("trial-name").textContent = `${content.label} on ${content.phone[1]}`;
      get("trial-text").replaceChildren(`Trial ${content.id} of `, link(content.sweep, "sweeps", content.sweep), " on ", link(content.phone[1], "phones", content.phone[0]), `: ${content.runs}.`);
      showTable("attempts", ["received", "block", "attempt", "status", "verdict", "result", "what was wrong, and what to do"],
        content.attempts.map(([at, ...rest]) => [new Date(at).toLocaleString(), ...rest.slice(0, 5).map(String), rest[5].join(" ")]));
    },
  };
  const reload = async () => {
    if (!shows[view]) return;
    const response = await fetch(`/page/${view}/${encodeURIComponent(id)}`);
    if (response.ok) shows[view](await response.json());
    else if (response.status < 500) get({ sweeps: "sweep", phones: "detail-text", trials: "trial-text" }[view]).textContent = (await response.json()).error.text;
  };
  if (view === "sweeps") get("report").src = `/page/reports/${encodeURIComponent(id)}`;
  get("note-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const response = await fetch(`/page/sweeps/${encodeURIComponent(id)}/notes`, { method: "POST", body: get("note").value });
    get("note-error").textContent = response.ok ? "" : (await response.json()).error.text;
    if (response.ok) {
      get("note").value = "";
      reload();
    }
  });

  const receive = (change) => {
    received = performance.now();
    state = applied(state, change);
    age = state.age;
    outage = state.outage;
    if (change.lab) get("lab").textContent = state.lab;
    if (change.sweeps) get("sweeps").replaceChildren(...(state.sweeps.length ? state.sweeps.map(showSweep) : [make("p", "no sweep yet", "soft")]));
    if (change.problems) {
      get("problem-count").textContent = state.problems.length ? String(state.problems.length) : "none";
      get("problems").replaceChildren(...state.problems.map(showProblem));
    }
    if (view === "phones") showPhone();
    if (change.events) get("events").replaceChildren(...state.events.filter((event) => view !== "phones" || event[2] === state.phones[id]?.[0]).reverse().map(showEvent));
    const changed = Array.isArray(change.phones) ? change.phones[0] : change.phones || {};
    for (const serial of view ? [] : Object.keys(changed)) {
      const values = state.phones[serial];
      if (!values) {
        rows.get(serial)?.element?.remove();
        rows.delete(serial);
        continue;
      }
      const row = rows.get(serial) || { element: null, order: -1 };
      row.values = values;
      rows.set(serial, row);
      pending.add(serial);
    }
    if (pending.size) schedule();
    showAge();
  };

  get("filter").addEventListener("input", () => {
    pending = new Set(rows.keys());
    schedule();
  });
  const source = new EventSource("/page/events");
  source.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  source.addEventListener("ended", () => { source.close(); location.reload(); });
  setInterval(showAge, 1000);
  reload();
  setInterval(() => { if (!document.hidden) reload(); }, view === "phones" ? 2000 : 10000);
})();
