// The reader: the words that are looked at above, the words that look below, and lines as thick as the weight.

const LINES = 400; // at most so many are drawn when no word is chosen
const FAINT = 0.12; // weaker links are not drawn then

/** The direction most letters of these tokens are written in. */
function direction(tokens) {
  const text = tokens.filter((token) => !isMark(token)).join("");
  const rightward = (text.match(/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/g) || []).length;
  return rightward * 2 > text.length ? "rtl" : "ltr";
}

class Reader {
  constructor(element, onPoint, onPin) {
    this.element = element;
    this.onPoint = onPoint; // (row, column): one of them is -1
    this.onPin = onPin;
    this.chosen = [-1, -1];
  }

  show(rowLabels, columnLabels, names, weights, ramp) {
    Object.assign(this, { rowLabels, columnLabels, weights, ramp });
    this.drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.drawing.setAttribute("aria-hidden", "true");
    const letters = Math.max(...[rowLabels, columnLabels].map((labels) => labels.join("  ").length));
    this.element.classList.toggle("dense", letters > 300);
    this.element.classList.toggle("roomy", letters < 62);
    const [top, above] = this.row(columnLabels, names[1], (number) => [-1, number]);
    const [bottom, below] = this.row(rowLabels, names[0], (number) => [number, -1]);
    this.columnElements = above;
    this.rowElements = below;
    this.element.replaceChildren(this.drawing, top, bottom);
    this.fit();
    this.mark(-1, -1);
  }

  /** Rows that run over several lines leave no clear space for lines: those are drawn for a chosen word only. */
  fit() {
    const lines = (elements) => elements.length > 1 && elements.at(-1).offsetTop > elements[0].offsetTop + 16;
    this.wrapped = lines(this.columnElements) || lines(this.rowElements);
    this.element.classList.toggle("wrapped", this.wrapped);
  }

  row(labels, name, place) {
    const box = make("div", "words-row");
    const list = make("div", "tokens");
    list.dir = direction(labels);
    const buttons = labels.map((text, number) => {
      const button = make("button", isMark(text) ? "token mark" : "token", text);
      button.type = "button";
      button.dir = isMark(text) ? "ltr" : "auto";
      button.addEventListener("pointerenter", () => this.onPoint(...place(number)));
      button.addEventListener("pointerleave", () => this.onPoint(-1, -1));
      button.addEventListener("focus", () => button.matches(":focus-visible") && this.onPoint(...place(number)));
      button.addEventListener("blur", () => this.onPoint(-1, -1));
      button.addEventListener("click", () => this.onPin(...place(number)));
      return button;
    });
    list.append(...buttons);
    box.append(make("h2", "", name), list);
    return [box, buttons];
  }

  weight(row, column) {
    return this.weights[row * this.columnLabels.length + column];
  }

  /** Choose a row word, a column word, both (one link), or none (-1, -1). */
  mark(row, column) {
    this.chosen = [row, column];
    const paint = (elements, chosen, weight) => {
      const weights = elements.map((_, number) => (weight ? weight(number) : 0));
      const ceiling = greatest(weights) || 1;
      elements.forEach((element, number) => {
        element.classList.toggle("chosen", number === chosen);
        const share = weights[number] / ceiling;
        const shaded = weight && share > 0.04 && number !== chosen;
        element.style.backgroundColor = shaded ? this.ramp.css(share) : "";
        element.style.color = shaded ? this.ramp.inkOn(share) : "";
      });
    };
    const one = row >= 0 && column >= 0;
    paint(this.rowElements, row, column >= 0 && !one ? (number) => this.weight(number, column) : null);
    paint(this.columnElements, one ? -1 : column, row >= 0 ? (number) => this.weight(row, number) : null);
    this.draw();
  }

  /** The links to draw: [row, column, weight], strongest last. */
  links() {
    const [row, column] = this.chosen;
    const links = [];
    const quiet = row < 0 && column < 0;
    if (quiet && this.wrapped) return links;
    for (let at = 0; at < this.rowLabels.length; at++)
      for (let to = 0; to < this.columnLabels.length; to++) {
        const weight = this.weight(at, to);
        const wanted = quiet ? weight >= FAINT : (row >= 0 ? at === row : to === column) && weight >= 0.01;
        if (wanted) links.push([at, to, weight]);
      }
    return links.sort((left, right) => left[2] - right[2]).slice(-LINES);
  }

  draw() {
    const frame = this.element.getBoundingClientRect();
    const quiet = this.chosen[0] < 0 && this.chosen[1] < 0;
    const box = (element) => element.getBoundingClientRect();
    const above = this.columnElements.map(box);
    const below = this.rowElements.map(box);
    const paths = this.links().map(([row, column, weight]) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const [from, to] = [above[column], below[row]];
      const [x, y] = [(from.left + from.right) / 2 - frame.left - 1, from.bottom - frame.top];
      const [u, v] = [(to.left + to.right) / 2 - frame.left - 1, to.top - frame.top - 2];
      const bend = (v - y) * 0.5;
      path.setAttribute("d", `M${x} ${y}C${x} ${y + bend} ${u} ${v - bend} ${u} ${v}`);
      const thick = quiet || this.wrapped ? 3.4 : 6.4;
      const strong = quiet ? 0.08 + weight * 0.5 : this.wrapped ? 0.15 + weight * 0.4 : 0.25 + weight * 0.7;
      path.setAttribute("stroke-width", (0.6 + weight * thick).toFixed(2));
      path.setAttribute("stroke-opacity", Math.min(0.95, strong).toFixed(2));
      return path;
    });
    this.drawing.replaceChildren(...paths);
    this.element.dataset.lines = String(paths.length);
  }
}
