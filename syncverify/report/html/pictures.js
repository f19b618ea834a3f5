// The other drawings, and the start of all of them.

// A half matrix on a canvas: thousands of squares. Arrow keys go from square to square.
class HeatMap {
  constructor(host, { features, pairs }) {
    this.features = features;
    this.counts = new Map(pairs.flatMap(([one, other, count]) => [[`${one} ${other}`, count], [`${other} ${one}`, count]]));
    this.most = Math.max(1, ...pairs.map((each) => each[2]));
    this.at = [1, 0];
    this.canvas = html("canvas", { tabindex: 0, role: "application", "aria-label": "Pairs of features. Arrow keys go from pair to pair." });
    this.about = html("p", { class: "about", "aria-live": "polite" });
    const never = pairs.filter((each) => !each[2]).map(([one, other]) => html("li", {}, `${features[one]} with ${features[other]}`));
    const list = never.length ? [html("details", {}, html("summary", {}, `${never.length} pairs never came together`), html("ul", {}, ...never))] : [];
    host.replaceChildren(this.canvas, this.about, ...list);
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.host = host;
    onResize(host, () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  draw() {
    const count = this.features.length;
    this.left = this.host.clientWidth < 560 ? 70 : 96;
    this.side = clamp(Math.floor((this.host.clientWidth - this.left) / count), 3, 11);
    const [width, height] = [this.left + this.side * count, this.side * count];
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const [heat, never] = [color("--heat"), color("--wrong")];
    for (const [key, met] of this.counts) {
      const [row, column] = key.split(" ").map(Number);
      if (row < column) continue;
      context.fillStyle = met ? `rgba(${heat}, ${0.15 + 0.85 * Math.log1p(met) / Math.log1p(this.most)})` : never;
      context.globalAlpha = met ? 1 : 0.4;
      context.fillRect(this.left + column * this.side, row * this.side, this.side - 1, this.side - 1);
    }
    context.globalAlpha = 1;
    this.topics(context, count);
    const [row, column] = this.at;
    context.strokeStyle = color("--ink");
    if (document.activeElement === this.canvas) {
      context.strokeRect(this.left + column * this.side - 1, row * this.side - 1, this.side + 1, this.side + 1);
    }
  }

  topics(context, count) {
    context.fillStyle = color("--soft");
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const topic = (index) => this.features[index].split("=")[0];
    let reached = 0;
    for (let first = 0, last = 0; first < count; first = last) {
      while (last < count && topic(last) === topic(first)) last += 1;
      const y = Math.max((first + last) * this.side / 2, reached + 6);
      context.fillText(topic(first), 0, Math.min(y, count * this.side - 6), this.left - 8);
      reached = y + 6;
    }
  }

  words([row, column]) {
    const met = this.counts.get(`${row} ${column}`);
    const pair = `${this.features[row]} with ${this.features[column]}`;
    return met === undefined ? `${pair}: cannot occur` : `${pair}: ${met.toLocaleString("en")} scenario${met === 1 ? "" : "s"}`;
  }

  hover(event) {
    const [row, column] = [Math.floor(event.offsetY / this.side), Math.floor((event.offsetX - this.left) / this.side)];
    if (column < 0 || column >= row || row >= this.features.length) tip.hide();
    else tip.show(this.words([row, column]), event.clientX, event.clientY);
  }

  key(event) {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    const row = clamp(this.at[0] + by[0], 1, this.features.length - 1);
    this.at = [row, clamp(this.at[1] + by[1], 0, row - 1)];
    this.about.textContent = this.words(this.at);
    this.draw();
  }
}

const page = JSON.parse(document.getElementById("model").textContent);
for (const section of document.querySelectorAll("[data-violation]")) {
  const violation = page.violations[section.dataset.violation];
  const within = (name, draw) => { const host = section.querySelector(name); if (host) draw(host); };
  within(".timeline", (host) => new Timeline(host, violation.timeline));
  within(".graph", (host) => drawGraph(host, violation.graph));
}
const run = document.querySelector("#run .timeline");
if (run) new Timeline(run, page.timeline);
const heat = document.querySelector(".heat-map");
if (heat) new HeatMap(heat, page.explored.coverage);
