// Exchanges the token in the address for a cookie. The token is in the fragment, which a browser
// never sends, and is removed from the address and the history at once.
(() => {
  const sentence = document.getElementById("sentence"); // only on the page that asks for the token
  const here = location.pathname + location.search;
  const tokenOf = hash => new URLSearchParams(hash.slice(1)).get("t");
  const enter = async () => {
    const token = tokenOf(location.hash);
    if (!token) return;
    history.replaceState(null, "", here);
    if (document.body.dataset.role === "all") return; // it could not allow more
    const answer = await fetch("/enter", { method: "POST", body: new URLSearchParams({ token }) });
    if (answer.ok) location.replace(here);
    else if (sentence) {
      sentence.textContent = "This link is wrong or has expired. Open the address that `hv dashboard` prints.";
    }
  };
  addEventListener("hashchange", enter); // a link that was pasted into an open tab
  if (!sentence || tokenOf(location.hash)) return void enter();
  // Followed from another site, the link came without our cookie, though there may be one.
  fetch("/events/after?after=0").then(known => { if (known.ok) location.reload(); });
})();
