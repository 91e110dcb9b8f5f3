// Where the browser has WebGL, a recording of the viewer takes the place of its picture.
document.addEventListener("DOMContentLoaded", () => {
  const canvas = document.createElement("canvas");
  if (!(canvas.getContext("webgl2") || canvas.getContext("webgl"))) return;
  for (const figure of document.querySelectorAll(".recording")) {
    const picture = figure.querySelector("img");
    const frame = document.createElement("iframe");
    frame.src = new URL("../recording.html", picture.src);
    frame.title = picture.alt;
    picture.replaceWith(frame);
  }
});
