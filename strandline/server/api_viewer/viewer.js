// Show the OpenAPI document of the server that this page comes from, in the colours that the reader prefers.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();

SwaggerUIBundle({
  url: new URL("../../openapi.json", location.href).href,
  domNode: document.getElementById("api"),
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  filter: true,
  // No request leaves for a validator on another host.
  validatorUrl: null,
});
