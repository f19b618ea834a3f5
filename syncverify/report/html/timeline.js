// The timeline of one violation: ranks as rows, streams as lanes, ticks from left to right.

const LANE = 26;
const LINE = 12;
const [LEAST_TICK, MOST_TICK] = [26, 120];
const RANK = 24;
const TOP = 18;
const KINDS = {
  accumulate: "gradient accumulated by autograd", operator: "operator of the subject",
  collective: "collective, until it is waited for", optimizer: "the training program",
  wait: "wait, event", freed: "memory given back",
};
const LINES = {
  launch: "launch", match: "ranks meet", wait: "waits for", missing: "nothing orders these",
};

class Timeline {
  constructor(host, data) {
    this.host = host;
    this.data = data;
    this.cursor = data.ticks;
    this.selected = data.race ? data.race.second : data.events.findIndex((each) => each.told);
    this.order = data.events.map((_, index) => index)
      .sort((one, other) => data.events[one].start - data.events[other].start || one - other);
    this.measure();
    this.build();
    this.showMoment();
    this.tell();
  }

  // Places of ticks where nothing is zoomed: a tick is as wide as the text of its event.
  measure() {
    const widths = new Array(this.data.ticks + 1).fill(LEAST_TICK);
    for (const event of this.data.events) {
      // Only a call shares its lane with events that lie on it.
      if (event.end - event.start > 1 && event.kind !== "call") continue;
      const wanted = textWidth(event.labels.at(-1)) + 11;
      widths[event.start] = clamp(wanted, widths[event.start], Math.max(widths[event.start], MOST_TICK));
    }
    let reached = 0;
    this.places = widths.map((width) => (reached += width) - width);
  }

  // The lanes, in the width of the picture: their names take as many lines as they need.
  layOut() {
    const names = this.data.lanes.map(({ lane }) => textWidth(lane));
    this.left = Math.ceil(Math.min(Math.max(60, ...names) + 22, Math.max(84, this.width * 0.28)));
    this.rows = new Map();
    this.ranks = [];
    let y = TOP;
    for (const { rank, lane } of this.data.lanes) {
      const lines = wrapped(lane, this.left - 18);
      const height = Math.max(LANE, lines.length * LINE + 6);
      if (!this.ranks.length || this.ranks.at(-1).rank !== rank) {
        this.ranks.push({ rank, y });
        y += RANK;
      }
      this.rows.set(`${rank} ${lane}`, { rank, lane, y, height, lines });
      y += height;
    }
    this.height = y + 6;
    this.chart.setAttribute("height", this.height);
  }

  build() {
    this.chart = svg("svg", {
      class: "chart", tabindex: 0, role: "application",
      "aria-label": "Timeline. Arrow keys go from event to event, plus and minus zoom.",
    });
    this.about = html("p", { class: "about", "aria-live": "polite" });
    this.host.replaceChildren(this.tools(), this.chart, this.about, this.legend(), html(
      "p", { class: "keys" },
      "Keys: ← → events, ↑ ↓ lanes, + − zoom, 0 whole run, Home and End. Drag to move; hold "
      + "Ctrl and turn the wheel to zoom. A tick is a step of the host's program, not a time.",
    ));
    this.chart.addEventListener("keydown", (event) => this.key(event));
    this.chart.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.chart.addEventListener("pointerdown", (event) => this.grab(event));
    this.chart.addEventListener("pointermove", (event) => this.hover(event));
    this.chart.addEventListener("pointerleave", () => tip.hide());
    this.chart.addEventListener("click", (event) => {
      const index = event.target.dataset.event;
      if (index !== undefined) this.select(Number(index));
    });
    onResize(this.chart, () => this.draw());
    addEventListener("beforeprint", () => { this.show(0, this.data.ticks); this.render(); });
  }

  tools() {
    const button = (text, title, act) => {
      const made = html("button", { type: "button", title, "aria-label": title }, text);
      made.addEventListener("click", act);
      return made;
    };
    this.slider = html("input", {
      type: "range", min: 1, max: this.data.ticks, value: this.data.ticks, "aria-label": "Time, in ticks",
    });
    this.tick = html("output");
    this.slider.addEventListener("input", () => this.moveTo(Number(this.slider.value)));
    return html("div", { class: "tools" },
      button("−", "Zoom out", () => this.zoom(1.5)),
      button("+", "Zoom in", () => this.zoom(1 / 1.5)),
      button("whole run", "Show the whole run", () => this.show(0, this.data.ticks)),
      button(this.data.race ? "the race" : "the moment", "Show the violation", () => this.showMoment()),
      html("label", {}, "time", this.slider, this.tick),
    );
  }

