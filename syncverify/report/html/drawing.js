"use strict";
// Helpers of all drawings. Texts come from subjects: they reach the page as text nodes alone.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

// Width of a text in a drawing, in pixels.
function textWidth(text, weight = 400) {
  textWidth.known ??= new Map();
  textWidth.context ??= document.createElement("canvas").getContext("2d");
  const key = `${weight} ${text}`;
  if (!textWidth.known.has(key)) {
    textWidth.context.font = `${weight} 11px ${getComputedStyle(document.body).fontFamily}`;
    textWidth.known.set(key, textWidth.context.measureText(text).width);
  }
  return textWidth.known.get(key);
}

// Lines of a text that are no wider than so many pixels; a word that is wider is broken.
function wrapped(text, most, weight) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (textWidth(longer, weight) <= most) { lines[lines.length - 1] = longer; continue; }
    if (lines.at(-1)) lines.push("");
    for (const letter of word) {
      if (lines.at(-1) && textWidth(lines.at(-1) + letter, weight) > most) lines.push("");
      lines[lines.length - 1] += letter;
    }
  }
  return lines;
}

// Draw now and after each change of the width: in the next frame, for a drawing changes heights.
function onResize(element, draw) {
  let width = 0;
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    draw();
  })).observe(element);
}

// One box that follows the pointer; `hide` takes it away.
const tip = {
  box: null,
  show(text, x, y) {
    this.box ??= document.body.appendChild(html("div", { class: "tip", role: "tooltip" }));
    this.box.textContent = text;
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    this.box.style.left = `${clamp(x + 14, 4, Math.max(4, innerWidth - width - 8))}px`;
    this.box.style.top = `${y + 18 + height > innerHeight ? y - height - 10 : y + 18}px`;
  },
  hide() {
    if (this.box) this.box.hidden = true;
  },
};
