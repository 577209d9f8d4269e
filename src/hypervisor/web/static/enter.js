// Exchanges the token in the address for a cookie. The token is in the fragment, which a browser
// never sends, and is removed from the address and the history at once.
(async () => {
  const say = text => { document.getElementById("sentence").textContent = text; };
  const here = location.pathname + location.search;
  const token = new URLSearchParams(location.hash.slice(1)).get("t");
  if (token) {
    history.replaceState(null, "", here);
    const answer = await fetch("/enter", { method: "POST", body: new URLSearchParams({ token }) });
    if (answer.ok) return location.replace(here);
    return say("This link is wrong or has expired. Open the address that `hv dashboard` prints.");
  }
  // Followed from another site, the link came without our cookie, though there may be one.
  const known = await fetch("/events/after?after=0");
  if (known.ok) location.replace(here);
})();