  legend() {
    const sample = (...parts) => svg("svg", { width: 22, height: 10, "aria-hidden": "true" }, ...parts);
    const entry = (picture, text) => html("li", {}, picture, text);
    const found = new Set(this.data.events.map((each) => family(each.kind)));
    const drawn = new Set(this.data.arrows.map((each) => each.kind));
    if (this.data.race) drawn.add("missing");
    const kinds = Object.entries(KINDS).filter(([kind]) => found.has(kind)).map(([kind, text]) =>
      entry(sample(svg("rect", { width: 20, height: 10, rx: 2, class: `event ${kind}` })), text));
    const lines = Object.entries(LINES).filter(([kind]) => drawn.has(kind)).map(([kind, text]) =>
      entry(sample(svg("path", { d: "M0 5H22", class: kind === "missing" ? kind : `arrow ${kind}` })), text));
    return html("ul", { class: "legend", "aria-label": "Key of the timeline" }, ...kinds, ...lines);
  }

  get room() { return this.width - this.left - 8; }
  get scale() { return this.room / (this.to - this.from); } // pixels a tick, on average
  unzoomed(tick) {
    const whole = clamp(Math.floor(tick), 0, this.data.ticks - 1);
    return this.places[whole] + (tick - whole) * (this.places[whole + 1] - this.places[whole]);
  }
  x(tick) {
    const start = this.unzoomed(this.from);
    return this.left + (this.unzoomed(tick) - start) * this.room / (this.unzoomed(this.to) - start);
  }
  row(place) { return this.rows.get(`${place.rank} ${place.lane}`); }
  middle(place) { const { y, height } = this.row(place); return y + height / 2; }

  showMoment() {
    const { race, events, ticks } = this.data;
    const told = race ? [race.first, race.second] : this.selected < 0 ? [] : [this.selected];
    const starts = told.map((index) => events[index].start);
    this.width = this.chart.clientWidth || 900;
    this.layOut();
    // As many ticks around the moment as have room for their texts.
    let [from, to] = told.length ? [Math.min(...starts), Math.min(Math.max(...starts) + 1, ticks)] : [0, 1];
    const fits = (one, other) => this.unzoomed(other) - this.unzoomed(one) <= this.room;
    for (let grown = true; grown;) {
      grown = false;
      if (from > 0 && fits(from - 1, to)) { from -= 1; grown = true; }
      if (to < ticks && fits(from, to + 1)) { to += 1; grown = true; }
    }
    this.show(from, to);
  }

  show(from, to) {
    const span = clamp(to - from, Math.min(6, this.data.ticks), this.data.ticks);
    this.from = clamp(from, 0, this.data.ticks - span);
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  moveTo(tick) {
    this.cursor = clamp(tick, 1, this.data.ticks);
    this.slider.value = this.cursor;
    if (this.cursor < this.from || this.cursor > this.to) {
      const half = (this.to - this.from) / 2;
      this.show(this.cursor - half, this.cursor + half);
    }
    this.draw();
  }

  draw() {
    this.frame ??= requestAnimationFrame(() => this.render());
  }

  render() {
    this.frame = null;
    this.width = this.chart.clientWidth || 900;
    this.layOut();
    this.tick.textContent = `tick ${this.cursor} of ${this.data.ticks}`;
    const parts = [...this.background(), ...this.drawnEvents(), ...this.drawnArrows(), ...this.race()];
    const defs = svg("defs", {}, svg("marker", {
      id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto",
    }, svg("path", { d: "M0 0L8 4L0 8z", class: "tipped" })));
    this.chart.replaceChildren(defs, ...parts, ...this.names());
  }

  background() {
    const parts = [];
    let even = false;
    for (const { y, height } of this.rows.values()) {
      even = !even;
      parts.push(svg("rect", { x: 0, y, width: this.width, height, class: even ? "lane even" : "lane" }));
    }
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000].find((each) => each * this.scale > 46) ?? 20000;
    for (let tick = Math.ceil(this.from / step) * step; tick <= this.to; tick += step) {
      parts.push(svg("line", { x1: this.x(tick), x2: this.x(tick), y1: TOP, y2: this.height, class: "grid" }));
      parts.push(svg("text", { x: this.x(tick) + 2, y: 12, class: "soft" }, String(tick)));
    }
    const at = this.x(this.cursor);
    if (this.cursor < this.data.ticks && at >= this.left) {
      parts.push(svg("line", { x1: at, x2: at, y1: 0, y2: this.height, class: "cursor" }));
    }
    return parts;
  }

