// Follows an output or a transcript: new lines scroll into view while its end is shown. Scrolling
// up ends that, scrolling back to the end begins it again. Where there is a box, it says which.
(() => {
  const SLACK = 24; // pixels from the end that count as its end
  let following = document.querySelector("[data-follow-toggle]")?.checked ?? false;
  let lastTop = 0;
  const box = () => document.querySelector("[data-follow]");
  const toggle = () => document.querySelector("[data-follow-toggle]");
  const show = () => {
    if (toggle()) toggle().checked = following;
    const output = box();
    if (!output) return;
    if (following) output.scrollTop = output.scrollHeight;
    lastTop = output.scrollTop;
  };
  document.addEventListener("change", event => {
    if (!event.target.matches("[data-follow-toggle]")) return;
    following = event.target.checked;
    show();
    event.target.blur(); // a part with a focused field is not fetched again
  });
  document.addEventListener("scroll", event => {
    const output = event.target;
    if (!(output instanceof Element) || !output.matches("[data-follow]")) return;
    const isEnd = output.scrollHeight - output.clientHeight - output.scrollTop < SLACK;
    if (isEnd) following = toggle() !== null && (following || output.scrollTop > lastTop);
    else if (output.scrollTop < lastTop) following = false;
    lastTop = output.scrollTop;
    if (toggle()) toggle().checked = following;
  }, true);
  document.addEventListener("htmx:after:swap", show);
  show();
})();
