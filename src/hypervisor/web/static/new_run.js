// A check is about the form as it was: it leaves when the form is changed, and is shown when it comes.
(() => {
  const form = document.getElementById("new-run"), checked = document.getElementById("checked");
  if (!form) return;
  const forget = () => checked.replaceChildren();
  form.addEventListener("input", forget);
  form.addEventListener("change", forget);
  document.addEventListener("htmx:after:swap", () => {
    if (checked.querySelector(".verdict")) checked.scrollIntoView({ block: "nearest" });
  });
})();