  // The names lie over what moves out of the picture to the left.
  names() {
    const parts = [svg("rect", { x: 0, y: 0, width: this.left - 4, height: this.height, fill: "var(--card)" })];
    for (const { rank, y } of this.ranks) {
      parts.push(svg("text", { x: 4, y: y + 16, class: "rank" }, `rank ${rank}`));
    }
    for (const { y, height, lines } of this.rows.values()) {
      const first = y + (height - lines.length * LINE) / 2 + 10;
      lines.forEach((line, number) => parts.push(svg("text", { x: 10, y: first + number * LINE, class: "soft" }, line)));
    }
    return parts;
  }

  // Events in the window. Where many share a pixel, the first stands for all.
  drawnEvents() {
    const parts = [];
    const reached = new Map();
    for (const index of this.order) {
      const event = this.data.events[index];
      if (event.end < this.from || event.start > this.to) continue;
      const key = `${event.rank} ${event.lane} ${event.kind === "call"}`;
      const x = Math.max(this.x(event.start), this.left - 10);
      const width = Math.max(Math.min(this.x(event.end), this.width + 10) - x - 1, 1.5);
      const matters = event.told || index === this.selected;
      if (!matters && x + width <= (reached.get(key) ?? -1) + 0.5) continue;
      reached.set(key, x + width);
      parts.push(...this.drawnEvent(event, index, x, width));
    }
    return parts;
  }

  drawnEvent(event, index, x, width) {
    const y = this.middle(event) - LANE / 2 + 3;
    const names = ["event", event.kind];
    if (event.open) names.push("open");
    if (event.told) names.push("told");
    if (index === this.selected) names.push("selected");
    if (event.start >= this.cursor) names.push("later");
    const box = { x, y, width, height: LANE - 6, rx: 3, class: names.join(" "), "data-event": index };
    const shown = event.labels.find((each) => textWidth(each) + 8 <= width); // whole, or not at all
    if (!shown) return [svg("rect", box)];
    const label = { x: x + 4, y: y + 14, class: event.kind === "call" ? "label" : "label on" };
    if (event.start >= this.cursor) label.class += " later";
    return [svg("rect", box), svg("text", label, shown)];
  }

  drawnArrows() {
    const parts = [];
    for (const { kind, tail, head } of this.data.arrows) {
      if (Math.max(tail.start, head.start) < this.from || Math.min(tail.start, head.start) > this.to) continue;
      const inner = kind === "launch" || kind === "wait" ? 0.05 : 0.5;
      const from = kind === "wait" ? head.start : tail.start; // a collective lasts until then
      const [x1, x2] = [this.x(from + inner), this.x(head.start + inner)];
      const [y1, y2] = [this.middle(tail), this.middle(head)];
      const bend = kind === "match" || kind === "mismatch" ? clamp(this.scale * 0.4, 4, 24) : 0;
      const path = { d: curve(x1, y1, x2, y2, bend), class: `arrow ${kind}` };
      if (head.start >= this.cursor) path.class += " later";
      if (kind === "wait" || kind === "order") path["marker-end"] = "url(#tip)";
      parts.push(svg("path", path));
    }
    return parts;
  }

  race() {
    if (!this.data.race) return [];
    const [first, second] = [this.data.race.first, this.data.race.second].map((index) => this.data.events[index]);
    const [x1, x2] = [this.x(Math.min(first.end, first.start + 1)) - 2, this.x(second.start) + 2];
    const [y1, y2] = [this.middle(first), this.middle(second)];
    // In the line of the rank's name, where no event lies.
    const above = { x: clamp((x1 + x2) / 2, this.left + 30, this.width - 30), y: this.ranks.find((each) => each.rank === first.rank).y + 17 };
    const later = second.start >= this.cursor ? " later" : "";
    return [
      svg("path", { d: curve(x1, y1, x2, y2, y1 === y2 ? 0 : 14), class: `missing${later}` }),
      svg("text", { ...above, "text-anchor": "middle", class: `race${later}` }, "no order"),
    ];
  }

