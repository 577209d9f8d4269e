// The form of a correction: refreshed once it is saved, so that a second correction is about the new result.
(() => {
  document.addEventListener("htmx:after:swap", () => {
    const message = document.querySelector("#messages .message");
    if (!message || message.dataset.form || message.classList.contains("bad")) return;
    message.dataset.form = "1";
    for (const form of document.querySelectorAll("form[data-refresh]")) {
      if (form.contains(document.activeElement)) document.activeElement.blur();
      form.reset(); // so that the fields follow what the server sends
      htmx.trigger(document.getElementById(form.dataset.refresh), "live");
    }
  });
})();
