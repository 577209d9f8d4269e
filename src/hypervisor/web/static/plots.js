// Plots of the rings of metrics. A hidden tab asks for nothing.
(() => {
  const root = document.querySelector("[data-plots]");
  if (!root || !window.uPlot) return;
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colors = { cpu: "--accent", ram: "--warn", running: "--accent", done: "--accent", failed: "--bad", cost: "--accent" };
  const figures = [...root.querySelectorAll(".plot")];
  let minutes = 10, timer = 0, shown = "";

  // Totals become rates; a pause in the recording is a gap, not a slope.
  const rates = (at, totals, per) => totals.map((total, i) => {
    const step = i ? at[i] - at[i - 1] : 0;
    return step > 0 && step < 180 ? Math.max(total - totals[i - 1], 0) / step * per : null;
  });
  const columns = (figure, data) => figure.dataset.series.split(" ").map(name =>
    figure.dataset.rate ? rates(data.at, data[name], Number(figure.dataset.rate)) : data[name]);

  // As the reader's language writes times.
  const time = options => new Intl.DateTimeFormat(undefined, { hour12: false, ...options });
  const seconds = time({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const clock = time({ hour: "2-digit", minute: "2-digit" }), day = time({ day: "numeric", month: "short" });
  const timeText = step => tick =>
    (step < 60 ? seconds : step < 86400 ? clock : day).format(new Date(tick * 1000));

  const draw = (figure, data) => {
    const names = figure.dataset.series.split(" "), values = [data.at, ...columns(figure, data)];
    const width = figure.clientWidth || 300;
    if (figure.chart) {
      figure.chart.setSize({ width, height: 150 });
      figure.chart.setData(values);
      return;
    }
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const unit = figure.dataset.unit || "";
    const limits = unit === "%" ? [0, 100] : (_, low, high) => [0, Math.max(high, 1)];
    figure.chart = new uPlot({
      width, height: 150, legend: { show: false }, cursor: { show: false },
      scales: { y: { range: limits } },
      axes: [{ ...axis, values: (_, ticks, __, ___, step) => ticks.map(timeText(step)) }, { ...axis, size: 44, values: (_, ticks) => ticks.map(tick => tick + (unit === "%" ? " %" : "")) }],
      series: [{}, ...names.map(name => ({ label: name, stroke: color(colors[name]), width: 1.5, points: { show: false } }))],
    }, values, figure);
  };

  const refresh = async () => {
    clearTimeout(timer);
    // All tabs at the same moment, so that they share the answer.
    const pause = minutes > 10 ? 30000 : 2000;
    timer = setTimeout(refresh, pause - Date.now() % pause);
    if (document.hidden) return;
    try {
      const { status, text } = await hvGet(`${root.dataset.plots}?minutes=${minutes}`);
      if (status !== 200 || text === shown) return;
      shown = text;
      const data = JSON.parse(text);
      root.querySelector(".nothing").hidden = data.at.length > 1;
      for (const figure of figures) {
        figure.hidden = data.at.length < 2 || (figure.dataset.series === "cost" && !data.cost.some(Boolean));
        if (!figure.hidden) draw(figure, data);
      }
    } catch { /* the server is away: the next try may find it */ }
  };
  root.addEventListener("click", event => {
    const button = event.target.closest("[data-minutes]");
    if (!button) return;
    minutes = Number(button.dataset.minutes);
    for (const each of root.querySelectorAll("[data-minutes]")) each.setAttribute("aria-pressed", String(each === button));
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  addEventListener("resize", () => { shown = ""; refresh(); });
  refresh();
})();