  select(index) {
    this.selected = index;
    const event = this.data.events[index];
    if (event.start < this.from || event.start > this.to) {
      const half = (this.to - this.from) / 2;
      this.show(event.start - half, event.start + half);
    }
    if (event.start >= this.cursor) this.moveTo(event.start + 1);
    this.tell();
    this.draw();
  }

  tell() {
    const event = this.data.events[this.selected];
    const remedy = this.data.race?.remedy ? `Remedy: ${this.data.race.remedy}` : "";
    if (!event) {
      this.about.textContent = "Choose an event to read about it.";
      return;
    }
    const [name, ...lines] = described(event);
    const inRace = this.data.race && [this.data.race.first, this.data.race.second].includes(this.selected);
    this.about.replaceChildren(html("b", {}, name), ` · ${lines.join(" · ")}`, ...(inRace && remedy ? [html("br"), remedy] : []));
  }

  key(event) {
    const acts = {
      ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1),
      ArrowDown: () => this.lane(1), ArrowUp: () => this.lane(-1),
      Home: () => this.select(this.order[0]), End: () => this.select(this.order.at(-1)),
      "+": () => this.zoom(1 / 1.5), "=": () => this.zoom(1 / 1.5), "-": () => this.zoom(1.5),
      0: () => this.show(0, this.data.ticks),
    };
    if (event.ctrlKey || event.metaKey || !acts[event.key] || !this.order.length) return;
    event.preventDefault();
    acts[event.key]();
  }

  step(by) {
    const place = this.order.indexOf(this.selected);
    this.select(this.order[clamp(place + by, 0, this.order.length - 1)]);
  }

  // Go to the nearest event of the next lane that has one.
  lane(by) {
    const here = this.data.events[Math.max(this.selected, 0)];
    const keys = [...this.rows.keys()];
    for (let row = keys.indexOf(`${here.rank} ${here.lane}`) + by; keys[row]; row += by) {
      const near = this.order.filter((index) => keys[row] === `${this.data.events[index].rank} ${this.data.events[index].lane}`)
        .sort((one, other) => Math.abs(this.data.events[one].start - here.start) - Math.abs(this.data.events[other].start - here.start));
      if (near.length) { this.select(near[0]); return; }
    }
  }

  wheel(event) {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (!event.ctrlKey && !sideways) return; // the page scrolls
    event.preventDefault();
    if (event.ctrlKey) {
      const at = this.from + (event.offsetX - this.left) / this.scale;
      this.zoom(Math.exp(event.deltaY / 400), clamp(at, this.from, this.to));
    } else {
      this.show(this.from + sideways / this.scale, this.to + sideways / this.scale);
    }
  }

  grab(event) {
    const { clientX, pointerId } = event;
    const [from, to, scale] = [this.from, this.to, this.scale];
    const move = (moved) => {
      if (moved.pointerId !== pointerId || Math.abs(moved.clientX - clientX) < 3) return;
      const by = (clientX - moved.clientX) / scale;
      this.show(from + by, to + by);
    };
    const end = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", end); removeEventListener("pointercancel", end); };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  }

  hover(event) {
    const index = event.target.dataset.event;
    if (index === undefined) tip.hide();
    else tip.show(described(this.data.events[index]).join("\n"), event.clientX, event.clientY);
  }
}

function described(event) {
  const lines = [event.name, `rank ${event.rank}, ${event.lane}`];
  if (event.moment) lines.push(event.moment);
  if (event.parameters.length) lines.push(`gradient of ${event.parameters.join(", ")}`);
  if (event.bytes) lines.push(`${event.bytes.toLocaleString("en")} bytes`);
  if (event.source) lines.push(`by ${event.source}`);
  if (event.open) lines.push("never ends: some rank does not launch it");
  return lines;
}

function family(kind) {
  return ["mark", "stream_wait", "host_wait", "stream_created"].includes(kind) ? "wait" : kind;
}

function curve(x1, y1, x2, y2, bend) {
  return `M${x1} ${y1}C${x1 - bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
