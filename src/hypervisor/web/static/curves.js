// Throughput by number of workers, where the pointer shows the values. Without scripts, or before
// they run, the chart of the server is there.
(() => {
  if (!window.uPlot) return;
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const numbers = text => text.trim().split(/\s+/).map(Number);
  const times = value => value === null ? "" : `${value.toFixed(1)} ×`;

  const draw = box => {
    const workers = numbers(box.dataset.workers), [low, mean, high] = ["low", "mean", "high"].map(name => numbers(box.dataset[name]));
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const line = { stroke: color("--accent"), points: { show: false } };
    // The numbers of workers are steps, each as wide as the others.
    const places = workers.map((_, place) => place);
    const plot = document.createElement("div");
    box.querySelector(".gain").hidden = true;
    box.append(plot);
    const showMost = chart => chart.setLegend({ idx: places.length - 1 });
    new uPlot({
      width: box.clientWidth || 300, height: 190, legend: { markers: { show: false } }, cursor: { y: false, drag: { x: false } },
      scales: { x: { time: false, range: [-0.3, workers.length - 0.7] }, y: { range: (_, least, most) => [0, Math.max(most, 1) * 1.08] } },
      axes: [
        { ...axis, splits: () => places, values: (_, ticks) => ticks.map(tick => `${workers[tick]}`) },
        { ...axis, size: 44, values: (_, ticks) => ticks.map(tick => `${tick} ×`) },
      ],
      series: [
        { label: "workers", value: (_, place) => place === null ? "" : workers[place] },
        { ...line, label: "at most", width: 0, value: (_, value) => times(value) },
        { ...line, label: "throughput", width: 2, points: { show: true, size: 6 }, value: (_, value) => times(value) },
        { ...line, label: "at least", width: 0, value: (_, value) => times(value) },
        { label: "ideal", stroke: color("--rest"), dash: [3, 4], points: { show: false }, value: (_, value, series, place) => times(workers[place] ?? null) },
      ],
      hooks: { ready: [showMost] },
      bands: [{ series: [1, 3], fill: `color-mix(in srgb, ${color("--accent")} 20%, transparent)` }],
    }, [places, high, mean, low, workers.map(count => Math.min(count, Math.max(...high)))], plot);
  };
  const all = () => {
    for (const box of document.querySelectorAll(".curve")) {
      if (!box.querySelector(".uplot")) draw(box);
    }
  };
  const redraw = () => {
    for (const plot of document.querySelectorAll(".curve .uplot")) plot.parentElement.remove();
    all();
  };
  document.addEventListener("htmx:after:swap", all);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("resize", redraw);
  all();
})();
