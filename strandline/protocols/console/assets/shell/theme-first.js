// Runs before the page is drawn, so that a chosen theme does not appear with a flash of the other one.
try {
  const theme = localStorage.getItem("strandline.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is not available: use the system's theme.
}
