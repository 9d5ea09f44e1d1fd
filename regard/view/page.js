// The page: what is chosen (hypothesis, kind, layer, head, shade), and who must be told when it changes.

const KINDS = {
  cross: {
    title: "output → input",
    help: "Each row is a word being written; the stronger the colour, the more the model looked at that input word.",
  },
  encoder: {
    title: "input → input",
    help: "Each row is an input word; the stronger the colour, the more it took from that other input word.",
  },
  decoder: {
    title: "output → output so far",
    help: "Each row is a word being written; the stronger the colour, the more the model looked back at that word.",
  },
  places: {
    title: "output → output",
    help: "All words are written at once; the stronger the colour, the more a word's place looked at that other place.",
  },
};
const POINT = " Point at any word.";
const SHADES = [["strongest", "most"], ["1", "one"]]; // what the full colour stands for

class Page {
  constructor(data) {
    this.data = data;
    this.blobs = data.blobs.map(decodeBlob);
    this.cache = new Map();
    this.state = { view: 0, kind: "cross", layer: 0, head: -1, shade: "most" };
    this.pinned = [-1, -1];
    this.ramp = new Ramp();
    this.matrix = new Matrix(byId("matrix"), (...place) => this.point(...place));
    this.reader = new Reader(byId("reader"), (...place) => this.point(...place), (...place) => this.pin(...place));
    this.start();
  }

  get view() {
    return this.data.views[this.state.view];
  }

  layers(kind = this.state.kind) {
    return this.view.layers.filter((layer) => layer.kind === kind);
  }

  get layer() {
    return this.layers()[this.state.layer];
  }

  start() {
    const { name, kind, parameters } = this.data.model;
    const count = new Intl.NumberFormat("en").format(parameters);
    byId("model").append(make("b", "", name), ` · ${kind} · ${count} parameters`);
    byId("source").textContent = this.view.source;
    byId("sentence").classList.toggle("lengthy", this.view.source.length + this.view.text.length > 320);
    this.kinds = Object.keys(KINDS).filter((known) => this.layers(known).length);
    this.chooseKind(this.kinds[0] || "cross");
    this.readAddress();
    this.showAll();
    new ResizeObserver(() => this.resized()).observe(byId("panels"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour(false));
    window.addEventListener("beforeprint", () => this.recolour(true));
    window.addEventListener("afterprint", () => this.recolour(false));
    document.body.dataset.ready = "yes";
  }

  /** `#kind=encoder&layer=2&head=3&hypothesis=2` in the address opens there (head 0 is the mean). */
  readAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const number = (key, limit) => (wanted.has(key) ? Math.max(0, Math.min(limit, Number(wanted.get(key)) || 0)) : null);
    const view = number("hypothesis", this.data.views.length);
    if (view) this.state.view = view - 1;
    if (this.kinds.includes(wanted.get("kind"))) this.chooseKind(wanted.get("kind"));
    const layer = number("layer", this.layers().length);
    if (layer) this.state.layer = layer - 1;
    const head = this.layer ? number("head", this.layer.shape[0]) : null;
    if (head !== null) this.state.head = head - 1;
  }

  /** A kind opens at its most telling head. */
  chooseKind(kind) {
    Object.assign(this.state, { kind, layer: 0, head: this.layers(kind)[0]?.shape[0] > 1 ? -1 : 0 });
    const best = this.mostTelling(kind);
    if (best) [this.state.layer, this.state.head] = best;
  }

  mostTelling(kind) {
    let best = null;
    let most = 0;
    this.layers(kind).forEach((layer, number) =>
      layer.information.forEach((bits, head) => {
        if (bits > most) [most, best] = [bits, [number, head]];
      }),
    );
    return best;
  }

  weights(layer, head) {
    const key = `${layer.blob}:${layer.shape}:${head}`;
    if (!this.cache.has(key)) this.cache.set(key, headWeights(this.blobs[layer.blob], layer, head, this.data.scale));
    return this.cache.get(key);
  }

  ceiling(weights) {
    return this.state.shade === "most" ? greatest(weights) || 1 : 1;
  }

  labels(layer) {
    const sides = { source: this.view.source_tokens, target: this.view.target_tokens };
    const columns = sides[layer.keys];
    return [sides[layer.queries], layer.kind === "decoder" ? ["<s>", ...columns.slice(0, -1)] : columns];
  }

