/** Paths into JSON, as filters write them: `.user.name`, `.items[0]`, `."odd key"`. */

const PLAIN = /^[\p{L}\p{N}_$@-]+$/u;
/** The most values of a record that are compared. */
const MOST = 5000;

/** @param {string} path @param {string|number} step a member or an index */
export function below(path, step) {
  if (typeof step === "number") return `${path}[${step}]`;
  return `${path}.${PLAIN.test(step) ? step : JSON.stringify(step)}`;
}

/** A condition of a filter: the value at a path is this one. */
export function condition(path, value) {
  const text = typeof value === "string" && !/^[\p{L}_][\p{L}\p{N}_-]*$/u.test(value) ? JSON.stringify(value) : ["true", "false", "null", "and", "or", "not"].includes(value) ? JSON.stringify(value) : String(value);
  return `${path} = ${text}`;
}

/** The scalars of a value by their paths. @returns {Map<string, any>} */
export function scalars(value) {
  const found = new Map();
  const visit = (one, path) => {
    if (found.size >= MOST) return;
    const isEmpty = one !== null && typeof one === "object" && !Object.keys(one).length;
    if (one === null || typeof one !== "object" || isEmpty) found.set(path || ".", isEmpty ? JSON.stringify(one) : one);
    else for (const [step, each] of Array.isArray(one) ? one.entries() : Object.entries(one)) visit(each, below(path, step));
  };
  visit(value, "");
  return found;
}
