// The autograd graph: backward goes down. A box has the node, its hooks, and what they queued.

const ROW = 15;
const WIDEST = 300;
const BOW = 34;
const WEIGHTS = { head: 700, "hook guilty": 700 };

function drawGraph(host, graph) {
  const boxes = graph.nodes.map((node) => boxOf(node, graph.streams.length > 1));
  const height = placeBoxes(boxes, graph);
  const right = Math.max(...boxes.map((box) => box.x + box.width / 2));
  const labels = graph.missing.map((each) => textWidth(each.label, 700));
  const width = right + 6 + (labels.length ? BOW + Math.max(...labels) + 8 : 0);
  const words = graphWords(graph);
  const picture = svg("svg", { width, height, role: "img", "aria-label": words[0] }, svg("title", {}, words[0]), svg("desc", {}, words.join(". ")));
  for (const [tail, head] of graph.edges) {
    const [from, to] = [boxes[tail].y + boxes[tail].height, boxes[head].y];
    picture.append(svg("path", { d: `M${boxes[tail].x} ${from}C${boxes[tail].x} ${from + 16} ${boxes[head].x} ${to - 16} ${boxes[head].x} ${to}`, class: "edge" }));
  }
  boxes.forEach((box) => picture.append(...drawnBox(box)));
  graph.missing.forEach((each) => picture.append(...drawnMissing(each, boxes)));
  host.replaceChildren(picture);
  const first = boxes[graph.missing[0]?.tail[0] ?? graph.nodes.findIndex((node) => node.guilty)];
  if (first) host.scrollTo(first.x - host.clientWidth / 2, first.y - host.clientHeight / 3);
}

// The rows of a box: texts with their class; `at` is the row of each hook.
function boxOf(node, namesStream) {
  const rows = [], at = [];
  const add = (text, name, indent = 0) => wrapped(text, WIDEST - indent, WEIGHTS[name]).forEach((line, number) =>
    rows.push({ text: line, name, x: indent + (number ? 10 : 0) }));
  const order = node.order === null ? "" : `${node.order} · `;
  add(`${order}${node.kind === "parameter" ? `AccumulateGrad ${node.name}` : node.name}`, node.order === null ? "idle" : "head");
  if (namesStream && node.stream) add(`on ${node.stream}`, "soft");
  node.lines.forEach((line) => add(line, "soft"));
  for (const hook of node.hooks) {
    at.push(rows.length);
    add(`⚑ ${hook.title}`, hook.guilty ? "hook guilty" : "hook");
    hook.lines.forEach((line) => add(line, "soft", 14));
  }
  const width = Math.max(...rows.map((row) => row.x + textWidth(row.text, WEIGHTS[row.name]))) + 18;
  return { node, rows, at, width, height: rows.length * ROW + 8 };
}

// Layers below each other; in a layer, each box below its parents, but those at an edge that
// is missing last: the edge runs beside all boxes.
function placeBoxes(boxes, graph) {
  const layers = [], parents = boxes.map(() => []);
  graph.nodes.forEach((node, index) => (layers[node.depth] ??= []).push(index));
  for (const [tail, head] of graph.edges) parents[head].push(tail);
  const ends = new Set(graph.missing.flatMap((each) => [each.tail[0], each.head[0]]));
  const widest = Math.max(...boxes.map((box) => box.width));
  let y = 4;
  for (const layer of layers) {
    const wanted = (index) => parents[index].reduce((sum, each) => sum + boxes[each].x, 0) / (parents[index].length || 1);
    const last = (index) => Number(ends.has(index));
    layer.sort((one, other) => last(one) - last(other) || wanted(one) - wanted(other) || one - other);
    let reached = widest / 2 + 2 - boxes[layer[0]].width / 2;
    for (const index of layer) {
      const half = boxes[index].width / 2;
      boxes[index].x = Math.max(reached + half, wanted(index));
      boxes[index].y = y;
      reached = boxes[index].x + half + 14;
    }
    y += Math.max(...layer.map((index) => boxes[index].height)) + 24;
  }
  return y - 16;
}

function drawnBox({ node, rows, x, y, width, height }) {
  const left = x - width / 2;
  const names = ["node", node.kind, ...(node.guilty ? ["guilty"] : [])].join(" ");
  const hint = node.hooks.map((hook) => `${hook.title}: ${hook.source}`).join("\n");
  const parts = [svg("rect", { x: left, y, width, height, rx: node.kind === "parameter" ? 11 : 4, class: names }, ...(hint ? [svg("title", {}, hint)] : []))];
  rows.forEach((row, number) => parts.push(svg("text", { x: left + 9 + row.x, y: y + 15 + number * ROW, class: row.name }, row.text)));
  return parts;
}

// A curve beside the boxes, from the node or hook that came first to the other one.
function drawnMissing({ tail, head, label }, boxes) {
  const end = ([place, hook]) => {
    const box = boxes[place];
    return { x: box.x + box.width / 2, y: box.y + 11 + (hook === null ? 0 : box.at[hook] * ROW) };
  };
  const [from, to] = [end(tail), end(head)];
  const between = boxes.filter((box) => box.y <= Math.max(from.y, to.y) && box.y + box.height >= Math.min(from.y, to.y));
  const beside = Math.max(...between.map((box) => box.x + box.width / 2)) + BOW / 2;
  const [x, y] = [beside + 6, (from.y + to.y) / 2 + 4];
  return [
    svg("path", { d: `M${from.x} ${from.y}H${beside - 8}Q${beside} ${from.y} ${beside} ${(from.y + to.y) / 2}Q${beside} ${to.y} ${beside - 8} ${to.y}H${to.x + 2}`, class: "missing", "marker-end": "url(#guilty-tip)" }),
    svg("defs", {}, svg("marker", { id: "guilty-tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 4, markerHeight: 4, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", class: "guilty-tip" }))),
    svg("text", { x, y, class: "race" }, label),
  ];
}

// The graph in sentences, for readers who cannot see the picture.
function graphWords(graph) {
  const place = ([at, hook]) => `${graph.nodes[at].name}${hook === null ? "" : `, ${graph.nodes[at].hooks[hook].title}`}`;
  return [
    `Autograd graph of ${graph.nodes.length} nodes${graph.ran.length ? `, ${graph.ran.length} of which ran` : ""}`,
    ...graph.missing.map((each) => `From ${place(each.tail)} to ${place(each.head)}: ${each.label}`),
  ];
}
