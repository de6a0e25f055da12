// Make elements from text: nothing of a record is ever read as markup.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function button(text, onClick, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", onClick);
  return made;
}

// A labelled list of choices: pairs of a value and its text.
function choice(id, label, pairs, onChange) {
  const select = element("select", { id });
  for (const [value, text] of pairs) select.append(element("option", { value }, text));
  select.addEventListener("change", onChange);
  return element("label", { for: id }, label, select);
}
