// Runs before the page is drawn: what only a script can do is shown, and what only its absence needs is not.
document.documentElement.classList.add("scripted");
