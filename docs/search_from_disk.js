// Browsers start no workers for pages that are opened from a disk. There, the search runs in a hidden frame instead,
// behind the interface of a worker.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.IFrameWorker = true; // tells the script that it is no worker
      inside.importScripts = async () => {};
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href).href;
      this.ready = new Promise((loaded) => script.addEventListener("load", loaded));
      inside.document.body.appendChild(script);
      this.inside = inside;
      this.frame = frame;
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }

    set onmessage(listener) {
      this.addEventListener("message", listener);
    }
  }
  window.Worker = FrameWorker;
}
