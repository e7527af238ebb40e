/** The form for a new poll. */

import { byId, make } from "./dom.js";

const MOST = 8;
const LEAST = 2;

const dialog = byId("dialog");
const form = byId("form");
const answers = byId("new-options");
const problem = byId("problem");
/** @typedef {(poll: import("./tables.js").PollInput) => Promise<void>} Create */
/** @type {Create} */
let create;

/** @param {Create} whenDone */
export function openForm(whenDone) {
  create = whenDone;
  form.reset();
  problem.hidden = true;
  answers.replaceChildren();
  for (let number = 0; number < LEAST; number++) addAnswer();
  dialog.showModal();
}

function addAnswer() {
  const number = answers.children.length + 1;
  const field = make("input", { maxLength: 120, autocomplete: "off", placeholder: `Answer ${number}` });
  field.setAttribute("aria-label", `Answer ${number}`);
  field.required = number <= LEAST;
  answers.append(field);
}

/** Keeps one empty field after the last answer. */
answers.addEventListener("input", () => {
  if (answers.lastElementChild.value !== "" && answers.children.length < MOST) addAnswer();
});

byId("cancel").addEventListener("click", () => dialog.close());

form.addEventListener("submit", async (/** @type {Event} */ event) => {
  event.preventDefault();
  const options = Array.from(answers.children, (field) => field.value.trim()).filter((text) => text !== "");
  const question = byId("new-question").value.trim();
  if (question === "" || options.length < LEAST) return tell("Enter a question and at least two answers.");
  if (new Set(options).size < options.length) return tell("Each answer must be different.");
  try {
    await create({ question, options, isPublic: byId("new-public").checked });
    dialog.close();
  } catch (/** @type {any} */ error) {
    tell(error.message);
  }
});

/** @param {string} text */
function tell(text) {
  problem.textContent = text;
  problem.hidden = false;
}
