// Use the colours that the reader chose before anything is painted.
{
  const palette = __md_get("__palette");
  for (const [key, value] of Object.entries(palette?.color ?? {})) document.body.setAttribute("data-md-color-" + key, value);
}
