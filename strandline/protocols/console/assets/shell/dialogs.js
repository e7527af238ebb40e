/** Dialogs and notices. */

import { h } from "./dom.js";
import { icon } from "./icons.js";

/**
 * A modal dialog with a form. `submit` may be asynchronous; if it throws, the dialog shows the error and
 * stays open. It also stays open if `submit` returns false.
 * @param {{title: string, body: (Node|string)[], submit?: (form: HTMLFormElement) => any, action?: string, danger?: boolean, wide?: boolean}} options
 * @returns {{dialog: HTMLDialogElement, button: HTMLButtonElement|null, close: () => void, closed: Promise<any>}}
 */
export function openDialog({ title, body, submit, action = "OK", danger = false, wide = false }) {
  const before = document.activeElement;
  const problem = h("p.problem", { role: "alert", hidden: true });
  const button = submit ? h(danger ? "button.danger" : "button.primary", { type: "submit" }, action) : null;
  const form = h(
    "form",
    { method: "dialog", novalidate: false },
    h("header", {}, h("h2", { id: "dialog-title" }, title), h("button.quiet.only-icon", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, icon("close"))),
    h("div.dialog-body", {}, body, problem),
    h("footer", {}, h("button", { type: "button", onclick: () => dialog.close() }, submit ? "Cancel" : "Close"), button),
  );
  const dialog = h(wide ? "dialog.wide" : "dialog", { "aria-labelledby": "dialog-title" }, form);
  let result;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!submit) return dialog.close();
    button.disabled = true;
    problem.hidden = true;
    try {
      result = await submit(form);
      if (result !== false) dialog.close();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    } finally {
      button.disabled = false;
    }
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      resolve(result);
    });
  });
  document.body.append(dialog);
  dialog.showModal();
  // Lets the keyboard scroll a dialog without controls.
  if (!form.querySelector(".dialog-body :is(input, textarea, select, button, a)")) form.querySelector(".dialog-body").tabIndex = 0;
  form.querySelector("[autofocus], .dialog-body[tabindex], .dialog-body input, .dialog-body textarea, .dialog-body select")?.focus();
  return { dialog, button, close: () => dialog.close(), closed };
}

/** A confirmation dialog. `run` is called when the user confirms. */
export function confirm({ title, text, action, danger = true, run }) {
  return openDialog({ title, body: [h("p", {}, text)], action, danger, submit: run }).closed;
}

const MOST_NOTICES = 3;

/** Shows a message in the corner for a few seconds. @param {"good"|"bad"} kind */
export function notice(text, kind = "good") {
  const area = document.getElementById("notices");
  for (const shown of [...area.children]) if (shown.querySelector("span").textContent === text || area.children.length >= MOST_NOTICES) shown.remove();
  const element = h("div.notice", { dataset: { kind } }, h("span", {}, text), h("button.quiet.only-icon", { type: "button", "aria-label": "Close this message", onclick: () => element.remove() }, icon("close")));
  area.append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 8000 : 4000);
}

/** Removes all messages: they are about a screen that is no longer shown. */
export function clearNotices() {
  document.getElementById("notices")?.replaceChildren();
}

/** Runs a function and shows its error in the corner. */
export async function attempt(run, done) {
  try {
    const result = await run();
    if (done) notice(typeof done === "function" ? done(result) : done);
    return result;
  } catch (error) {
    notice(error.message, "bad");
    return undefined;
  }
}

/** A labelled field of a form. */
export function field(label, control, hint) {
  const id = control.id || `field-${Math.random().toString(36).slice(2, 9)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div.field", {}, h("label", { for: id }, label), control, hint ? h("p.hint", { id: `${id}-hint` }, hint) : null);
}