  change(values) {
    if ("kind" in values) this.chooseKind(values.kind);
    Object.assign(this.state, values);
    this.state.layer = Math.min(this.state.layer, Math.max(this.layers().length - 1, 0));
    this.pinned = [-1, -1];
    this.showAll();
  }

  showAll() {
    this.showHypotheses();
    showWriting(byId("writing"), this.view);
    this.showChoosers();
    const empty = !this.layer;
    byId("reader").hidden = byId("panels").hidden = empty;
    byId("help").textContent = empty ? "This model has no attention to show." : KINDS[this.state.kind].help + POINT;
    if (empty) return;
    this.showLayout();
    this.showMaps();
    this.showOverview();
    this.markOverview();
    Object.assign(document.body.dataset, { kind: this.state.kind, layer: this.state.layer + 1, head: this.state.head + 1 });
  }

  showHypotheses() {
    const many = this.data.views.length > 1;
    const lines = this.data.views.map((view, number) => {
      const line = make(many ? "label" : "div", `hypothesis ${many ? "" : "only"}`);
      line.classList.toggle("chosen", many && number === this.state.view);
      if (many) line.append(this.radio("hypothesis", number === this.state.view, { view: number }));
      if (many) line.append(make("span", "rank", String(number + 1)));
      const words = make("span", "words", view.text);
      words.dir = "auto";
      line.append(words, make("span", "score", view.score === null ? "" : `score ${view.score.toFixed(3).replace("-", "−")}`));
      return line;
    });
    this.keepFocus(byId("hypotheses"), lines);
  }

  radio(name, checked, values) {
    const input = make("input", "unseen");
    Object.assign(input, { type: "radio", name, checked, value: Object.values(values).join() });
    input.addEventListener("change", () => this.change(values));
    return input;
  }

  /** Redrawn choosers give the focus back to the radio button that had it. */
  keepFocus(parent, children) {
    const focused = parent.contains(document.activeElement) ? document.activeElement : null;
    parent.replaceChildren(...children);
    if (!focused) return;
    const same = [...parent.querySelectorAll("input")].find((input) => input.name === focused.name && input.checked);
    if (same) same.focus();
  }

  showChoosers() {
    const { kind, layer, head } = this.state;
    const heads = this.layer ? this.layer.shape[0] : 0;
    const numbers = (count) => Array.from({ length: count }, (_, number) => number);
    const groups = [
      ["Look", "kind", this.kinds.map((known) => [KINDS[known].title, known]), kind],
      ["Layer", "layer", numbers(this.layers().length).map((number) => [String(number + 1), number]), layer],
      ["Head", "head", [["mean", -1], ...numbers(heads).map((number) => [String(number + 1), number])], head],
    ];
    const useful = groups.filter(([, key, options]) => options.length > (key === "head" ? 2 : 1));
    byId("choosers").hidden = !useful.length;
    this.keepFocus(byId("choosers"), useful.map((group) => this.chooser(...group)));
  }

  chooser(title, key, options, chosen) {
    const group = make("fieldset", "chooser");
    const segments = make("div", "segments");
    for (const [text, value] of options) {
      const label = make("label");
      label.append(this.radio(key, value === chosen, { [key]: value }), text);
      segments.append(label);
    }
    group.append(make("legend", "", title), segments);
    return group;
  }

  showLayout() {
    const panels = byId("panels");
    const total = this.view.layers.reduce((sum, layer) => sum + layer.shape[0], 0);
    panels.classList.toggle("alone", total < 2);
    panels.classList.toggle("stacked", this.labels(this.layer)[1].length > 34);
    byId("overview").hidden = total < 2;
  }

  showMaps() {
    const { layer, state } = this;
    const weights = this.weights(layer, state.head);
    const [rows, columns] = this.labels(layer);
    const names = { source: "input", target: "output" };
    this.matrix.show(rows, columns, weights, this.ceiling(weights), this.ramp);
    const above = layer.kind === "decoder" ? "so far" : names[layer.keys];
    this.reader.show(rows, columns, [names[layer.queries], above], weights, this.ramp);
    const heads = layer.shape[0];
    const head = heads < 2 ? "" : state.head < 0 ? `, mean of ${heads} heads` : `, head ${state.head + 1} of ${heads}`;
    byId("caption").textContent = layer.name + head;
    byId("matrix").setAttribute("aria-label", `Attention of ${rows.length} rows over ${columns.length} columns`);
    const bar = make("i");
    bar.style.background = `linear-gradient(to right, ${this.ramp.stops.join(", ")})`;
    const shade = this.chooser("full colour at", "shade", SHADES, state.shade);
    const scale = make("span", "scale");
    scale.append("0", bar, this.ceiling(weights).toFixed(2));
    this.keepFocus(byId("legend"), [shade, scale]);
    this.restore();
  }

