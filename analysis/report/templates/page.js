"use strict";
/* Light and dark for the charts, whose colours CSS cannot reach; and everything open on paper. */
(function () {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  function paint(dark) {
    if (!window.Bokeh) return;
    const ink = dark ? "#c9d1d9" : "#30363d";
    for (const doc of Bokeh.documents) {
      for (const model of doc._all_models.values()) {
        if ("major_label_text_color" in model) {
          model.setv({major_label_text_color: ink, axis_label_text_color: ink, axis_line_color: ink,
                      major_tick_line_color: ink, minor_tick_line_color: null});
        } else if (model.type === "LabelSet") {
          model.setv({text_color: ink});
        } else if ("label_text_color" in model && "click_policy" in model) {
          const inactive = dark ? "#0f1318" : "#ffffff";
          model.setv({label_text_color: ink, inactive_fill_alpha: 0.4, inactive_fill_color: inactive});
        }
      }
    }
  }

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    paint(isDark());
  });
  system.addEventListener("change", () => paint(isDark()));
  // A task of its own behind Bokeh's; not a frame, which a tab in the background or a starved browser never draws.
  window.addEventListener("load", () => setTimeout(() => { paint(isDark()); root.dataset.ready = "yes"; }));

  let before = "", closed = [];
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme || "";
    root.dataset.theme = "light";
    paint(false);
    closed = [...document.querySelectorAll("details.finding:not([open]), details.more:not([open])")];
    closed.forEach((details) => { details.open = true; });
  });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    paint(isDark());
    closed.forEach((details) => { details.open = false; });
  });
})();
