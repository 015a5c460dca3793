// The theme's icons and the play button of a widget use the same class names; nesting
// keeps the one from replacing the other.
window.FontAwesomeConfig = { autoReplaceSvg: "nest" };

// The widgets' script asks MathJax 2 to typeset its labels; we load MathJax 3, which has
// no such Hub. Give one to whatever becomes window.MathJax: its settings, then itself.
(() => {
  function withHub(mathjax) {
    if (mathjax && !mathjax.Hub) {
      const Queue = ([, , element]) =>
        mathjax.startup?.promise?.then(() => mathjax.typesetPromise([element]));
      Object.defineProperty(mathjax, "Hub", { value: { Queue } });
    }
    return mathjax;
  }

  let mathjax = withHub(window.MathJax);
  Object.defineProperty(window, "MathJax", {
    configurable: true,
    get: () => mathjax,
    set: (value) => {
      mathjax = withHub(value);
    },
  });
})();

(() => {
  // A slider that is drawn by the widgets' script has a label beside its handle, but no
  // name that a screen reader would say. Copy label and readout to the handle. And a
  // button tells by its colour alone that it is pressed.
  function nameControls() {
    for (const slider of document.querySelectorAll(".widget-slider")) {
      const label = slider.querySelector(".widget-label")?.textContent.trim();
      const readout = slider.querySelector(".widget-readout")?.textContent.trim();
      for (const handle of slider.querySelectorAll(".noUi-handle, [role=slider]")) {
        set(handle, "aria-label", label || "Choose a picture");
        set(handle, "aria-valuetext", readout || "");
      }
    }
    for (const group of document.querySelectorAll(".widget-toggle-buttons")) {
      const label = group.querySelector(".widget-label")?.textContent.trim();
      set(group, "role", "group");
      set(group, "aria-label", label || "Choose a picture");
      for (const button of group.querySelectorAll("button")) {
        const chosen = button.classList.contains("mod-active");
        set(button, "aria-pressed", String(chosen));
        // A label is no tooltip, and a tooltip that was not given is no "null".
        button.removeAttribute("title");
      }
    }
    // A value between two pictures cannot be typed.
    for (const readout of document.querySelectorAll(".explorer .widget-readout")) {
      set(readout, "contenteditable", "false");
    }
  }

  // Only when it differs: setting it would call the observer again.
  function set(element, name, value) {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }

  // A frame that scrolls sideways must be reachable by keyboard, and then have a name.
  function reachFrames() {
    const frames =
      ".table-wrap, .cell_output, div.highlight pre, mjx-container, .claim, " +
      ".widget-html-content";
    for (const frame of document.querySelectorAll(`.bd-article :is(${frames})`)) {
      const wide = frame.scrollWidth > frame.clientWidth + 1;
      const scrolls = wide && getComputedStyle(frame).overflowX !== "visible";
      if (scrolls) set(frame, "tabindex", "0");
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    // The bibliography is marked as a list whose children are no list items.
    for (const list of document.querySelectorAll(".citation-list[role=list]")) {
      list.removeAttribute("role");
    }
    for (const cell of document.querySelectorAll(".citation-list [role=listitem]")) {
      cell.removeAttribute("role");
    }
    nameControls();
    reachFrames();
    new MutationObserver(() => {
      nameControls();
      reachFrames();
    }).observe(document.body, {
      attributeFilter: ["class"],
      childList: true,
      characterData: true,
      subtree: true,
    });
  });
  window.addEventListener("load", reachFrames);
  window.addEventListener("resize", reachFrames);
})();
