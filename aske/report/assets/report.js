"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  /* Half a character (a lone surrogate) is no text that a page can hold; it is shown as a replacement sign. */
  const whole = (text) => text.toWellFormed ? text.toWellFormed() : text;
  const make = (tag, cls, text) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined && text !== null) node.textContent = whole(String(text));
    return node;
  };

  /* Tooltips: titles of charts, heads and tiles, shown at once beside the pointer. */
  const tip = $("tip");
  for (const title of document.querySelectorAll(".chart title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  for (const node of document.querySelectorAll("[title]")) {
    node.dataset.tip = node.title;
    node.removeAttribute("title");
  }
  document.addEventListener("pointermove", (event) => {
    const over = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !over;
    if (!over) return;
    tip.textContent = over.dataset.tip;
    const box = tip.getBoundingClientRect();
    let x = event.clientX + 16;
    if (x + box.width > innerWidth - 8) x = event.clientX - box.width - 16;
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = Math.max(8, Math.min(event.clientY + 14, innerHeight - box.height - 8)) + "px";
  });

  /* The browser of sessions. Everything that a model wrote is set as text, never as markup. */
  if (!$("data")) return;
  const data = JSON.parse($("data").textContent);
  const TONES = {calibrated: 3, too_easy: 7, too_hard: 4, no_question: 5, bad_cross_check: 2, ungradable: 0};
  const SEATS = {asker: 1, boundary_a: 3, boundary_b: 3, cross_check: 5};
  const STEP = 200;
  const words = (name) => String(name).replaceAll("_", " ");
  const state = {q: "", label: "", pair: "", asker: "", session: ""};
  let order = [], shown = STEP;
  const texts = data.map((s) => [
    s.id, s.question, s.answer, s.detail, ...s.answers,
    ...s.steps.flatMap((step) => [step.model, ...(step.sent || []).map((m) => m[1]), ...step.replies.map((r) => r[0])]),
  ].filter(Boolean).join("\n").toLowerCase());
  const pill = (label) => {
    const node = make("span", "pill", words(label));
    node.style.setProperty("--tone", `var(--c${TONES[label] ?? 0})`);
    return node;
  };
  const select = () => {
    const parts = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    order = data.map((_, i) => i).filter((i) =>
      (!state.label || data[i].label === state.label) && (!state.pair || data[i].pair.join(" + ") === state.pair) &&
      (!state.asker || data[i].asker === state.asker) && parts.every((part) => texts[i].includes(part)));
  };
  const fact = (list, name, value) => {
    if (value === null || value === undefined || value === "") return;
    list.append(make("dt", "", name), make("dd", "", value));
  };
  const drawn = (d) => {
    const signed = (x) => (x > 0 ? "+" : "") + (100 * x).toFixed(0).replace("-", "\u2212");
    const gap = d[4] === null ? "" : `; gap ${signed(d[4])} points (${signed(d[5])} to ${signed(d[6])})`;
    return `${d[0]} of ${d[1]} and ${d[2]} of ${d[3]} right${gap}`;
  };
  const facts = (s) => {
    const list = make("dl", "facts");
    fact(list, "why", (s.reason ? words(s.reason) + ": " : "") + s.detail);
    fact(list, "final question", s.question);
    fact(list, "cross-check says", s.answer);
    s.pair.forEach((name, i) => {
      if (s.answers.length) fact(list, name, `${s.answers[i] ?? "no answer"}${s.marks.length ? `  (${s.marks[i]})` : ""}`);
    });
    if (s.drawn) fact(list, "solved once more", drawn(s.drawn));
    if (s.truth) {
      const [valid, answer, same] = s.truth;
      const said = valid === false ? "not a valid question" : answer === null ? "answer not known" : `the answer is ${answer}`;
      fact(list, "oracle", said + (same === null ? "" : same ? "; the cross-check is true" : "; the cross-check is not true"));
    }
    for (const [name, label] of s.regrades) fact(list, `regrade ${name}`, words(label));
    fact(list, "Solver 1 is", s.first);
    return list;
  };
  const reply = (r, many) => {
    const [text, finish, prompt, completion, error] = r, box = make("div");
    const line = make("small", "", `${many}${prompt} + ${completion} tokens`);
    if (finish !== "stop") line.append(make("span", "bad", `  ended by ${finish}${error ? ": " + error : ""}`));
    box.append(line, make("pre", "", text || "(empty)"));
    return box;
  };
  const sent = (messages, who) => {
    const box = make("details");
    box.append(make("summary", "", `what ${who} was sent`));
    for (const [role, text] of messages) box.append(make("small", "", role), make("pre", "", text));
    return box;
  };
  const stepOf = (s, step, last) => {
    const box = make("div", "step"), line = make("small");
    box.style.setProperty("--tone", `var(--c${SEATS[step.seat] ?? 0})`);
    line.append(make("b", "", `${words(step.seat)}  ${step.who}`), ` \u00b7 ${step.model === step.who ? "" : step.model + " \u00b7 "}${step.settings}`);
    const problem = step.seat === "asker" ? s.malformed[step.turn - 1] : null;
    if (problem) line.append(make("span", "bad", `  malformed: ${words(problem)}`));
    box.append(line);
    if (step.sent) box.append(sent(step.sent, step.who));
    else if (last) box.append(make("small", "", " sent the same"));
    step.replies.forEach((r, i) => box.append(reply(r, step.replies.length > 1 ? `${i + 1} of ${step.replies.length} \u00b7 ` : "")));
    return box;
  };
  const detail = (s) => {
    const box = $("detail"), head = make("h3", "", s.id), all = [pill(s.label), head, facts(s)];
    let turn = 0, last = null, pair = null;
    for (const step of s.steps) {
      if (step.turn !== turn) {
        turn = step.turn;
        pair = null;
        all.push(make("div", "turn", turn > s.probes ? `Turn ${turn}: the final question` : `Turn ${turn}: probe`));
      }
      const node = stepOf(s, step, last);
      last = step;
      if (step.seat === "boundary_a" || step.seat === "boundary_b") {
        if (!pair) all.push(pair = make("div", "two"));
        pair.append(node);
      } else all.push(node);
    }
    if (!s.steps.length) all.push(make("p", "note", "No call was made."));
    box.replaceChildren(...all);
  };
  const open = (i) => {
    state.session = data[i].id;
    for (const button of $("list").querySelectorAll("button")) button.setAttribute("aria-current", String(button.dataset.i === String(i)));
    detail(data[i]);
    remember();
  };
  const row = (i) => {
    const s = data[i], item = make("li"), button = make("button");
    button.dataset.i = i;
    button.append(pill(s.label), make("small", "", `${s.asker} \u00b7 ${s.pair.join(" + ")} \u00b7 slot ${s.slot}`),
      make("small", "q", s.question || s.detail || ""));
    button.onclick = () => open(i);
    item.append(button);
    return item;
  };
  const show = () => {
    $("list").replaceChildren(...order.slice(0, shown).map(row));
    if (order.length > shown) {
      const item = make("li"), more = make("button", "", `Show ${Math.min(STEP, order.length - shown)} more`);
      more.onclick = () => { shown += STEP; show(); };
      item.append(more);
      $("list").append(item);
    }
    if (!order.length) $("list").append(make("p", "", "No session fits these filters."));
    $("count").textContent = `${order.length.toLocaleString("en")} of ${data.length.toLocaleString("en")} sessions`;
    for (const button of $("list").querySelectorAll("button")) button.setAttribute("aria-current", String(data[button.dataset.i]?.id === state.session));
  };
  let started = false;
  const remember = () => {
    if (!started) return;
    const parts = Object.entries(state).filter(([, value]) => value).map(([k, v]) => `${k}=${encodeURIComponent(v)}`);
    try { history.replaceState(null, "", "#sessions?" + parts.join("&")); } catch { /* some browsers refuse it for local files */ }
  };
  const refresh = () => {
    shown = STEP;
    select();
    show();
    const here = order.find((i) => data[i].id === state.session);
    if (here !== undefined) open(here);
    else if (order.length) open(order[0]);
    else $("detail").replaceChildren();
    remember();
  };
  if (location.hash.startsWith("#sessions?")) {
    for (const [key, value] of new URLSearchParams(location.hash.slice(10))) if (key in state) state[key] = value;
    $("sessions").scrollIntoView({behavior: "instant"});
  }
  for (const name of ["q", "label", "pair", "asker"]) {
    const control = $("f-" + name);
    control.value = state[name];
    if (control.value !== state[name]) state[name] = control.value = "";
    let wait;
    control.addEventListener("input", () => {
      clearTimeout(wait);
      wait = setTimeout(() => { state[name] = control.value; refresh(); }, name === "q" ? 120 : 0);
    });
  }
  refresh();
  started = true;
})();
