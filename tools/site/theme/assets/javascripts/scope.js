// What the theme's bundle expects: where the site begins, and what this browser remembers about it.
var __md_scope = new URL("../..", document.currentScript.src);
var __md_hash = (text) => [...text].reduce((hash, char) => (hash << 5) - hash + char.charCodeAt(0), 0);
var __md_get = (key, storage = localStorage, scope = __md_scope) => JSON.parse(storage.getItem(scope.pathname + "." + key));
var __md_set = (key, value, storage = localStorage, scope = __md_scope) => {
  try {
    storage.setItem(scope.pathname + "." + key, JSON.stringify(value));
  } catch {
    // The storage is full or forbidden: the choice is forgotten.
  }
};
