const specifications = JSON.parse(document.getElementById("charts").textContent);
const options = { actions: false, renderer: "svg", ast: true, tooltip: { theme: "custom" } };
const drawn = Object.entries(specifications).map(([id, spec]) =>
  vegaEmbed(document.getElementById(id), spec, options)
);
Promise.all(drawn).then(() => {
  document.body.dataset.charts = String(drawn.length);
});
