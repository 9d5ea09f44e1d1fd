"use strict";
// The heat map, its thumbnails, and the colours both are painted with.

/** Whole ten-thousandths in base64 → an array of numbers. */
function decodeBlob(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let index = 0; index < bytes.length; index++) bytes[index] = characters.charCodeAt(index);
  return new Uint16Array(bytes.buffer);
}

/** The weights of one head of a layer, row by row; head -1 is the mean of all heads. */
function headWeights(blob, layer, head, scale) {
  const [heads, rows, columns] = layer.shape;
  const size = rows * columns;
  const weights = new Float32Array(size);
  for (let number = 0; number < heads; number++) {
    if (head >= 0 && number !== head) continue;
    const share = scale * (head < 0 ? heads : 1);
    for (let index = 0; index < size; index++) weights[index] += blob[number * size + index] / share;
  }
  return weights;
}

function greatest(weights) {
  return weights.reduce((most, weight) => Math.max(most, weight), 0);
}

/** A make-element in one line: text is always text. */
function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

function isMark(token) {
  return token === "<s>" || token === "</s>" || token === "<unk>" || token === "<pad>";
}

/** 256 colours between the stops that the style sheet names for the present light. */
class Ramp {
  constructor() {
    const stops = getComputedStyle(document.documentElement).getPropertyValue("--ramp").trim().split(/\s+/);
    this.stops = stops;
    const parts = stops.map((stop) => [1, 3, 5].map((place) => parseInt(stop.slice(place, place + 2), 16)));
    this.colours = Array.from({ length: 256 }, (_, number) => {
      const place = (number / 255) * (parts.length - 1);
      const left = Math.min(Math.floor(place), parts.length - 2);
      return parts[left].map((value, part) => Math.round(value + (parts[left + 1][part] - value) * (place - left)));
    });
  }

  /** The same colours as whole pixels (red first in memory). */
  get pixels() {
    this.whole ??= Uint32Array.from(this.colours, ([red, green, blue]) => 0xff000000 + (blue << 16) + (green << 8) + red);
    return this.whole;
  }

  at(share) {
    return this.colours[Math.max(0, Math.min(255, Math.round(share * 255)))];
  }

  css(share) {
    return `rgb(${this.at(share).join(" ")})`;
  }

  /** Black or white, whichever can be read on this colour. */
  inkOn(share) {
    const [red, green, blue] = this.at(share);
    return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#1d1a17" : "#fffdf8";
  }
}

