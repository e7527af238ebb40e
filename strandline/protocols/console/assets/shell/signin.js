/** Signing in with an API key. */

import { get, setKey } from "../api.js";
import { h, replace } from "./dom.js";

/** Shows the form until a key is known to the server. @returns {Promise<void>} */
export function signIn(body, told = "") {
  return new Promise((resolve) => {
    const key = h("input", { id: "key", name: "key", type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
    const remember = h("input", { id: "remember", type: "checkbox" });
    const problem = h("p.problem", { role: "alert", hidden: !told }, told);
    const button = h("button.primary", { type: "submit" }, "Sign in");
    const form = h(
      "form",
      {},
      h("img", { src: "/console/icon.svg", alt: "", width: 40, height: 40 }),
      h("h1", {}, "Strandline"),
      h("p.muted", {}, "This server asks for an API key. Whoever runs it has one for you."),
      h("div.field", {}, h("label", { for: "key" }, "API key"), key),
      h("label.check", { for: "remember" }, remember, "Remember on this device"),
      problem,
      button,
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      setKey(key.value.trim(), remember.checked);
      try {
        const session = await get("/console/api/session");
        if (session.keys_required && !session.key) throw new Error("The server does not know this key.");
        resolve();
      } catch (error) {
        setKey(null);
        problem.textContent = error.status === 401 ? "The server does not know this key." : error.message;
        problem.hidden = false;
        key.select();
      } finally {
        button.disabled = false;
      }
    });
    replace(body, h("main.sign-in", {}, form), h("div", { id: "notices", role: "status" }));
    document.title = "Sign in · Strandline";
    key.focus();
  });
}