  /** Thumbnails are painted anew only when what they show has changed. */
  showOverview() {
    const shown = `${this.state.view} ${this.state.shade} ${this.ramp.stops}`;
    if (shown === this.overviewShown) return;
    this.overviewShown = shown;
    this.thumbnails = [];
    const sections = this.kinds.map((kind) => {
      const layers = this.layers(kind);
      const heads = Math.max(...layers.map((layer) => layer.shape[0]));
      const first = heads > 1 ? -1 : 0;
      const section = make("section");
      const grid = make("div", "grid");
      grid.style.gridTemplateColumns = `1.1rem repeat(${heads - first}, minmax(0, 1fr))`;
      grid.append(make("span", "", ""));
      for (let head = first; head < heads; head++) grid.append(make("span", "", head < 0 ? "mean" : String(head + 1)));
      layers.forEach((layer, number) => this.thumbnailRow(grid, layer, number, first));
      section.append(make("h2", "", KINDS[kind].title), grid);
      return section;
    });
    const note = make("p", "note", "Rows are layers, columns are heads. A dot marks the head whose look tells most about each word.");
    byId("overview").replaceChildren(...sections, note);
  }

  markOverview() {
    const { kind, layer, head } = this.state;
    for (const [button, ...place] of this.thumbnails)
      button.classList.toggle("chosen", place[0] === kind && place[1] === layer && place[2] === head);
  }

  thumbnailRow(grid, layer, number, first) {
    const [heads, rows, columns] = layer.shape;
    const best = this.mostTelling(layer.kind);
    grid.append(make("span", "", String(number + 1)));
    for (let head = first; head < heads; head++) {
      const button = make("button", "thumbnail");
      button.type = "button";
      button.title = `${layer.name}, ${head < 0 ? "mean of heads" : `head ${head + 1}`}`;
      button.setAttribute("aria-label", button.title);
      button.classList.toggle("telling", Boolean(best) && best[0] === number && best[1] === head);
      const canvas = make("canvas");
      const weights = this.weights(layer, head);
      paintThumbnail(canvas, weights, rows, columns, this.ceiling(weights), this.ramp);
      button.append(canvas);
      button.addEventListener("click", () => this.change({ kind: layer.kind, layer: number, head }));
      this.thumbnails.push([button, layer.kind, number, head]);
      grid.append(button);
    }
  }

  point(row, column, x, y) {
    if (row < 0 && column < 0) {
      byId("tip").hidden = true;
      this.restore();
      return;
    }
    this.matrix.mark(row, column);
    this.reader.mark(row, column);
    if (row >= 0 && column >= 0) this.showTip(row, column, x, y);
  }

  pin(row, column) {
    const same = this.pinned[0] === row && this.pinned[1] === column;
    this.pinned = same ? [-1, -1] : [row, column];
    this.restore();
  }

  restore() {
    this.matrix.mark(...this.pinned);
    this.reader.mark(...this.pinned);
  }

  showTip(row, column, x, y) {
    const tip = byId("tip");
    const weight = this.reader.weight(row, column);
    const words = `${this.matrix.rowLabels[row]} → ${this.matrix.columnLabels[column]}`;
    const text = make("bdi", "", words);
    tip.replaceChildren(text, make("b", "", weight.toFixed(3)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 8))}px`;
    tip.style.top = `${y - box.height - 12 < 4 ? y + 18 : y - box.height - 12}px`;
    byId("announcement").textContent = `${words}: ${weight.toFixed(3)}`;
  }

  resized() {
    const width = byId("panels").clientWidth;
    if (!this.layer || this.width === width) return;
    if (this.width !== undefined) {
      this.matrix.layout();
      this.reader.fit();
      this.restore();
    }
    this.width = width;
  }

  recolour(printing) {
    document.documentElement.classList.toggle("printing", printing);
    this.ramp = new Ramp();
    if (!this.layer) return;
    this.showMaps();
    this.showOverview();
    this.markOverview();
  }
}

function byId(name) {
  return document.getElementById(name);
}

new Page(JSON.parse(byId("data").textContent));
