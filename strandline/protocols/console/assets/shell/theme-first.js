// Runs before the page is drawn, so that nobody who chose a theme sees the other one first.
try {
  const theme = localStorage.getItem("strandline.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme it is.
}
