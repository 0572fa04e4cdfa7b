"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, cls, text) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined && text !== null) node.textContent = text;
    return node;
  };

  /* Tooltips: the titles of a chart's columns, shown at once beside the pointer. */
  const tip = $("tip");
  for (const title of document.querySelectorAll(".chart title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  const place = (event) => {
    const box = tip.getBoundingClientRect();
    let x = event.clientX + 16;
    if (x + box.width > innerWidth - 8) x = event.clientX - box.width - 16;
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = Math.max(8, Math.min(event.clientY + 14, innerHeight - box.height - 8)) + "px";
  };
  document.addEventListener("pointermove", (event) => {
    const over = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !over;
    if (over) {
      if (tip.textContent !== over.dataset.tip) tip.textContent = over.dataset.tip;
      place(event);
    }
  });

  /* Save a chart as an SVG file that stands alone: its computed colours are written into it. */
  const kept = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
    "opacity", "font-family", "font-size"];
  for (const chart of document.querySelectorAll("figure .chart")) {
    const button = make("button", "save", "SVG");
    button.title = "Save this chart as an SVG file";
    button.onclick = () => {
      const copy = chart.cloneNode(true), from = chart.querySelectorAll("*"), to = copy.querySelectorAll("*");
      to.forEach((node, i) => {
        const style = getComputedStyle(from[i]);
        node.setAttribute("style", kept.map((name) => name + ":" + style.getPropertyValue(name)).join(";"));
      });
      copy.querySelectorAll(".hover").forEach((node) => node.remove());
      const link = make("a");
      link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], {type: "image/svg+xml"}));
      link.download = (chart.getAttribute("aria-label") || "chart").toLowerCase().replace(/[^a-z0-9]+/g, "-") + ".svg";
      link.click();
    };
    chart.closest("figure").append(button);
  }

  /* The admission table: rows are packed column by column, gzipped; filters, order and page stand in the address. */
  const holder = $("packed");
  if (!holder) return;
  const PAGE = 50;
  const TONES = {kept: 3, too_easy: 7, too_hard: 4, invalid: 2, undecided: 5, no_answer: 9, malformed: 0};
  const state = {q: "", round: "", stage: "", decision: "", truth: "", sort: "", page: 0};
  let data, size, order = [], index = new Map(), texts;
  const words = (name) => name === null || name === undefined ? "\u2013" : String(name).replaceAll("_", " ");
  const share = (value) => value === null ? "\u2013" : value.toFixed(2);
  const unpack = async () => {
    const bytes = Uint8Array.from(atob(holder.textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  const truthOf = (i) => data.source[i] === null ? "" : data.valid[i] === null ? "undecided" : data.valid[i] ? "valid" : "invalid";
  const tests = {
    kept_invalid: (i) => data.decision[i] === "kept" && data.valid[i] === false,
    rejected_valid: (i) => data.decision[i] === "invalid" && data.valid[i] === true,
    valid: (i) => data.valid[i] === true,
    invalid: (i) => data.valid[i] === false,
    unknown: (i) => data.valid[i] === null,
  };
  const keys = {
    round: (i) => data.round[i], question: (i) => data.question[i] || data.reply[i] || "",
    invalid: (i) => data.vote[i] ? data.vote[i][0] / (data.vote[i][0] + data.vote[i][1] || 1) : null,
    s: (i) => data.share[i], novelty: (i) => data.novelty[i], reward: (i) => data.reward[i],
    decision: (i) => data.decision[i], truth: (i) => truthOf(i) || null,
  };
  const select = () => {
    const parts = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    order = [];
    for (let i = 0; i < size; i++) {
      if (state.round && String(data.round[i]) !== state.round) continue;
      if (state.stage && data.stage[i] !== state.stage) continue;
      if (state.decision && data.decision[i] !== state.decision) continue;
      if (state.truth && !tests[state.truth](i)) continue;
      if (parts.length && !parts.every((part) => texts[i].includes(part))) continue;
      order.push(i);
    }
    const down = state.sort.startsWith("-"), key = keys[down ? state.sort.slice(1) : state.sort];
    if (key) {
      const values = new Map(order.map((i) => [i, key(i)]));
      order.sort((a, b) => {
        const x = values.get(a), y = values.get(b);
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1) || a - b;
      });
    }
    state.page = Math.max(0, Math.min(state.page, Math.ceil(order.length / PAGE) - 1));
  };
  const fact = (list, name, value) => {
    if (value === null || value === undefined || value === "") return;
    list.append(make("dt", "", name), make("dd", "", value));
  };
  const detail = (i) => {
    const row = make("tr"), cell = make("td", "detail"), list = make("dl", "facts");
    cell.colSpan = 8;
    cell.append(make("blockquote", "", data.question[i] || data.reply[i] || "(empty reply)"));
    fact(list, "reason", data.reason[i]);
    fact(list, "not parsed", data.failure[i]);
    fact(list, "questioner\u2019s answer", data.own[i]);
    const vote = data.vote[i];
    if (vote) fact(list, "validity vote", `${vote[0]} invalid, ${vote[1]} valid, ${vote[2]} undecided of ${vote[3]} asked`);
    if (data.counted[i]) {
      const clusters = (data.clusters[i] || []).map((c) => `${c[0]} \u00d7${c[1]}`).join(",  ");
      fact(list, "answers", `${clusters || "none"}  (${data.counted[i][0]} of ${data.counted[i][1]} counted${data.tie[i] ? "; tie" : ""})`);
      fact(list, "majority answer", data.answer[i]);
    }
    if (data.novelty[i]) {
      const [compared, unreadable] = data.compared[i];
      fact(list, "novelty", `${words(data.novelty[i])}: compared with ${compared}${unreadable ? `, ${unreadable} unreadable` : ""}`);
      const match = data.match[i];
      if (match !== null) {
        const other = index.get(match);
        fact(list, "same exercise as", other === undefined ? String(match) : `${data.question[other]}  (${match})`);
      }
    }
    if (data.terms[i]) fact(list, "reward terms", Object.entries(data.terms[i]).map(([k, v]) => `${words(k)} ${v}`).join(",  "));
    if (truthOf(i)) {
      const parts = [truthOf(i), data.error[i] && words(data.error[i]), data.pattern[i] && "pattern " + words(data.pattern[i]),
        data.truth[i] !== null && "answer " + data.truth[i]].filter(Boolean);
      fact(list, `truth (${data.source[i]})`, parts.join(", "));
    }
    fact(list, "id", data.id[i]);
    cell.append(list);
    row.append(cell);
    return row;
  };
  const line = (i) => {
    const row = make("tr", "row"), vote = data.vote[i];
    const add = (text, cls) => row.append(make("td", cls, text));
    add(data.stage[i] === "questioner" ? `${data.round[i]}, step ${data.step[i]}` : data.round[i]);
    const question = make("td", "q"), inner = make("div", "", data.question[i] || data.reply[i] || "(empty reply)");
    question.append(inner);
    row.append(question);
    add(vote ? `${vote[0]} of ${vote[0] + vote[1]}` : "\u2013", vote ? "" : "none");
    add(share(data.share[i]), data.share[i] === null ? "none" : "");
    add(words(data.novelty[i]), data.novelty[i] === null ? "none" : "");
    add(share(data.reward[i]).replace("-", "\u2212"), data.reward[i] === null ? "none" : "");
    const decision = make("td", "left"), pill = make("span", "pill", words(data.decision[i]));
    pill.style.setProperty("--tone", `var(--c${TONES[data.decision[i]] ?? 0})`);
    decision.append(pill);
    row.append(decision);
    add(truthOf(i) || "\u2013", "left" + (truthOf(i) ? "" : " none"));
    row.tabIndex = 0;
    const toggle = () => {
      if (row.nextSibling && row.nextSibling.dataset && row.nextSibling.dataset.of) row.nextSibling.remove();
      else {
        const more = detail(i);
        more.dataset.of = "1";
        row.after(more);
      }
    };
    row.onclick = toggle;
    row.onkeydown = (event) => { if (event.key === "Enter") toggle(); };
    return row;
  };
  const show = () => {
    const first = state.page * PAGE, body = $("rows").tBodies[0];
    body.replaceChildren(...order.slice(first, first + PAGE).map(line));
    if (!order.length) {
      const row = make("tr"), cell = make("td", "left", "No question fits these filters.");
      cell.colSpan = 8;
      row.append(cell);
      body.append(row);
    }
    const last = Math.min(first + PAGE, order.length), f = (n) => n.toLocaleString("en");
    $("count").textContent = order.length ? `${f(first + 1)}\u2013${f(last)} of ${f(order.length)} questions` : "0 questions";
    $("back").disabled = first === 0;
    $("next").disabled = last >= order.length;
    for (const head of $("rows").tHead.rows[0].cells) {
      const sorted = state.sort.replace("-", "") === head.dataset.key;
      if (sorted) head.setAttribute("aria-sort", state.sort.startsWith("-") ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  };
  const remember = () => {
    const parts = Object.entries(state).filter(([, value]) => value).map(([k, v]) => `${k}=${encodeURIComponent(v)}`);
    history.replaceState(null, "", "#table?" + parts.join("&"));
  };
  const refresh = (keepPage) => {
    if (!keepPage) state.page = 0;
    select();
    show();
    try { remember(); } catch { /* some browsers refuse to write the address of a local file */ }
  };
  const start = () => {
    texts = [];
    for (let i = 0; i < size; i++) {
      texts.push([data.question[i], data.reply[i], data.own[i], data.answer[i], data.pattern[i], words(data.pattern[i]),
        data.error[i], data.reason[i], words(data.novelty[i]), words(data.decision[i]), data.id[i]].filter(Boolean).join("\n").toLowerCase());
      if (data.question[i]) index.set(data.id[i], i);
    }
    if (location.hash.startsWith("#table?")) {
      for (const [key, value] of new URLSearchParams(location.hash.slice(7))) {
        if (key in state) state[key] = key === "page" ? Number(value) || 0 : value;
      }
      $("table").scrollIntoView({behavior: "instant"});
    }
    for (const name of ["q", "round", "stage", "decision", "truth"]) {
      const control = $("f-" + name);
      control.value = state[name];
      if (control.value !== state[name]) state[name] = control.value = "";
      let wait;
      control.addEventListener("input", () => {
        clearTimeout(wait);
        wait = setTimeout(() => { state[name] = control.value; refresh(); }, name === "q" ? 120 : 0);
      });
    }
    $("back").onclick = () => { state.page--; refresh(true); };
    $("next").onclick = () => { state.page++; refresh(true); };
    for (const head of $("rows").tHead.rows[0].cells) {
      head.onclick = () => {
        const key = head.dataset.key;
        state.sort = state.sort === "-" + key ? key : state.sort === key ? "" : "-" + key;
        refresh();
      };
    }
    select();
    show();
  };
  if (typeof DecompressionStream === "undefined") {
    $("count").textContent = "This browser cannot unpack the table; a browser of 2023 or later can.";
    return;
  }
  unpack().then((rows) => {
    data = rows;
    size = data.id.length;
    start();
  }).catch((problem) => { $("count").textContent = "The table cannot be read: " + problem; });
})();