/** One pixel per weight; the style sheet makes it larger. */
function paintThumbnail(canvas, weights, rows, columns, ceiling, ramp) {
  canvas.width = Math.max(columns, 1);
  canvas.height = Math.max(rows, 1);
  canvas.style.aspectRatio = String(Math.min(2.2, Math.max(0.55, columns / Math.max(rows, 1))));
  const picture = new ImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(picture.data.buffer);
  const step = 255 / ceiling;
  const colours = ramp.pixels;
  for (let index = 0; index < weights.length; index++)
    pixels[index] = colours[Math.min(255, Math.round(weights[index] * step))];
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

/** The big heat map: cells on a canvas, labels as text, a cursor for pointer and keys. */
class Matrix {
  constructor(element, onPoint) {
    this.element = element;
    this.onPoint = onPoint; // (row, column) or (-1, -1)
    this.at = [-1, -1];
    element.tabIndex = 0;
    element.setAttribute("role", "application");
    element.setAttribute("aria-roledescription", "heat map");
    element.addEventListener("keydown", (event) => this.move(event));
    element.addEventListener("blur", () => this.onPoint(-1, -1));
  }

  show(rowLabels, columnLabels, weights, ceiling, ramp) {
    Object.assign(this, { rowLabels, columnLabels, weights, ceiling, ramp });
    this.layout();
  }

  /** Cells as large as the room allows; column labels lie level when they fit, else they slant. */
  layout() {
    const room = this.element.clientWidth;
    const columns = Math.max(this.columnLabels.length, 1);
    const measure = (labels, size) => Math.ceil(Math.max(8, ...labels.map((label) => textWidth(label, size))));
    const guess = room / (columns + 6);
    const size = guess < 19 ? 11.5 : guess < 26 ? 13 : 15;
    const left = Math.min(measure(this.rowLabels, size) + 16, Math.max(90, room * 0.22));
    const widest = measure(this.columnLabels, size);
    const longest = Math.min(widest + 2, 130);
    let across = Math.min(Math.floor((room - left - 4) / columns), 68);
    const level = widest <= across - 6;
    if (!level) across = Math.min(Math.floor((room - left - longest * 0.55) / columns), 40);
    this.across = Math.max(14, level ? Math.min(across, Math.max(36, widest + 16)) : across);
    this.down = Math.min(this.across, 36);
    const top = level ? size + 12 : Math.ceil(longest * 0.85 + size);
    this.build({ left, top, size, level, longest });
    this.paint();
  }

  build({ left, top, size, level, longest }) {
    const { across, down } = this;
    const stage = make("div", "stage");
    stage.style.gridTemplateColumns = `${left}px ${this.columnLabels.length * across}px`;
    stage.style.gridTemplateRows = `${top}px ${this.rowLabels.length * down}px`;
    stage.style.paddingRight = level ? "0" : `${Math.ceil(longest * 0.53)}px`;
    this.columnElements = this.columnLabels.map((text, number) => {
      const label = this.label(text, level ? "level" : "slanted", size, level ? across : longest);
      if (level) Object.assign(label.style, { left: `${number * across}px`, width: `${across}px`, bottom: "4px" });
      else Object.assign(label.style, { left: `${(number + 0.5) * across}px`, top: `${top - size}px` });
      return label;
    });
    this.rowElements = this.rowLabels.map((text, number) => {
      const label = this.label(text, "", size, left - 10);
      label.style.top = `${(number + 0.5) * down - size * 0.66}px`;
      return label;
    });
    const columnBox = make("div", "columns");
    columnBox.append(...this.columnElements);
    const rowBox = make("div", "rows");
    rowBox.append(...this.rowElements);
    stage.append(columnBox, rowBox, this.field());
    this.element.replaceChildren(stage);
  }

  label(text, name, size, longest) {
    const label = make("span", `label ${name}${isMark(text) ? " mark" : ""}`, text);
    Object.assign(label.style, { fontSize: `${size}px`, maxWidth: `${longest}px` });
    label.dir = "auto";
    label.title = text;
    return label;
  }

  field() {
    const field = make("div", "field");
    this.canvas = make("canvas");
    this.bands = ["row", "column", "cell"].map((name) => make("div", `band ${name}`));
    this.bands.forEach((band) => (band.hidden = true));
    field.append(this.canvas, ...this.bands);
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const row = Math.floor((event.clientY - box.top) / this.down);
      const column = Math.floor((event.clientX - box.left) / this.across);
      if (row >= 0 && column >= 0 && row < this.rowLabels.length && column < this.columnLabels.length)
        this.onPoint(row, column, event.clientX, event.clientY);
    };
    field.addEventListener("pointermove", place);
    field.addEventListener("pointerdown", place);
    field.addEventListener("pointerleave", () => this.onPoint(-1, -1));
    return field;
  }

  move(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Escape") this.onPoint(-1, -1);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const limits = [this.rowLabels.length - 1, this.columnLabels.length - 1];
    const step = this.at[0] < 0 || this.at[1] < 0 ? [0, 0] : steps[event.key];
    const [row, column] = this.at.map((at, axis) => Math.max(0, Math.min(limits[axis], at + step[axis])));
    const box = this.canvas.getBoundingClientRect();
    this.onPoint(row, column, box.left + (column + 1) * this.across, box.top + row * this.down);
  }

  paint() {
    const { canvas, across, down, ramp } = this;
    const [rows, columns] = [this.rowLabels.length, this.columnLabels.length];
    const density = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = columns * across * density;
    canvas.height = rows * down * density;
    Object.assign(canvas.style, { width: `${columns * across}px`, height: `${rows * down}px` });
    const context = canvas.getContext("2d");
    context.scale(density, density);
    const gap = down >= 18 ? 1.5 : 1;
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++) {
        context.fillStyle = ramp.css(this.weights[row * columns + column] / this.ceiling);
        context.fillRect(column * across, row * down, across - gap, down - gap);
      }
    this.element.dataset.cells = String(rows * columns);
  }

  /** Light up a row, a column, or a cell (both). */
  mark(row, column) {
    this.at = [row, column];
    const { across, down } = this;
    const [width, height] = [this.columnLabels.length * across, this.rowLabels.length * down];
    this.rowElements.forEach((label, number) => label.classList.toggle("lit", number === row));
    this.columnElements.forEach((label, number) => label.classList.toggle("lit", number === column));
    const place = (band, shown, ...box) => {
      band.hidden = !shown;
      ["left", "top", "width", "height"].forEach((side, number) => (band.style[side] = `${box[number]}px`));
    };
    place(this.bands[0], row >= 0 && column < 0, 0, row * down - 2, width + 1, down + 2);
    place(this.bands[1], column >= 0 && row < 0, column * across - 2, 0, across + 2, height + 1);
    place(this.bands[2], row >= 0 && column >= 0, column * across - 2, row * down - 2, across + 2, down + 2);
  }
}

/** Width of a label in the reading face, in pixels. */
function textWidth(text, size) {
  textWidth.context ??= document.createElement("canvas").getContext("2d");
  textWidth.context.font = `${size}px ${getComputedStyle(document.documentElement).getPropertyValue("--serif")}`;
  return textWidth.context.measureText(text).width;
}
