// How an output was written whose words came all at once: fertilities, the places at first, and after each pass.

/** A line of words, each with a small note behind it. */
function writtenLine(name, tokens, decorate) {
  const line = make("div", "line");
  const words = make("div", "tokens");
  words.dir = direction(tokens);
  words.append(...tokens.map((text, number) => {
    const word = make("span", isMark(text) ? "word mark" : "word", text);
    word.dir = isMark(text) ? "ltr" : "auto";
    decorate(word, number);
    return word;
  }));
  line.append(make("h2", "", name), words);
  return line;
}

function showWriting(element, view) {
  const { writing } = view;
  element.hidden = !writing;
  if (!writing) return;
  const lines = [];
  const several = writing.passes.length > 1;
  if (writing.fertility) {
    lines.push(writtenLine("fertilities", view.source_tokens, (word, number) => {
      const times = writing.fertility[number];
      word.classList.toggle("none", times === 0);
      word.append(make("sub", "", String(times)));
    }));
  }
  lines.push(writtenLine("places", writing.start, () => {}));
  writing.passes.forEach(({ tokens, certain, fresh }, number) => {
    const name = several ? `pass ${number + 1}` : "filled";
    lines.push(writtenLine(name, tokens, (word, place) => {
      word.style.setProperty("--doubt", `${Math.round(100 * (1 - certain[place]))}%`);
      word.classList.toggle("fresh", several && fresh[place]);
      word.title = `certain by ${certain[place].toFixed(3)}${several && fresh[place] ? ", filled in this pass" : ""}`;
    }));
  });
  const more = several ? " Words with a line under them were filled in that pass." : "";
  const note = `All words are written at once. The stronger the colour, the less certain the word.${more}`;
  element.replaceChildren(...lines, make("p", "note", note));
}
