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
