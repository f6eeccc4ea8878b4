const specifications = JSON.parse(document.getElementById("charts").textContent);
const options = { actions: false, renderer: "svg", ast: true, tooltip: { theme: "custom" } };
const drawn = Object.entries(specifications).map(([id, spec]) => {
  const place = document.getElementById(id);
  return vegaEmbed(place, spec, options).catch((error) => {
    place.textContent = "This chart could not be drawn; its numbers are on this page.";
    console.error(error);
  });
});
Promise.all(drawn).then(() => {
  document.body.dataset.charts = String(drawn.length);
});
