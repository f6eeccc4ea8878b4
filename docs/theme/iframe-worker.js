// Search without a server. Browsers refuse workers to pages from a disk, so there the worker's script runs in a
// hidden frame instead. The name tells mkdocs-material's offline plugin that it need not load its own.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc =
        "<script>postMessage = (data) => frameElement.dispatchEvent(new MessageEvent('answer', { data }))</script>" +
        `<script src="${address}"></script>`;
      const loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
      frame.addEventListener("answer", ({ data }) => this.dispatchEvent(new MessageEvent("message", { data })));
      this.postMessage = (data) =>
        loaded.then(() => frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
      document.documentElement.appendChild(frame);
    }
  };
}
