/** Statements that were saved in this browser. */

import { field, notice, openDialog } from "../../shell/dialogs.js";
import { h } from "../../shell/dom.js";
import { icon } from "../../shell/icons.js";

const NAME = "strandline.queries";
const MOST = 200;

/** @returns {Record<string, string>} statements by name */
function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(NAME) ?? "{}");
    return found && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch {
    return {};
  }
}

function store(statements) {
  try {
    localStorage.setItem(NAME, JSON.stringify(statements));
  } catch {
    throw new Error("The browser does not let this page store anything.");
  }
}

/** Asks for a name and saves the statement. */
export function saveStatement(statement) {
  if (!statement) return void notice("Enter a statement before you save it.", "bad");
  const name = h("input", { required: true, maxlength: 100, autofocus: true, autocomplete: "off" });
  openDialog({
    title: "Save the statement",
    body: [field("Name", name, "Saved in this browser. A statement with the same name is replaced.")],
    action: "Save",
    submit: () => {
      const statements = { ...stored(), [name.value.trim()]: statement };
      if (!name.value.trim()) throw new Error("Enter a name.");
      if (Object.keys(statements).length > MOST) throw new Error(`At most ${MOST} statements can be saved; delete one.`);
      store(statements);
      notice("Saved.");
    },
  });
  return undefined;
}

/** Shows the saved statements. @param {(statement: string) => void} take called with the chosen one */
export function openSaved(take) {
  const list = h("ul.saved");
  const names = Object.keys(stored()).sort();
  for (const name of names) {
    const row = h("li.row.nowrap", {},
      h("button.link.grow", { type: "button", title: stored()[name], onclick: () => (dialog.close(), take(stored()[name])) }, name),
      h("button.quiet.only-icon", { type: "button", "aria-label": `Delete ${name}`, title: "Delete", onclick: () => (store(without(name)), row.remove()) }, icon("trash")));
    list.append(row);
  }
  const { dialog } = openDialog({ title: "Saved statements", body: [names.length ? list : h("p.muted", {}, "No statement is saved in this browser.")] });
}

function without(name) {
  const statements = stored();
  delete statements[name];
  return statements;
}
