// Nothing here is needed to use a page: it saves clicks. Text goes into the page as text only.

// A destructive form's button waits for the name.
for (const form of document.querySelectorAll("form[data-confirm]")) {
  const typed = form.elements.namedItem("confirm");
  const button = form.querySelector("button[type=submit]");
  const look = () => { button.disabled = typed.value.trim() !== form.dataset.confirm; };
  typed.addEventListener("input", look);
  look();
}

// "/" goes to the search field, as in many tools.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("input[type=search]");
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (event.key === "/" && field && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    field.focus();
  }
});
