/** Signing in with an API key. */

import { get, setKey } from "../api.js";
import { h, replace } from "./dom.js";

/** Shows the sign-in form until the server accepts an API key. @returns {Promise<void>} */
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
      h("p.muted", {}, "This server requires an API key. Ask its administrator for one."),
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
        if (session.keys_required && !session.key) throw new Error("Invalid API key.");
        resolve();
      } catch (error) {
        setKey(null);
        problem.textContent = error.status === 401 ? "Invalid API key." : error.message;
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
