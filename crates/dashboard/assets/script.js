// Keeps a page up to date: texts, times, rows, and whether the server answers. It writes texts only.
"use strict";
(() => {
  const body = document.body;
  const root = body.dataset.root;
  const byId = (id) => document.getElementById(id);
  const store = {
    get(key) { try { return localStorage.getItem("outlast-" + key); } catch { return null; } },
    set(key, value) { try { localStorage.setItem("outlast-" + key, value); } catch { /* as it was */ } },
  };

  // Times: the server's clock, in UTC or in the reader's zone, with how long ago it was.
  let ahead = Number(body.dataset.now) - Date.now();
  let isLocal = store.get("zone") === "local";
  const two = (n) => String(n).padStart(2, "0");
  const lasting = (ms) => {
    const s = Math.floor(ms / 1000);
    if (s < 1) return ms + " ms";
    if (s < 10) return s + "." + Math.floor((ms % 1000) / 100) + " s";
    if (s < 60) return s + " s";
    const units = (unit, name, smaller, smallerName) => {
      const rest = Math.floor((s % unit) / smaller);
      return Math.floor(s / unit) + " " + name + (rest ? " " + rest + " " + smallerName : "");
    };
    if (s < 3600) return units(60, "min", 1, "s");
    if (s < 86400) return units(3600, "h", 60, "min");
    return units(86400, "d", 3600, "h");
  };
  const absolute = (at) => {
    if (!isLocal) return at.toISOString().slice(0, 19).replace("T", " ") + "Z";
    const day = at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
    const offset = -at.getTimezoneOffset();
    const sign = offset < 0 ? "-" : "+";
    const zone = sign + two(Math.floor(Math.abs(offset) / 60)) + ":" + two(Math.abs(offset) % 60);
    return day + " " + two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds()) + zone;
  };
  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const tell = (time) => {
    const at = new Date(time.dateTime);
    if (isNaN(at)) return;
    write(time, absolute(at));
    const small = time.nextElementSibling;
    if (!small || small.tagName !== "SMALL") return;
    const ms = Date.now() + ahead - at.getTime();
    write(small, ms < 0 ? "in " + lasting(-ms) : lasting(ms) + " ago");
  };
  const tellAll = () => document.querySelectorAll("time").forEach(tell);
  const zone = byId("zone");
  const showZone = () => write(zone, "Times: " + (isLocal ? "local" : "UTC"));
  zone.hidden = false;
  showZone();
  zone.addEventListener("click", () => {
    isLocal = !isLocal;
    store.set("zone", isLocal ? "local" : "utc");
    showZone();
    tellAll();
  });

  // Whether the server answers.
  const contact = byId("contact");
  let last = Date.now();
  const end = () => { byId("gone").hidden = false; off(); };
  const off = () => document.querySelectorAll("main fieldset").forEach((set) => { set.disabled = true; });
  const lost = () => {
    if (contact.hidden) {
      contact.hidden = false;
      write(byId("contact-since"), "since " + absolute(new Date(last + ahead)));
    }
    off();
  };
  const found = (forms) => {
    contact.hidden = true;
    last = Date.now();
    document.querySelectorAll("main form[data-form] > fieldset").forEach((set) => {
      set.disabled = !forms.includes(set.parentElement.dataset.form);
    });
    const there = new Set([...document.querySelectorAll("form[data-form]")].map((it) => it.dataset.form));
    byId("more").hidden = forms.every((name) => there.has(name));
  };

  // What changes.
  const element = (name, text) => {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    return made;
  };
  const rowOf = (row, head) => {
    const tr = element("tr");
    tr.dataset.row = row.key;
    row.cells.forEach((cell, at) => {
      const td = element("td");
      td.className = head[at] ? head[at].className : "";
      if (cell.time) {
        const time = element("time");
        time.dateTime = cell.time;
        td.append(time, " ", element("small"));
        tell(time);
      } else if (cell.href) {
        const a = element("a", cell.text);
        // Relative links only: a text of a job leads nowhere else.
        if (/^(\.\.?\/)*[\w\-?=&%.][\w\-?=&%./]*$/.test(cell.href)) a.href = cell.href;
        td.append(a);
      } else {
        td.textContent = cell.text;
      }
      tr.append(td);
    });
    return tr;
  };
  // What a row says, without how long ago that was.
  const saying = (tr) => [...tr.cells].map((td) => {
    const parts = [...td.childNodes].filter((it) => it.tagName !== "SMALL");
    return parts.map((it) => it.textContent).join(" ").replace(/\s+/g, " ").trim();
  }).join("|");
  const grow = (table, rows) => {
    const head = table.tHead ? table.tHead.rows[0].cells : [];
    const known = new Map([...table.querySelectorAll("[data-row]")].map((tr) => [tr.dataset.row, tr]));
    let before = table.querySelector("[data-row]");
    const place = table.tBodies[0] || table;
    rows.forEach((row) => {
      const old = known.get(row.key);
      const made = rowOf(row, head);
      if (table.dataset.grow) made.dataset.testid = table.dataset.grow;
      if (!old) place.insertBefore(made, before);
      else if (saying(old) !== saying(made)) old.replaceWith(made);
      before = (old && old.isConnected ? old : made).nextElementSibling;
    });
    const empty = table.parentElement.querySelector(".empty");
    if (empty && rows.length) empty.hidden = true;
  };
  // A part of a line: nothing is a zero.
  const part = (text) =>
    text === "\\e" ? "" : text.replace(/\\([\\p])/g, (_, mark) => (mark === "p" ? "|" : mark)) || "0";
  const show = (it, text) => {
    write(it, text);
    if (it.classList.contains("state")) it.dataset.state = text.split(" ").pop();
  };
  const apply = (live) => {
    document.querySelectorAll("[data-live]").forEach((it) => {
      const text = live.texts[it.dataset.live];
      if (text === undefined) return;
      if (it.tagName === "TIME") {
        if (it.dateTime !== text) { it.dateTime = text; tell(it); }
        return;
      }
      show(it, text);
    });
    // An order goes with the state that is shown.
    const status = live.texts.status && live.texts.status.split(" ").pop();
    if (status) document.querySelectorAll("input[name=if_status]").forEach((it) => { it.value = status; });
    document.querySelectorAll("table[data-rows]").forEach((table) => {
      const lines = live.cells && live.cells[table.dataset.rows];
      const parts = lines && lines.map((line) => line.split("|").map(part));
      const keys = parts ? parts.map(([key]) => key) : live.rows && live.rows[table.dataset.rows];
      if (!keys) return;
      const cells = new Map((parts || []).map(([key, ...texts]) => [key, texts]));
      const whole = live.whole && live.whole[table.dataset.rows];
      if (whole) grow(table, whole);
      const there = new Set(keys);
      const shown = new Set();
      table.querySelectorAll("[data-row]").forEach((tr) => {
        shown.add(tr.dataset.row);
        tr.classList.toggle("gone", !there.has(tr.dataset.row));
        const texts = cells.get(tr.dataset.row) || [];
        tr.querySelectorAll("[data-c]").forEach((td, at) => {
          if (texts[at] !== undefined) show(td, texts[at]);
        });
      });
      const fresh = keys.filter((key) => !shown.has(key)).length;
      const note = table.parentElement.querySelector(".new");
      if (note) {
        note.hidden = fresh === 0;
        write(note.firstElementChild, fresh + " new: show " + (fresh === 1 ? "it" : "them"));
      }
    });
  };

  let tag = null;
  let forms = [...document.querySelectorAll("main form[data-form]")].map((it) => it.dataset.form);
  let wait = 1000;
  const poll = async () => {
    if (document.visibilityState === "visible") {
      const abort = new AbortController();
      const limit = setTimeout(() => abort.abort(), 2500);
      try {
        const headers = tag ? { "If-None-Match": tag } : {};
        const page = encodeURIComponent(body.dataset.page);
        const answer = await fetch(root + "live?page=" + page, { headers, signal: abort.signal, cache: "no-store" });
        if (answer.status === 401 && byId("out")) { byId("out").hidden = false; off(); return; }
        if (answer.status >= 400 && answer.status < 500) { end(); return; }
        if (answer.status !== 304) {
          if (!answer.ok) throw new Error(answer.status);
          const live = await answer.json();
          tag = answer.headers.get("ETag");
          ahead = live.now - Date.now();
          forms = live.forms || [];
          apply(live);
        }
        found(forms);
        wait = 1000;
      } catch {
        lost();
        wait = Math.min(wait * 1.5, 3000);
      } finally {
        clearTimeout(limit);
      }
    }
    setTimeout(poll, wait * (0.9 + Math.random() * 0.2));
  };
  if (body.dataset.page !== undefined) setTimeout(poll, 1000);
  setInterval(tellAll, 1000);
  tellAll();

  // What cannot be undone asks first.
  document.addEventListener("submit", (event) => {
    const words = event.target.dataset.confirm;
    if (words && !confirm(words)) event.preventDefault();
  });

  // Shortcuts, which a reader can switch off: / finds, g and a letter goes to a page.
  let hasShortcuts = store.get("shortcuts") !== "off";
  const shortcuts = byId("shortcuts");
  const showShortcuts = () => write(shortcuts, "Shortcuts: " + (hasShortcuts ? "on" : "off"));
  shortcuts.hidden = false;
  showShortcuts();
  shortcuts.addEventListener("click", () => {
    hasShortcuts = !hasShortcuts;
    store.set("shortcuts", hasShortcuts ? "on" : "off");
    showShortcuts();
  });
  const places = { n: "", j: "jobs", w: "workers", q: "queues", d: "deploy", l: "losses", e: "events" };
  let goes = false;
  document.addEventListener("keydown", (event) => {
    const typed = event.target.closest("input, textarea, select");
    if (!hasShortcuts || typed || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      byId("search")?.focus();
    } else if (goes && event.key in places) {
      location.href = root + places[event.key];
    }
    goes = event.key === "g";
  });
})();
